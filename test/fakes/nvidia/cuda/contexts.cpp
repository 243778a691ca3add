#include <vector>

#include "test/fakes/nvidia/cuda/driver.h"

namespace vgpu::sim {
namespace {

thread_local std::vector<CUctx_st*> stack;

void remove_from_stack(CUctx_st* context) {
  if (!stack.empty() && stack.back() == context)
    stack.pop_back();
}

}  // namespace

bool is_context(CUctx_st* context) {
  return driver().contexts.contains(context);
}

CUresult current_context(CUctx_st** context) {
  if (stack.empty() || stack.back() == nullptr)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack.back()->alive)
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *context = stack.back();
  return CUDA_SUCCESS;
}

CUresult create_context(Device& device, unsigned flags, unsigned version, CUctx_st** context) {
  Driver& me = driver();
  uint64_t bytes = me.state->file().options.context_bytes;
  if (!me.state->charge(device.card, Kind::kContext, bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  // A primary context keeps its handle when it is made anew.
  if (*context == nullptr)
    *context = new CUctx_st{};
  **context = CUctx_st{.device = static_cast<CUdevice>(&device - me.devices.data()),
                       .flags = flags,
                       .version = version,
                       .primary = false,
                       .alive = true,
                       .charged = bytes};
  me.contexts.insert(*context);
  return CUDA_SUCCESS;
}

void destroy_context(CUctx_st* context) {
  destroy_streams(context);
  free_allocations(context);
  unload_modules(context);
  context->alive = false;
  driver().state->uncharge(find_device(context->device)->card, Kind::kContext, context->charged);
}

namespace {

CUresult create_and_push(CUcontext* context, unsigned flags, unsigned version, CUdevice device) {
  if (context == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  Device* found = find_device(device);
  if (found == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  CUctx_st* made = nullptr;
  CUresult result = create_context(*found, flags, version, &made);
  if (result != CUDA_SUCCESS)
    return result;
  stack.push_back(made);
  *context = made;
  return CUDA_SUCCESS;
}

CUresult reset_primary(CUdevice device) {
  SIM_LOCK();
  Device* found = find_device(device);
  if (found == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  if (found->primary_uses == 0)
    return CUDA_SUCCESS;
  found->primary_uses = 0;
  destroy_context(found->primary);
  return CUDA_SUCCESS;
}

CUresult set_primary_flags(CUdevice device, unsigned flags) {
  SIM_LOCK();
  Device* found = find_device(device);
  if (found == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  found->primary_flags = flags;
  if (found->primary != nullptr)
    found->primary->flags = flags;
  return CUDA_SUCCESS;
}

CUresult release_primary(CUdevice device) {
  SIM_LOCK();
  Device* found = find_device(device);
  if (found == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  if (found->primary_uses == 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (--found->primary_uses == 0)
    destroy_context(found->primary);
  return CUDA_SUCCESS;
}

CUresult destroy_created(CUcontext context) {
  SIM_LOCK();
  if (!is_context(context) || context->primary || !context->alive)
    return CUDA_ERROR_INVALID_CONTEXT;
  destroy_context(context);
  remove_from_stack(context);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace vgpu::sim

using vgpu::sim::Device;
using vgpu::sim::find_device;
using vgpu::sim::is_context;
using vgpu::sim::stack;

extern "C" {

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  SIM_ENTER(cuDevicePrimaryCtxRetain);
  if (context == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  Device* found = find_device(device);
  if (found == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  if (found->primary_uses == 0) {
    CUresult result =
        vgpu::sim::create_context(*found, found->primary_flags, 3020, &found->primary);
    if (result != CUDA_SUCCESS)
      return result;
    found->primary->primary = true;
  }
  ++found->primary_uses;
  *context = found->primary;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  SIM_ENTER(cuDevicePrimaryCtxRelease);
  return vgpu::sim::release_primary(device);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  SIM_ENTER(cuDevicePrimaryCtxRelease_v2);
  return vgpu::sim::release_primary(device);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  SIM_ENTER(cuDevicePrimaryCtxReset);
  return vgpu::sim::reset_primary(device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  SIM_ENTER(cuDevicePrimaryCtxReset_v2);
  return vgpu::sim::reset_primary(device);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  SIM_ENTER(cuDevicePrimaryCtxGetState);
  if (flags == nullptr || active == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  Device* found = find_device(device);
  if (found == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  *flags = found->primary_flags;
  *active = found->primary_uses != 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  SIM_ENTER(cuDevicePrimaryCtxSetFlags);
  return vgpu::sim::set_primary_flags(device, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  SIM_ENTER(cuDevicePrimaryCtxSetFlags_v2);
  return vgpu::sim::set_primary_flags(device, flags);
}

CUresult cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
  SIM_ENTER(cuCtxCreate);
  return vgpu::sim::create_and_push(context, flags, 3010, device);
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  SIM_ENTER(cuCtxCreate_v2);
  return vgpu::sim::create_and_push(context, flags, 3020, device);
}

CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity, int affinityCount,
                        unsigned int flags, CUdevice device) {
  SIM_ENTER(cuCtxCreate_v3);
  if (affinityCount != 0 || affinity != nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  return vgpu::sim::create_and_push(context, flags, 3020, device);
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned int flags,
                        CUdevice device) {
  SIM_ENTER(cuCtxCreate_v4);
  if (parameters != nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  return vgpu::sim::create_and_push(context, flags, 3020, device);
}

CUresult cuCtxDestroy(CUcontext context) {
  SIM_ENTER(cuCtxDestroy);
  return vgpu::sim::destroy_created(context);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  SIM_ENTER(cuCtxDestroy_v2);
  return vgpu::sim::destroy_created(context);
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  SIM_ENTER(cuCtxPushCurrent_v2);
  SIM_LOCK();
  if (!is_context(context) || !context->alive)
    return CUDA_ERROR_INVALID_CONTEXT;
  stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  SIM_ENTER(cuCtxPopCurrent_v2);
  SIM_LOCK();
  if (stack.empty())
    return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr)
    *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

// Replaces the top of the caller's stack; null takes it away.
CUresult cuCtxSetCurrent(CUcontext context) {
  SIM_ENTER(cuCtxSetCurrent);
  SIM_LOCK();
  if (context != nullptr && (!is_context(context) || !context->alive))
    return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack.empty())
    stack.pop_back();
  if (context != nullptr)
    stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  SIM_ENTER(cuCtxGetCurrent);
  if (context == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  *context = stack.empty() ? nullptr : stack.back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  SIM_ENTER(cuCtxGetDevice);
  if (device == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  CUctx_st* context = nullptr;
  CUresult result = vgpu::sim::current_context(&context);
  if (result == CUDA_SUCCESS)
    *device = context->device;
  return result;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  SIM_ENTER(cuCtxGetFlags);
  if (flags == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  CUctx_st* context = nullptr;
  CUresult result = vgpu::sim::current_context(&context);
  if (result == CUDA_SUCCESS)
    *flags = context->flags;
  return result;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned int* version) {
  SIM_ENTER(cuCtxGetApiVersion);
  if (version == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  CUctx_st* asked = context;
  if (asked == nullptr) {
    CUresult result = vgpu::sim::current_context(&asked);
    if (result != CUDA_SUCCESS)
      return result;
  }
  if (!is_context(asked) || !asked->alive)
    return CUDA_ERROR_INVALID_CONTEXT;
  *version = asked->version;
  return CUDA_SUCCESS;
}

}  // extern "C"
