#pragma once

#include <optional>
#include <string>
#include <vector>

namespace vgpu::fakes {

// What NVIDIA's runtime looks at in its command line; nothing else is parsed.
struct Arguments {
  bool create = false;  // any element equal to "create", except directly after -b/--bundle
  std::string bundle = ".";
  std::optional<std::string> log;  // its own lines go to the low-level runtime's log
};

Arguments read_arguments(const std::vector<std::string>& argv);

}  // namespace vgpu::fakes
