// Which symbol a query of cuGetProcAddress means.
#ifndef VGPU_LIMITER_CUDA_LOOKUP_H
#define VGPU_LIMITER_CUDA_LOOKUP_H

#include "api/limiter/cuda_abi.h"

namespace vgpu::limiter {

// The exported symbol that `name` means for a caller of `version`, by the driver's rule: the newest
// ABI that is not newer than `version`; with CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM its
// per-thread form where there is one. nullptr for names that concern no limit.
const char* symbol_meant(const char* name, int version, cuuint64_t flags);

// What the caller gets in place of `found`, the driver's answer: our hook of the same function, or
// `found` itself.
void* translated(const char* name, int version, cuuint64_t flags, void* found);

}  // namespace vgpu::limiter

#endif
