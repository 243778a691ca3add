#pragma once

#include <mutex>
#include <vector>

#include "api/limiter/nvml_abi.h"
#include "test/fakes/nvidia/state/state.h"

// The simulated libnvidia-ml.so.1 inside one process. As in the real one, exported functions call
// each other by their exported names, so that a library in front of this one is entered again.

struct nvmlDevice_st {
  unsigned card;  // in the state file
};

namespace vgpu::sim {

struct Nvml {
  std::mutex lock;
  State* state = nullptr;
  unsigned uses = 0;                    // nvmlInit calls without their nvmlShutdown
  std::vector<nvmlDevice_st*> devices;  // those visible at the first nvmlInit
};

Nvml& nvml();

// What every entry but nvmlInit and nvmlErrorString does first.
nvmlReturn_t enter(const char* function);
bool is_device(nvmlDevice_t device);
Card& card_of(nvmlDevice_t device);
// Copies a text with its NUL, or says that it does not fit.
nvmlReturn_t put_text(const char* text, char* out, unsigned length);

}  // namespace vgpu::sim

#define SIM_ENTER(function)                                                          \
  if (nvmlReturn_t entered = ::vgpu::sim::enter(#function); entered != NVML_SUCCESS) \
  return entered
#define SIM_ENTER_DEVICE(function, device) \
  SIM_ENTER(function);                     \
  if (!::vgpu::sim::is_device(device))     \
  return NVML_ERROR_INVALID_ARGUMENT
