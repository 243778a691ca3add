#pragma once

#include <compare>
#include <cstdint>

namespace vgpu {

struct Bytes {
  std::uint64_t count = 0;
  auto operator<=>(const Bytes&) const = default;
};

// Per cent of one card's compute time; 0 = unlimited.
struct Percent {
  std::uint32_t count = 0;
  auto operator<=>(const Percent&) const = default;
};

constexpr Bytes mebibytes(std::uint64_t count) {
  return Bytes{count << 20};
}

constexpr Bytes operator""_B(unsigned long long count) {
  return Bytes{count};
}
constexpr Bytes operator""_MiB(unsigned long long count) {
  return Bytes{count << 20};
}
constexpr Bytes operator""_GiB(unsigned long long count) {
  return Bytes{count << 30};
}

}  // namespace vgpu
