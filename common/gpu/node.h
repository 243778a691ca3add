#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/base/units.h"

namespace vgpu::gpu {

enum class ToolkitMode { kLegacy, kCdi };

struct NodeCard {
  std::string uuid;
  std::uint32_t minor = 0;  // /dev/nvidia<minor>
  Bytes context;            // memory of one empty context, measured
};

// What the device plugin says of this node (/run/vgpu/node).
struct NodeFacts {
  std::string name;
  std::string runtime;  // low-level runtime, absolute; empty if not said
  ToolkitMode toolkit_mode = ToolkitMode::kLegacy;
  std::vector<NodeCard> cards;

  const NodeCard* find(std::string_view uuid) const;
};

// kNotFound if there is no such file; kPermission if it is not root's own.
Result<NodeFacts> load_node(const std::string& path);

}  // namespace vgpu::gpu
