// Text without allocation: a buffer that is filled from left to right and cut off when full.
#ifndef VGPU_LIMITER_TEXT_H
#define VGPU_LIMITER_TEXT_H

#include <cstddef>
#include <cstdint>

namespace vgpu::limiter {

template <std::size_t kSize>
class Text {
 public:
  Text& operator<<(const char* text) {
    while (*text != '\0') {
      put(*text++);
    }
    return *this;
  }
  Text& operator<<(std::uint64_t number) {
    char digits[20];
    std::size_t count = 0;
    do {
      digits[count++] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    while (count > 0) {
      put(digits[--count]);
    }
    return *this;
  }
  const char* c_str() {
    buffer_[length_] = '\0';
    return buffer_;
  }
  std::size_t size() const { return length_; }

 private:
  void put(char c) {
    if (length_ + 1 < kSize) {
      buffer_[length_++] = c;
    }
  }
  char buffer_[kSize];
  std::size_t length_ = 0;
};

}  // namespace vgpu::limiter

#endif
