#include "limiter/cuda/context_charge.h"

#include "limiter/hook.h"

LIMITER_USES(cuDevicePrimaryCtxGetState)

namespace vgpu::limiter {
namespace {

bool primary_is_active(CUdevice ordinal) {
  unsigned flags = 0;
  int active = 0;
  return REAL(cuDevicePrimaryCtxGetState) != nullptr &&
         REAL(cuDevicePrimaryCtxGetState)(ordinal, &flags, &active) == CUDA_SUCCESS && active != 0;
}

// For a context that lives although we did not see it made.
std::uint64_t adopt(CUdevice ordinal, const char* uuid, CUcontext handle, bool primary) {
  DeviceTerms terms;
  if (account().terms(uuid, &terms) != Doubt::kNone) {
    return 0;
  }
  const std::uint64_t serial = account().contexts.add({.handle = handle,
                                                       .bytes = terms.context_bytes,
                                                       .device = terms.index,
                                                       .ordinal = ordinal,
                                                       .primary = primary});
  if (serial != 0) {
    account().charge_always(terms.index, terms.context_bytes);
  }
  return serial;
}

}  // namespace

std::uint64_t serial_of(const Place& place) {
  ContextRecord record;
  if (account().contexts.find(place.context, &record)) {
    return record.serial;
  }
  const bool primary =
      primary_is_active(place.ordinal) && !account().contexts.find_primary(place.ordinal, &record);
  return adopt(place.ordinal, place.uuid, place.context, primary);
}

CUresult charge_context(CUdevice ordinal, bool primary, std::uint64_t* serial) {
  *serial = 0;
  const char* uuid = nullptr;
  CUresult result = uuid_of(ordinal, &uuid);
  ContextRecord record;
  if (result != CUDA_SUCCESS || (primary && account().contexts.find_primary(ordinal, &record))) {
    return result;
  }
  DeviceTerms terms;
  result = terms_of(uuid, &terms);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  record = {.bytes = terms.context_bytes, .ordinal = ordinal, .primary = primary};
  result = charge(uuid, record.bytes, &record.device);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  *serial = account().contexts.add(record);
  if (*serial == 0) {
    account().uncharge(record.device, record.bytes);
    // Another thread's retain came first, or there is no room.
    return primary && account().contexts.find_primary(ordinal, &record)
               ? CUDA_SUCCESS
               : resolve(Doubt::kNoMemory).cuda;
  }
  return CUDA_SUCCESS;
}

void discharge_context(const ContextRecord& record) {
  account().uncharge(record.device, record.bytes);
  account().uncharge(account().pointers.take_context(record.serial));
}

void settle_primary(CUdevice ordinal, CUcontext made) {
  ContextRecord record;
  const bool recorded = account().contexts.find_primary(ordinal, &record);
  if (recorded && made != nullptr) {
    account().contexts.set_handle(record.serial, made);
  }
  if (recorded && !primary_is_active(ordinal) && account().contexts.take(record.serial, &record)) {
    discharge_context(record);
  }
  // Another thread may have made it again meanwhile, and relied on the record that went.
  const char* uuid = nullptr;
  if (!account().contexts.find_primary(ordinal, &record) && primary_is_active(ordinal) &&
      uuid_of(ordinal, &uuid) == CUDA_SUCCESS) {
    adopt(ordinal, uuid, made, true);
  }
}

}  // namespace vgpu::limiter
