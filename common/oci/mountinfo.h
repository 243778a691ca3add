#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

// The text of /proc/<pid>/mountinfo (proc(5)). Paths in it were chosen by whoever made the mounts.
namespace vgpu::oci {

struct Mount {
  std::uint64_t id = 0;
  std::uint64_t parent = 0;
  std::string root;   // which part of its file system is mounted, escapes undone
  std::string point;  // where, as seen from the reading process's root, escapes undone
  std::string type;   // of the file system
};

inline constexpr std::size_t kMaxMountinfoBytes = std::size_t{8} << 20U;

// One entry a line, in the order of the text: a later mount at the same point covers an earlier
// one. kInvalidArgument for a line that is not of this form, or for more than 32,768 of them.
Result<std::vector<Mount>> parse_mountinfo(std::string_view text);

}  // namespace vgpu::oci
