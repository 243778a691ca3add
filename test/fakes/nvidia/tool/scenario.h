#pragma once

#include <string>

#include "common/base/result.h"
#include "test/fakes/nvidia/state/layout.h"

namespace vgpu::sim {

// Fills cards, options and rules from a scenario file (TOML). Unknown keys and values out of range
// are errors that name them.
Status load_scenario(const std::string& path, StateFile& file);

}  // namespace vgpu::sim
