// A lock for a few instructions of our own, never held across a call of the driver. It lives in
// static memory, survives fork by being reset in the child, and yields instead of waiting on
// anything.
#ifndef VGPU_LIMITER_SPIN_LOCK_H
#define VGPU_LIMITER_SPIN_LOCK_H

#include <atomic>

#include "limiter/sys.h"

namespace vgpu::limiter {

class SpinLock {
 public:
  bool try_lock() { return !taken_.exchange(true, std::memory_order_acquire); }
  void lock() {
    while (!try_lock()) {
      sys::yield();
    }
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

class Locked {
 public:
  explicit Locked(SpinLock& lock) : lock_(lock) { lock_.lock(); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  Locked(Locked&&) = delete;
  Locked& operator=(Locked&&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace vgpu::limiter

#endif
