#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace vgpu::gpu {

// What the device plugin has verified for one pod of this node.
struct Record {
  std::uint64_t generation = 0;  // highest verified so far
  std::string allocation;        // text
  std::string signature;
};

// <pods_directory>/<pod_uid>. kNotFound if there is none; kPermission if it is not root's own.
Result<Record> load_record(const std::string& pods_directory, std::string_view pod_uid);

}  // namespace vgpu::gpu
