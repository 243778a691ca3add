/* Names of the driver functions that cuda_client_linked refers to, so that it can be linked without
 * a driver. Never loaded. */
#define NAME(name) \
  void name(void); \
  void name(void) {}

NAME(cuInit)
NAME(cuGetErrorName)
NAME(cuDeviceGet)
NAME(cuDeviceGetCount)
NAME(cuDeviceGetUuid)
NAME(cuDeviceTotalMem)
NAME(cuDeviceTotalMem_v2)
NAME(cuDevicePrimaryCtxRetain)
NAME(cuDevicePrimaryCtxRelease_v2)
NAME(cuDevicePrimaryCtxReset_v2)
NAME(cuCtxCreate_v2)
NAME(cuCtxDestroy_v2)
NAME(cuCtxSetCurrent)
NAME(cuMemGetInfo)
NAME(cuMemGetInfo_v2)
NAME(cuMemAlloc_v2)
NAME(cuMemAllocPitch_v2)
NAME(cuMemFree_v2)
NAME(cuGetProcAddress_v2)
