#include "test/fakes/nvidia/cuda/arena.h"

#include <sys/mman.h>

#include <iterator>

namespace vgpu::sim {
namespace {

// More than any card has; where a sanitizer has taken most of the address space, less will do.
constexpr uint64_t kLargestRange = uint64_t{2} << 40;
constexpr uint64_t kSmallestRange = uint64_t{64} << 30;

uint64_t align_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Device addresses are addresses of this process.
void* to_host(uint64_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a CUdeviceptr is an integer
  return reinterpret_cast<void*>(address);
}

}  // namespace

bool Arena::reserve() {
  if (reserved_)
    return true;
  void* range = MAP_FAILED;
  uint64_t size = kLargestRange;
  for (; range == MAP_FAILED && size >= kSmallestRange; size /= 2)
    range = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED)
    return false;
  size *= 2;
  uint64_t begin = align_up(reinterpret_cast<uint64_t>(range), kBlock);
  insert(begin, reinterpret_cast<uint64_t>(range) + size - begin);
  reserved_ = true;
  return true;
}

void Arena::insert(uint64_t address, uint64_t size) {
  free_[address] = size;
  by_size_.emplace(size, address);
}

void Arena::remove(uint64_t address, uint64_t size) {
  free_.erase(address);
  by_size_.erase({size, address});
}

uint64_t Arena::take(uint64_t size) {
  if (!reserve())
    return 0;
  uint64_t unit = size >= kBlock ? kBlock : kUnit;
  for (auto candidate = by_size_.lower_bound({size, 0}); candidate != by_size_.end(); ++candidate) {
    auto [length, address] = *candidate;
    uint64_t begin = align_up(address, unit);
    if (begin - address + size > length)
      continue;
    remove(address, length);
    if (begin != address)
      insert(address, begin - address);
    if (begin + size != address + length)
      insert(begin + size, address + length - begin - size);
    return begin;
  }
  return 0;
}

void Arena::give_back(uint64_t address, uint64_t size, bool touched) {
  if (touched && size >= kBlock) {
    // Its pages hold nothing else: they go back to the kernel.
    uint64_t whole = size / kBlock * kBlock;
    madvise(to_host(address), whole, MADV_DONTNEED);
    mprotect(to_host(address), whole, PROT_NONE);
  }
  auto next = free_.lower_bound(address);
  if (next != free_.end() && next->first == address + size) {
    uint64_t length = next->second;
    remove(address + size, length);
    size += length;
  }
  next = free_.lower_bound(address);
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == address) {
      uint64_t begin = before->first;
      uint64_t length = before->second;
      remove(begin, length);
      address = begin;
      size += length;
    }
  }
  insert(address, size);
}

bool Arena::make_accessible(uint64_t address, uint64_t size) {
  uint64_t begin = address / kBlock * kBlock;
  uint64_t end = align_up(address + size, kBlock);
  return mprotect(to_host(begin), end - begin, PROT_READ | PROT_WRITE) == 0;
}

}  // namespace vgpu::sim
