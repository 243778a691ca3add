#pragma once

#include <string>
#include <vector>

#include "test/fakes/nvidia-container-runtime/config.h"
#include "test/fakes/nvidia-container-runtime/spec_schema.h"

namespace vgpu::fakes {

enum class Mode { kLegacy, kCdi, kJitCdi };

// The devices a container asks for, by NVIDIA's rules: annotations (cdi mode only) win over volume
// mounts, those over the environment. Names are as written: 'all', 'none', an index, a UUID, or a
// qualified 'vendor/class=name'. Empty = no wish, the container is not edited.
struct Selection {
  Mode mode = Mode::kLegacy;
  std::vector<std::string> names;
};

Selection select_devices(const Json& spec, const Config& config);

// The cards those names mean. 'none' means no card. A name nothing on the node answers to is an
// error.
Result<std::vector<Gpu>> resolve_devices(const Selection& selection, const Config& config);

}  // namespace vgpu::fakes
