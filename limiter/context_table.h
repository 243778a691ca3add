// The live contexts of this process, each with what it was charged. A context's serial number marks
// its allocations: handles are reused by the driver, serial numbers are not.
#ifndef VGPU_LIMITER_CONTEXT_TABLE_H
#define VGPU_LIMITER_CONTEXT_TABLE_H

#include <cstddef>
#include <cstdint>

#include "limiter/spin_lock.h"

namespace vgpu::limiter {

struct ContextRecord {
  const void* handle = nullptr;  // nullptr = not known yet
  std::uint64_t serial = 0;      // 0 = no context
  std::uint64_t bytes = 0;       // as charged
  std::uint32_t device = 0;      // index in the host page
  int ordinal = 0;               // the driver's number of the device
  bool primary = false;
};

class ContextTable {
 public:
  // Keeps `record` under a new serial number, which is returned; 0 when the table is full, or when
  // the device has a primary context already and `record` is another.
  std::uint64_t add(const ContextRecord& record);
  // Puts back what take gave.
  void put_back(const ContextRecord& record);
  void set_handle(std::uint64_t serial, const void* handle);

  bool find(const void* handle, ContextRecord* record);
  bool find_primary(int ordinal, ContextRecord* record);
  bool take(std::uint64_t serial, ContextRecord* record);
  // Forgets everything, in the child of a fork.
  void clear();

 private:
  static constexpr std::size_t kCapacity = 1024;

  SpinLock lock_;
  std::uint64_t last_serial_ = 0;
  std::size_t end_ = 0;  // records beyond it were never used
  ContextRecord records_[kCapacity];
};

}  // namespace vgpu::limiter

#endif
