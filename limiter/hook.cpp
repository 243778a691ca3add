#include "limiter/hook.h"

#include <atomic>

// The linker makes these two for a section whose name is an identifier.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the names are given
extern "C" {
[[gnu::visibility("hidden")]] extern vgpu::limiter::HookRow __start_vgpu_hooks[];
[[gnu::visibility("hidden")]] extern vgpu::limiter::HookRow __stop_vgpu_hooks[];
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace vgpu::limiter {
namespace {

std::atomic<bool> bound{false};
constinit thread_local unsigned depth = 0;

}  // namespace

const HookRow* hooks_begin() {
  return __start_vgpu_hooks;
}
const HookRow* hooks_end() {
  return __stop_vgpu_hooks;
}

bool bind(void* (*find)(const char* name)) {
  for (const HookRow* row = hooks_begin(); row != hooks_end(); ++row) {
    if (row->hook != nullptr && find(row->name) == row->hook) {
      return false;
    }
  }
  for (const HookRow* row = hooks_begin(); row != hooks_end(); ++row) {
    *row->real = find(row->name);
  }
  bound.store(true);
  return true;
}

bool inside() {
  return depth != 0;
}
Inside::Inside() {
  ++depth;
}
Inside::~Inside() {
  --depth;
}

template <>
CUresult missing<CUresult>() {
  return resolve(bound.load() ? Doubt::kNoFunction : Doubt::kNoDriver).cuda;
}
template <>
nvmlReturn_t missing<nvmlReturn_t>() {
  return resolve(bound.load() ? Doubt::kNoFunction : Doubt::kNoDriver).nvml;
}

}  // namespace vgpu::limiter
