#pragma once

#include <vector>

#include "test/fakes/nvidia-container-runtime/config.h"
#include "test/fakes/nvidia-container-runtime/selection.h"
#include "test/fakes/nvidia-container-runtime/spec_schema.h"

namespace vgpu::fakes {

// What each mode does to the spec. Legacy appends a prestart hook that works inside the container's
// mount namespace; the cdi modes write everything into the spec and append createContainer hooks.
void edit_for_legacy(Json* spec, const std::vector<Gpu>& gpus);
void edit_for_cdi(Json* spec, const std::vector<Gpu>& gpus, const Config& config);

inline constexpr const char* kHookPath = "/usr/bin/nvidia-container-runtime-hook";
inline constexpr const char* kCdiHookPath = "/usr/bin/nvidia-cdi-hook";

// Device rules of cgroup v1 are written by the legacy hook; v2 has no file to write to, so they go
// into the spec.
bool has_device_cgroup_v1();

}  // namespace vgpu::fakes
