// What a program is told about the memory of its card: the share, never more than the card has.
#include "limiter/cuda/device.h"
#include "limiter/hook.h"

namespace vgpu::limiter {
namespace {

std::uint64_t smaller(std::uint64_t a, std::uint64_t b) {
  return a < b ? a : b;
}

// The old forms cannot say more than 32 bits hold.
unsigned int saturated(std::uint64_t bytes) {
  return static_cast<unsigned int>(smaller(bytes, UINT32_MAX));
}

// From the driver's figures to the container's.
CUresult share_of(std::uint64_t* free_bytes, std::uint64_t* total) {
  Place place;
  DeviceTerms terms;
  CUresult result = current_place(&place);
  if (result == CUDA_SUCCESS) {
    result = terms_of(place.uuid, &terms);
  }
  if (result != CUDA_SUCCESS) {
    return result;
  }
  *total = smaller(*total, terms.limit);
  const std::uint64_t used = terms.limit == 0 ? 0 : account().used(terms);
  *free_bytes = smaller(*free_bytes, used < *total ? *total - used : 0);
  return CUDA_SUCCESS;
}

CUresult share_of_total(std::uint64_t* total, CUdevice ordinal) {
  const char* uuid = nullptr;
  DeviceTerms terms;
  CUresult result = uuid_of(ordinal, &uuid);
  if (result == CUDA_SUCCESS) {
    result = terms_of(uuid, &terms);
  }
  *total = smaller(*total, terms.limit);
  return result;
}

}  // namespace
}  // namespace vgpu::limiter

LIMITER_HOOK(CUresult, cuMemGetInfo_v2, (size_t * freeBytes, size_t* total)) {
  LIMITER_ENTER(cuMemGetInfo_v2, freeBytes, total);
  CUresult result = REAL(cuMemGetInfo_v2)(freeBytes, total);
  if (result == CUDA_SUCCESS) {
    std::uint64_t left = *freeBytes;
    std::uint64_t all = *total;
    result = vgpu::limiter::share_of(&left, &all);
    *freeBytes = result == CUDA_SUCCESS ? left : 0;
    *total = result == CUDA_SUCCESS ? all : 0;
  }
  return result;
}

LIMITER_HOOK(CUresult, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device)) {
  LIMITER_ENTER(cuDeviceTotalMem_v2, bytes, device);
  CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, device);
  if (result == CUDA_SUCCESS) {
    std::uint64_t total = *bytes;
    result = vgpu::limiter::share_of_total(&total, device);
    *bytes = total;
  }
  return result;
}

// The old forms: asked of the new ones where the driver has them, whose figures are not cut off.
LIMITER_HOOK(CUresult, cuMemGetInfo, (unsigned int* freeBytes, unsigned int* total)) {
  LIMITER_ENTER(cuMemGetInfo, freeBytes, total);
  CUresult result = REAL(cuMemGetInfo)(freeBytes, total);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  size_t whole_free = *freeBytes;
  size_t whole_total = *total;
  if (REAL(cuMemGetInfo_v2) != nullptr) {
    REAL(cuMemGetInfo_v2)(&whole_free, &whole_total);
  }
  std::uint64_t left = whole_free;
  std::uint64_t all = whole_total;
  result = vgpu::limiter::share_of(&left, &all);
  *freeBytes = result == CUDA_SUCCESS ? vgpu::limiter::saturated(left) : 0;
  *total = result == CUDA_SUCCESS ? vgpu::limiter::saturated(all) : 0;
  return result;
}

LIMITER_HOOK(CUresult, cuDeviceTotalMem, (unsigned int* bytes, CUdevice device)) {
  LIMITER_ENTER(cuDeviceTotalMem, bytes, device);
  CUresult result = REAL(cuDeviceTotalMem)(bytes, device);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  size_t whole = *bytes;
  if (REAL(cuDeviceTotalMem_v2) != nullptr) {
    REAL(cuDeviceTotalMem_v2)(&whole, device);
  }
  std::uint64_t total = whole;
  result = vgpu::limiter::share_of_total(&total, device);
  *bytes = vgpu::limiter::saturated(total);
  return result;
}
