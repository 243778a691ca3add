// What each device pointer of this process was charged: a hash table in shards, grown by mmap,
// never by malloc.
//
// A record leaves the table before the driver frees its memory: the driver may give the address to
// another thread at once.
#ifndef VGPU_LIMITER_POINTER_TABLE_H
#define VGPU_LIMITER_POINTER_TABLE_H

#include <cstddef>
#include <cstdint>

#include "api/limiter/host.h"
#include "limiter/spin_lock.h"

namespace vgpu::limiter {

struct Allocation {
  std::uint64_t address = 0;  // 0 = no allocation
  std::uint64_t bytes = 0;    // as charged
  std::uint64_t context = 0;  // serial number of its context
  std::uint32_t device = 0;   // index in the host page
  std::uint32_t padding = 0;
};

struct BytesPerDevice {
  std::uint64_t bytes[VGPU_MAX_DEVICES] = {};
};

class PointerTable {
 public:
  // Keeps `allocation`. `replaced` gets the record that stood at this address, or address 0: its
  // memory went without us being told. False when there is no memory for it.
  bool put(const Allocation& allocation, Allocation* replaced);
  // Takes the record at `address` out; false when there is none.
  bool take(std::uint64_t address, Allocation* allocation);
  // Takes all records of a context out; what they were charged.
  BytesPerDevice take_context(std::uint64_t context);
  // Forgets everything, in the child of a fork.
  void clear();

 private:
  static constexpr std::size_t kShards = 64;

  struct Shard {
    SpinLock lock;
    Allocation* records = nullptr;
    std::size_t capacity = 0;  // 0 or a power of two
    std::size_t count = 0;

    std::size_t find(std::uint64_t address) const;
    bool grow();
    void erase(std::size_t position);
  };

  Shard& shard_of(std::uint64_t address);

  Shard shards_[kShards];
};

}  // namespace vgpu::limiter

#endif
