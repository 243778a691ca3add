#include "limiter/context_table.h"

namespace vgpu::limiter {

std::uint64_t ContextTable::add(const ContextRecord& record) {
  const Locked lock(lock_);
  std::size_t place = end_;
  for (std::size_t i = 0; i < end_; ++i) {
    const ContextRecord& other = records_[i];
    if (other.serial != 0 && record.primary && other.primary && other.ordinal == record.ordinal) {
      return 0;
    }
    if (other.serial == 0 && place == end_) {
      place = i;
    }
  }
  if (place == kCapacity) {
    return 0;
  }
  end_ += place == end_ ? 1 : 0;
  records_[place] = record;
  records_[place].serial = ++last_serial_;
  return last_serial_;
}

void ContextTable::put_back(const ContextRecord& record) {
  const Locked lock(lock_);
  for (std::size_t i = 0; i < kCapacity; ++i) {
    if (i == end_ || records_[i].serial == 0) {
      records_[i] = record;
      end_ += i == end_ ? 1 : 0;
      return;
    }
  }
}

void ContextTable::set_handle(std::uint64_t serial, const void* handle) {
  const Locked lock(lock_);
  for (std::size_t i = 0; i < end_; ++i) {
    if (records_[i].serial == serial) {
      records_[i].handle = handle;
    }
  }
}

bool ContextTable::find(const void* handle, ContextRecord* record) {
  const Locked lock(lock_);
  for (std::size_t i = 0; i < end_; ++i) {
    if (records_[i].serial != 0 && handle != nullptr && records_[i].handle == handle) {
      *record = records_[i];
      return true;
    }
  }
  return false;
}

bool ContextTable::find_primary(int ordinal, ContextRecord* record) {
  const Locked lock(lock_);
  for (std::size_t i = 0; i < end_; ++i) {
    if (records_[i].serial != 0 && records_[i].primary && records_[i].ordinal == ordinal) {
      *record = records_[i];
      return true;
    }
  }
  return false;
}

bool ContextTable::take(std::uint64_t serial, ContextRecord* record) {
  const Locked lock(lock_);
  for (std::size_t i = 0; i < end_; ++i) {
    if (serial != 0 && records_[i].serial == serial) {
      *record = records_[i];
      records_[i] = ContextRecord{};
      return true;
    }
  }
  return false;
}

void ContextTable::clear() {
  for (std::size_t i = 0; i < end_; ++i) {
    records_[i] = ContextRecord{};
  }
  end_ = 0;
  lock_.unlock();
}

}  // namespace vgpu::limiter
