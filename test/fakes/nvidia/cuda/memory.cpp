#include <cstring>
#include <iterator>

#include "test/fakes/nvidia/cuda/driver.h"

// Memory that an allocation takes is its size rounded up to 512 bytes. Where the scenario gives
// larger blocks (block_kib), an allocation of at least a block takes whole blocks, and the smaller
// ones of a process share as few blocks as hold their sum.
namespace vgpu::sim {
namespace {

constexpr size_t kPitchUnit = 512;

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

uint64_t block_bytes() {
  uint64_t block = driver().state->file().options.block_bytes;
  return block < Arena::kUnit ? Arena::kUnit : block;
}

// Charges what `size` more bytes take; the counterpart of give_back.
bool take(unsigned card, uint64_t size) {
  uint64_t block = block_bytes();
  if (size >= block)
    return driver().state->charge(card, Kind::kMemory, round_up(size, block));
  uint64_t& small = driver().small_bytes[card];
  uint64_t more = round_up(small + size, block) - round_up(small, block);
  if (more != 0 && !driver().state->charge(card, Kind::kMemory, more))
    return false;
  small += size;
  return true;
}

void give_back(unsigned card, uint64_t size) {
  uint64_t block = block_bytes();
  if (size >= block) {
    driver().state->uncharge(card, Kind::kMemory, round_up(size, block));
    return;
  }
  uint64_t& small = driver().small_bytes[card];
  uint64_t less = round_up(small, block) - round_up(small - size, block);
  small -= size;
  if (less != 0)
    driver().state->uncharge(card, Kind::kMemory, less);
}

void free_allocation(std::map<CUdeviceptr, Allocation>::iterator position) {
  const Allocation& allocation = position->second;
  driver().arena.give_back(position->first, allocation.size, allocation.accessible);
  give_back(find_device(allocation.context->device)->card, allocation.size);
  driver().allocations.erase(position);
}

CUresult allocate(CUdeviceptr* pointer, uint64_t bytes) {
  CUctx_st* context = nullptr;
  CUresult result = current_context(&context);
  if (result != CUDA_SUCCESS)
    return result;
  if (bytes > (uint64_t{1} << 40))
    return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t size = round_up(bytes, Arena::kUnit);
  unsigned card = find_device(context->device)->card;
  if (!take(card, size))
    return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t address = driver().arena.take(size);
  if (address == 0) {
    give_back(card, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  driver().allocations[address] =
      Allocation{.context = context, .bytes = bytes, .size = size, .accessible = false};
  *pointer = address;
  return CUDA_SUCCESS;
}

// The allocation that holds all of [pointer, pointer + bytes).
std::map<CUdeviceptr, Allocation>::iterator find(CUdeviceptr pointer, uint64_t bytes) {
  auto& allocations = driver().allocations;
  auto next = allocations.upper_bound(pointer);
  if (next == allocations.begin())
    return allocations.end();
  auto found = std::prev(next);
  uint64_t offset = pointer - found->first;
  if (offset >= found->second.size || bytes > found->second.size - offset)
    return allocations.end();
  return found;
}

// The host's view of device bytes; null when they are no allocation.
void* access(CUdeviceptr pointer, uint64_t bytes) {
  auto found = find(pointer, bytes);
  if (found == driver().allocations.end())
    return nullptr;
  if (!found->second.accessible && !Arena::make_accessible(found->first, found->second.size))
    return nullptr;
  found->second.accessible = true;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an integer in the ABI
  return reinterpret_cast<void*>(pointer);
}

CUresult copy(void* destination, const void* source, size_t bytes) {
  if (destination == nullptr || source == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  memmove(destination, source, bytes);
  return CUDA_SUCCESS;
}

CUresult need_context() {
  CUctx_st* context = nullptr;
  return current_context(&context);
}

}  // namespace

void free_allocations(CUctx_st* context) {
  auto& allocations = driver().allocations;
  for (auto position = allocations.begin(); position != allocations.end();) {
    auto here = position++;
    if (here->second.context == context)
      free_allocation(here);
  }
}

}  // namespace vgpu::sim

using vgpu::sim::driver;

extern "C" {

CUresult cuMemGetInfo_v2(size_t* freeBytes, size_t* total) {
  SIM_ENTER(cuMemGetInfo_v2);
  if (freeBytes == nullptr || total == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  CUctx_st* context = nullptr;
  CUresult result = vgpu::sim::current_context(&context);
  if (result != CUDA_SUCCESS)
    return result;
  const vgpu::sim::Device& device = *vgpu::sim::find_device(context->device);
  *freeBytes = driver().state->free_bytes(device.card);
  *total = card_of(device).total - card_of(device).reserved;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned int* freeBytes, unsigned int* total) {
  SIM_ENTER(cuMemGetInfo);
  if (freeBytes == nullptr || total == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  size_t wide_free = 0;
  size_t wide_total = 0;
  CUresult result = cuMemGetInfo_v2(&wide_free, &wide_total);
  if (result != CUDA_SUCCESS)
    return result;
  *freeBytes = wide_free > UINT32_MAX ? UINT32_MAX : static_cast<unsigned>(wide_free);
  *total = wide_total > UINT32_MAX ? UINT32_MAX : static_cast<unsigned>(wide_total);
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  SIM_ENTER(cuMemAlloc_v2);
  if (pointer == nullptr || bytes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  return vgpu::sim::allocate(pointer, bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t widthInBytes, size_t height,
                            unsigned int elementSizeBytes) {
  SIM_ENTER(cuMemAllocPitch_v2);
  if (pointer == nullptr || pitch == nullptr || widthInBytes == 0 || height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (elementSizeBytes != 4 && elementSizeBytes != 8 && elementSizeBytes != 16)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  size_t row = vgpu::sim::round_up(widthInBytes, vgpu::sim::kPitchUnit);
  size_t bytes = 0;
  if (row < widthInBytes || __builtin_mul_overflow(row, height, &bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = vgpu::sim::allocate(pointer, bytes);
  if (result == CUDA_SUCCESS)
    *pitch = row;
  return result;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  SIM_ENTER(cuMemFree_v2);
  SIM_LOCK();
  auto found = driver().allocations.find(pointer);
  if (found == driver().allocations.end())
    return CUDA_ERROR_INVALID_VALUE;
  vgpu::sim::free_allocation(found);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) {
  SIM_ENTER(cuMemGetAddressRange_v2);
  SIM_LOCK();
  CUresult result = vgpu::sim::need_context();
  if (result != CUDA_SUCCESS)
    return result;
  auto found = vgpu::sim::find(pointer, 0);
  if (found == driver().allocations.end())
    return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr)
    *base = found->first;
  if (size != nullptr)
    *size = found->second.bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void* source, size_t bytes) {
  SIM_ENTER(cuMemcpyHtoD_v2);
  SIM_LOCK();
  CUresult result = vgpu::sim::need_context();
  return result != CUDA_SUCCESS
             ? result
             : vgpu::sim::copy(vgpu::sim::access(destination, bytes), source, bytes);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr destination, const void* source, size_t bytes) {
  return cuMemcpyHtoD_v2(destination, source, bytes);
}

CUresult cuMemcpyDtoH_v2(void* destination, CUdeviceptr source, size_t bytes) {
  SIM_ENTER(cuMemcpyDtoH_v2);
  SIM_LOCK();
  CUresult result = vgpu::sim::need_context();
  return result != CUDA_SUCCESS
             ? result
             : vgpu::sim::copy(destination, vgpu::sim::access(source, bytes), bytes);
}

CUresult cuMemcpyDtoH_v2_ptds(void* destination, CUdeviceptr source, size_t bytes) {
  return cuMemcpyDtoH_v2(destination, source, bytes);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  SIM_ENTER(cuMemcpyDtoD_v2);
  SIM_LOCK();
  CUresult result = vgpu::sim::need_context();
  return result != CUDA_SUCCESS ? result
                                : vgpu::sim::copy(vgpu::sim::access(destination, bytes),
                                                  vgpu::sim::access(source, bytes), bytes);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  return cuMemcpyDtoD_v2(destination, source, bytes);
}

CUresult cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t count) {
  SIM_ENTER(cuMemsetD8_v2);
  SIM_LOCK();
  CUresult result = vgpu::sim::need_context();
  if (result != CUDA_SUCCESS)
    return result;
  void* bytes = vgpu::sim::access(pointer, count);
  if (bytes == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  memset(bytes, value, count);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr pointer, unsigned char value, size_t count) {
  return cuMemsetD8_v2(pointer, value, count);
}

}  // extern "C"
