// A driver of a few functions in this program, to see what hooks do with its answers.
#ifndef VGPU_TEST_UNIT_LIMITER_FAKE_DRIVER_H
#define VGPU_TEST_UNIT_LIMITER_FAKE_DRIVER_H

#include <cstdint>

#include "api/limiter/cuda_abi.h"
#include "api/limiter/nvml_abi.h"

namespace vgpu::limiter {

struct FakeDriver {
  CUresult answer = CUDA_SUCCESS;  // of the next allocations and contexts
  int allocations = 0;             // calls that reached the driver
  int frees = 0;
  int contexts = 0;
  CUdeviceptr next = 0x10000;
  std::uint64_t pitch = 0;
  bool primary = false;
  CUdevice current = 0;
  std::uint64_t seen_inside = 0;  // the total that a re-entered query answered
  void* looked_up = nullptr;      // what cuGetProcAddress answers
};

FakeDriver& fake_driver();

// The address of the fake's function of this name, or nullptr.
void* find_in_fake_driver(const char* name);

}  // namespace vgpu::limiter

#endif
