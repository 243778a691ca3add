// You are a guest in this process. No exceptions, no exit, no allocation on a hooked path, no lock
// across a driver call, no signals, no trust in the environment, nothing from outside api/limiter,
// errno as you found it, and nothing a 2012 C library does not have.
//
// A hook is one block in the file of its kind:
//
//   LIMITER_HOOK(CUresult, cuMemFree_v2, (CUdeviceptr pointer)) {
//     LIMITER_ENTER(cuMemFree_v2, pointer);
//     … REAL(cuMemFree_v2)(pointer) …
//   }
//
// LIMITER_HOOK declares the exported symbol, the typed pointer to the driver's own function, and a
// row by which cuGetProcAddress finds the hook. LIMITER_ENTER comes first: it passes straight
// through when the driver itself called us from inside a hook, and answers an error when there is
// no driver. LIMITER_USES gives REAL of a function that is not hooked. A symbol's name is its
// versioned, exported one.
#ifndef VGPU_LIMITER_HOOK_H
#define VGPU_LIMITER_HOOK_H

#include "limiter/doubt.h"

namespace vgpu::limiter {

// As large as it is aligned: the rows of all files lie in one section, and must lie there without
// gaps.
struct alignas(32) HookRow {
  const char* name;
  void* hook;   // nullptr: not hooked, only used
  void** real;  // where the driver's own function is kept; nullptr in it: this driver has none
};

// All rows, in no order.
const HookRow* hooks_begin();
const HookRow* hooks_end();

// Fills every row's `real`. `find` is asked once per name. False, and nothing is filled, when it
// finds one of our own hooks: then what we took for the driver is ourselves.
bool bind(void* (*find)(const char* name));

// Set while a hook of this thread is at work.
bool inside();

class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  Inside(Inside&&) = delete;
  Inside& operator=(Inside&&) = delete;
};

// The answer of a hook whose driver function is missing, as the type that the hook returns.
template <typename T>
T missing();
template <>
CUresult missing<CUresult>();
template <>
nvmlReturn_t missing<nvmlReturn_t>();

}  // namespace vgpu::limiter

#define REAL(name) (vgpu_real_##name)

#define LIMITER_ROW(name, hook)                                  \
  namespace {                                                    \
  decltype(&::name) vgpu_real_##name = nullptr;                  \
  [[gnu::section("vgpu_hooks"), gnu::used,                       \
    gnu::retain]] vgpu::limiter::HookRow vgpu_row_##name = {     \
      #name, hook, reinterpret_cast<void**>(&vgpu_real_##name)}; \
  }

#define LIMITER_USES(name) LIMITER_ROW(name, nullptr)

#define LIMITER_HOOK(type, name, parameters)          \
  LIMITER_ROW(name, reinterpret_cast<void*>(&::name)) \
  extern "C" [[gnu::visibility("default")]] type name parameters

#define LIMITER_ENTER(name, ...)                                        \
  if (REAL(name) == nullptr) {                                          \
    return vgpu::limiter::missing<decltype(REAL(name)(__VA_ARGS__))>(); \
  }                                                                     \
  if (vgpu::limiter::inside()) {                                        \
    return REAL(name)(__VA_ARGS__);                                     \
  }                                                                     \
  const vgpu::limiter::Inside guard

#endif
