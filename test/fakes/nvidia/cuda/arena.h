#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace vgpu::sim {

// Device addresses: one reserved range of the process's address space, which nothing can touch
// until bytes are copied to or from it. Best fit, coalescing. Sizes are multiples of 512 bytes;
// from 2 MiB on, addresses are multiples of 2 MiB.
class Arena {
 public:
  static constexpr uint64_t kUnit = 512;
  static constexpr uint64_t kBlock = uint64_t{2} << 20;

  // 0 when the range is exhausted.
  uint64_t take(uint64_t size);
  // `touched`: it was made accessible, so its pages may hold something.
  void give_back(uint64_t address, uint64_t size, bool touched);
  // Lets the process read and write the bytes; they are zero where nothing was written. False when
  // the kernel refuses.
  static bool make_accessible(uint64_t address, uint64_t size);

 private:
  bool reserve();
  void insert(uint64_t address, uint64_t size);
  void remove(uint64_t address, uint64_t size);

  std::map<uint64_t, uint64_t> free_;                // address → size
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // size, address
  bool reserved_ = false;
};

}  // namespace vgpu::sim
