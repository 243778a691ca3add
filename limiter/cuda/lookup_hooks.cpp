// The main door to the driver: what it answers is translated into our hooks, everything else about
// the answer stays the driver's.
#include "limiter/cuda/lookup.h"
#include "limiter/hook.h"

LIMITER_HOOK(CUresult, cuGetProcAddress,
             (const char* symbol, void** function, int cudaVersion, cuuint64_t flags)) {
  LIMITER_ENTER(cuGetProcAddress, symbol, function, cudaVersion, flags);
  const CUresult result = REAL(cuGetProcAddress)(symbol, function, cudaVersion, flags);
  if (result == CUDA_SUCCESS && function != nullptr) {
    *function = vgpu::limiter::translated(symbol, cudaVersion, flags, *function);
  }
  return result;
}

LIMITER_HOOK(CUresult, cuGetProcAddress_v2,
             (const char* symbol, void** function, int cudaVersion, cuuint64_t flags,
              CUdriverProcAddressQueryResult* status)) {
  LIMITER_ENTER(cuGetProcAddress_v2, symbol, function, cudaVersion, flags, status);
  const CUresult result = REAL(cuGetProcAddress_v2)(symbol, function, cudaVersion, flags, status);
  if (result == CUDA_SUCCESS && function != nullptr) {
    *function = vgpu::limiter::translated(symbol, cudaVersion, flags, *function);
  }
  return result;
}
