#pragma once

#include <chrono>

namespace vgpu {

// The seam through which our programs ask for time. Deadlines use `monotonic`, texts for people use
// `wall`.
class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;

  virtual std::chrono::nanoseconds monotonic() const = 0;
  virtual std::chrono::system_clock::time_point wall() const = 0;
};

class RealClock final : public Clock {
 public:
  std::chrono::nanoseconds monotonic() const override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
  std::chrono::system_clock::time_point wall() const override {
    return std::chrono::system_clock::now();
  }
};

}  // namespace vgpu
