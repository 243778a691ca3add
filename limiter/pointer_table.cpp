#include "limiter/pointer_table.h"

#include "limiter/sys.h"

namespace vgpu::limiter {
namespace {

constexpr std::size_t kFirstCapacity = 128;  // records: one page

std::uint64_t mix(std::uint64_t address) {
  address *= 0x9e3779b97f4a7c15;
  return address ^ (address >> 32);
}

}  // namespace

PointerTable::Shard& PointerTable::shard_of(std::uint64_t address) {
  return shards_[(mix(address) >> 16) % kShards];
}

// The position of `address`, or of the empty record where it would stand. The shard is never full.
std::size_t PointerTable::Shard::find(std::uint64_t address) const {
  std::size_t position = mix(address) & (capacity - 1);
  while (records[position].address != 0 && records[position].address != address) {
    position = (position + 1) & (capacity - 1);
  }
  return position;
}

bool PointerTable::Shard::grow() {
  const std::size_t larger = capacity == 0 ? kFirstCapacity : capacity * 2;
  auto* memory = static_cast<Allocation*>(sys::map_memory(larger * sizeof(Allocation)));
  if (memory == nullptr) {
    return false;
  }
  Allocation* old = records;
  const std::size_t old_capacity = capacity;
  records = memory;
  capacity = larger;
  for (std::size_t i = 0; i < old_capacity; ++i) {
    if (old[i].address != 0) {
      records[find(old[i].address)] = old[i];
    }
  }
  if (old != nullptr) {
    sys::unmap(old, old_capacity * sizeof(Allocation));
  }
  return true;
}

// Closes the gap, so that every record stays reachable from where it hashes to.
void PointerTable::Shard::erase(std::size_t position) {
  const std::size_t mask = capacity - 1;
  std::size_t next = position;
  for (;;) {
    next = (next + 1) & mask;
    if (records[next].address == 0) {
      break;
    }
    const std::size_t home = mix(records[next].address) & mask;
    if (((next - home) & mask) >= ((next - position) & mask)) {
      records[position] = records[next];
      position = next;
    }
  }
  records[position] = Allocation{};
  --count;
}

bool PointerTable::put(const Allocation& allocation, Allocation* replaced) {
  Shard& shard = shard_of(allocation.address);
  const Locked lock(shard.lock);
  *replaced = Allocation{};
  if ((shard.count + 1) * 4 > shard.capacity * 3 && !shard.grow()) {
    return false;
  }
  Allocation& record = shard.records[shard.find(allocation.address)];
  *replaced = record;
  shard.count += record.address == 0 ? 1 : 0;
  record = allocation;
  return true;
}

bool PointerTable::take(std::uint64_t address, Allocation* allocation) {
  Shard& shard = shard_of(address);
  const Locked lock(shard.lock);
  if (shard.capacity == 0 || address == 0) {
    return false;
  }
  const std::size_t position = shard.find(address);
  if (shard.records[position].address == 0) {
    return false;
  }
  *allocation = shard.records[position];
  shard.erase(position);
  return true;
}

BytesPerDevice PointerTable::take_context(std::uint64_t context) {
  BytesPerDevice taken;
  for (Shard& shard : shards_) {
    const Locked lock(shard.lock);
    for (std::size_t i = 0; i < shard.capacity;) {
      const Allocation& record = shard.records[i];
      if (record.address == 0 || record.context != context || record.device >= VGPU_MAX_DEVICES) {
        ++i;
        continue;
      }
      taken.bytes[record.device] += record.bytes;
      shard.erase(i);  // another record may have moved here: look again
    }
  }
  return taken;
}

void PointerTable::clear() {
  for (Shard& shard : shards_) {
    if (shard.records != nullptr) {
      sys::unmap(shard.records, shard.capacity * sizeof(Allocation));
    }
    shard.records = nullptr;
    shard.capacity = 0;
    shard.count = 0;
    shard.lock.unlock();
  }
}

}  // namespace vgpu::limiter
