// Contexts. Each costs the card what the host has measured (context_bytes), before the driver makes
// it; with it goes all memory allocated in it.
#include "limiter/cuda/context_charge.h"
#include "limiter/hook.h"

namespace vgpu::limiter {
namespace {

template <typename Call>
CUresult create(CUcontext* context, CUdevice ordinal, Call call) {
  std::uint64_t serial = 0;
  CUresult result = charge_context(ordinal, false, &serial);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  result = call();
  ContextRecord record;
  if (result == CUDA_SUCCESS) {
    account().contexts.set_handle(serial, *context);
  } else if (account().contexts.take(serial, &record)) {
    account().uncharge(record.device, record.bytes);
  }
  return result;
}

template <typename Call>
CUresult destroy(CUcontext context, Call call) {
  // Gone from the table first: the driver may give the handle to the next context at once.
  ContextRecord record;
  const bool known =
      account().contexts.find(context, &record) && account().contexts.take(record.serial, &record);
  const CUresult result = call();
  if (known && result == CUDA_SUCCESS) {
    discharge_context(record);
  } else if (known) {
    account().contexts.put_back(record);
  }
  return result;
}

template <typename Call>
CUresult end_primary(CUdevice ordinal, Call call) {
  const CUresult result = call();
  if (result == CUDA_SUCCESS) {
    settle_primary(ordinal, nullptr);
  }
  return result;
}

}  // namespace
}  // namespace vgpu::limiter

LIMITER_HOOK(CUresult, cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device)) {
  LIMITER_ENTER(cuCtxCreate, context, flags, device);
  return vgpu::limiter::create(context, device,
                               [&] { return REAL(cuCtxCreate)(context, flags, device); });
}

LIMITER_HOOK(CUresult, cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device)) {
  LIMITER_ENTER(cuCtxCreate_v2, context, flags, device);
  return vgpu::limiter::create(context, device,
                               [&] { return REAL(cuCtxCreate_v2)(context, flags, device); });
}

LIMITER_HOOK(CUresult, cuCtxCreate_v3,
             (CUcontext * context, CUexecAffinityParam* affinity, int affinityCount,
              unsigned int flags, CUdevice device)) {
  LIMITER_ENTER(cuCtxCreate_v3, context, affinity, affinityCount, flags, device);
  return vgpu::limiter::create(context, device, [&] {
    return REAL(cuCtxCreate_v3)(context, affinity, affinityCount, flags, device);
  });
}

LIMITER_HOOK(CUresult, cuCtxCreate_v4,
             (CUcontext * context, CUctxCreateParams* parameters, unsigned int flags,
              CUdevice device)) {
  LIMITER_ENTER(cuCtxCreate_v4, context, parameters, flags, device);
  return vgpu::limiter::create(
      context, device, [&] { return REAL(cuCtxCreate_v4)(context, parameters, flags, device); });
}

LIMITER_HOOK(CUresult, cuCtxDestroy, (CUcontext context)) {
  LIMITER_ENTER(cuCtxDestroy, context);
  return vgpu::limiter::destroy(context, [&] { return REAL(cuCtxDestroy)(context); });
}

LIMITER_HOOK(CUresult, cuCtxDestroy_v2, (CUcontext context)) {
  LIMITER_ENTER(cuCtxDestroy_v2, context);
  return vgpu::limiter::destroy(context, [&] { return REAL(cuCtxDestroy_v2)(context); });
}

LIMITER_HOOK(CUresult, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device)) {
  LIMITER_ENTER(cuDevicePrimaryCtxRetain, context, device);
  std::uint64_t serial = 0;
  CUresult result = vgpu::limiter::charge_context(device, true, &serial);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  result = REAL(cuDevicePrimaryCtxRetain)(context, device);
  vgpu::limiter::settle_primary(device, result == CUDA_SUCCESS ? *context : nullptr);
  return result;
}

LIMITER_HOOK(CUresult, cuDevicePrimaryCtxRelease, (CUdevice device)) {
  LIMITER_ENTER(cuDevicePrimaryCtxRelease, device);
  return vgpu::limiter::end_primary(device,
                                    [&] { return REAL(cuDevicePrimaryCtxRelease)(device); });
}

LIMITER_HOOK(CUresult, cuDevicePrimaryCtxRelease_v2, (CUdevice device)) {
  LIMITER_ENTER(cuDevicePrimaryCtxRelease_v2, device);
  return vgpu::limiter::end_primary(device,
                                    [&] { return REAL(cuDevicePrimaryCtxRelease_v2)(device); });
}

LIMITER_HOOK(CUresult, cuDevicePrimaryCtxReset, (CUdevice device)) {
  LIMITER_ENTER(cuDevicePrimaryCtxReset, device);
  return vgpu::limiter::end_primary(device, [&] { return REAL(cuDevicePrimaryCtxReset)(device); });
}

LIMITER_HOOK(CUresult, cuDevicePrimaryCtxReset_v2, (CUdevice device)) {
  LIMITER_ENTER(cuDevicePrimaryCtxReset_v2, device);
  return vgpu::limiter::end_primary(device,
                                    [&] { return REAL(cuDevicePrimaryCtxReset_v2)(device); });
}
