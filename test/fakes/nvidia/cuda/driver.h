#pragma once

#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "api/limiter/cuda_abi.h"
#include "test/fakes/nvidia/cuda/arena.h"
#include "test/fakes/nvidia/state/state.h"

// The simulated libcuda.so.1 inside one process: devices, contexts and what lives in them. Handles
// are addresses of objects that are never freed, so that a stale handle is recognised rather than
// dereferenced into something else.

struct CUmod_st {
  CUctx_st* context;
  bool alive;
  uint64_t charged;  // bytes
};

struct CUctx_st {
  CUdevice device;
  unsigned flags;
  unsigned version;  // of the API that made it
  bool primary;
  bool alive;
  uint64_t charged;  // bytes that the context itself takes
};

namespace vgpu::sim {

struct Allocation {
  CUctx_st* context;
  uint64_t bytes;  // as asked for
  uint64_t size;   // as taken from the arena and charged
  bool accessible;
};

struct Device {
  unsigned card;  // in the state file
  CUctx_st* primary;
  unsigned primary_uses;
  unsigned primary_flags;
};

struct Driver {
  std::mutex lock;         // of everything below
  State* state = nullptr;  // set by cuInit
  bool initialized = false;
  bool forked = false;  // a child of a process that used the driver: it may not
  std::vector<Device> devices;
  std::set<CUctx_st*> contexts;  // all that ever were
  std::set<CUmod_st*> modules;
  std::map<CUdeviceptr, Allocation> allocations;
  std::map<unsigned, uint64_t> small_bytes;  // per card, by allocations smaller than a block
  Arena arena;
};

Driver& driver();

// The state file, opened at first use; null where there is none.
State* state();

// What every entry does first: the scenario's rules, and (enter) the rule that cuInit comes first.
CUresult enter_early(const char* function);
CUresult enter(const char* function);

// With driver().lock held.
Device* find_device(CUdevice device);
Card& card_of(const Device& device);
bool is_context(CUctx_st* context);
CUresult create_context(Device& device, unsigned flags, unsigned version, CUctx_st** context);
void destroy_context(CUctx_st* context);  // and everything that lives in it
// The caller's current context.
CUresult current_context(CUctx_st** context);
// What a context owns, freed with it.
void free_allocations(CUctx_st* context);
void unload_modules(CUctx_st* context);
void destroy_streams(CUctx_st* context);

}  // namespace vgpu::sim

#define SIM_ENTER(function)                                                      \
  if (CUresult entered = ::vgpu::sim::enter(#function); entered != CUDA_SUCCESS) \
  return entered
#define SIM_ENTER_EARLY(function)                                                      \
  if (CUresult entered = ::vgpu::sim::enter_early(#function); entered != CUDA_SUCCESS) \
  return entered
#define SIM_LOCK() const std::lock_guard<std::mutex> sim_guard(::vgpu::sim::driver().lock)
