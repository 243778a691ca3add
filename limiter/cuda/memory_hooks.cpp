// Linear device memory: reserve, call, keep or undo.
#include "limiter/cuda/context_charge.h"
#include "limiter/hook.h"

namespace vgpu::limiter {
namespace {

// What the driver hands out linear memory in, and what the rows of pitched memory begin at.
constexpr std::uint64_t kGranularity = 512;  // bytes
constexpr std::uint64_t kLargest = std::uint64_t{1} << 62;

// Beyond kLargest everything is as large: no card has it.
std::uint64_t rounded(std::uint64_t bytes) {
  return bytes > kLargest ? kLargest : (bytes + kGranularity - 1) & ~(kGranularity - 1);
}

std::uint64_t rows(std::uint64_t bytes, std::uint64_t count) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(bytes, count, &product) ? kLargest : rounded(product);
}

// After a success: what it really took stands against what was reserved.
CUresult settle(const Place& place, Allocation* allocation, std::uint64_t actual) {
  CUresult result = CUDA_SUCCESS;
  if (actual > allocation->bytes) {
    result = charge(place.uuid, actual - allocation->bytes, &allocation->device);
  } else {
    account().uncharge(allocation->device, allocation->bytes - actual);
  }
  allocation->bytes = result == CUDA_SUCCESS ? actual : allocation->bytes;
  return result;
}

// False when our own tables have no room.
bool keep(const Place& place, Allocation* allocation, CUdeviceptr pointer) {
  allocation->address = pointer;
  allocation->context = serial_of(place);
  Allocation replaced;
  if (allocation->context == 0 || !account().pointers.put(*allocation, &replaced)) {
    return false;
  }
  if (replaced.address != 0) {
    account().uncharge(replaced.device, replaced.bytes);
  }
  return true;
}

// `call` asks the driver, `actual` says afterwards what was taken, `give_back` frees it.
template <typename Call, typename Actual, typename GiveBack>
CUresult allocate(const CUdeviceptr* pointer, std::uint64_t estimate, Call call, Actual actual,
                  GiveBack give_back) {
  Place place;
  CUresult result = current_place(&place);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  Allocation allocation = {.bytes = estimate};
  result = charge(place.uuid, estimate, &allocation.device);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  result = call();
  if (result != CUDA_SUCCESS) {
    account().uncharge(allocation.device, allocation.bytes);
    return result;
  }
  result = settle(place, &allocation, actual());
  if (result == CUDA_SUCCESS && !keep(place, &allocation, *pointer)) {
    result = resolve(Doubt::kNoMemory).cuda;
  }
  if (result != CUDA_SUCCESS) {
    give_back();
    account().uncharge(allocation.device, allocation.bytes);
  }
  return result;
}

}  // namespace
}  // namespace vgpu::limiter

LIMITER_HOOK(CUresult, cuMemFree_v2, (CUdeviceptr pointer)) {
  LIMITER_ENTER(cuMemFree_v2, pointer);
  vgpu::limiter::Account& account = vgpu::limiter::account();
  vgpu::limiter::Allocation allocation;
  const bool known = account.pointers.take(pointer, &allocation);
  const CUresult result = REAL(cuMemFree_v2)(pointer);
  vgpu::limiter::Allocation replaced;
  if (known && result == CUDA_SUCCESS) {
    account.uncharge(allocation.device, allocation.bytes);
  } else if (known) {
    account.pointers.put(allocation, &replaced);
  }
  return result;
}

LIMITER_HOOK(CUresult, cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes)) {
  LIMITER_ENTER(cuMemAlloc_v2, pointer, bytes);
  const std::uint64_t size = vgpu::limiter::rounded(bytes);
  return vgpu::limiter::allocate(
      pointer, size, [&] { return REAL(cuMemAlloc_v2)(pointer, bytes); }, [&] { return size; },
      [&] {
        REAL(cuMemFree_v2)
        (*pointer);
      });
}

LIMITER_HOOK(CUresult, cuMemAllocPitch_v2,
             (CUdeviceptr * pointer, size_t* pitch, size_t widthInBytes, size_t height,
              unsigned int elementSizeBytes)) {
  LIMITER_ENTER(cuMemAllocPitch_v2, pointer, pitch, widthInBytes, height, elementSizeBytes);
  return vgpu::limiter::allocate(
      pointer, vgpu::limiter::rows(vgpu::limiter::rounded(widthInBytes), height),
      [&] {
        return REAL(cuMemAllocPitch_v2)(pointer, pitch, widthInBytes, height, elementSizeBytes);
      },
      [&] { return vgpu::limiter::rows(*pitch, height); },
      [&] {
        REAL(cuMemFree_v2)
        (*pointer);
      });
}
