#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"
#include "common/oci/container_state.h"

// The editing core: (specification, grant) → specification. Pure: no file, no clock, no
// environment.
namespace vgpu::oci {

enum class DeviceSelection {
  kVisibleDevices,  // the toolkit's legacy mode: UUIDs in NVIDIA_VISIBLE_DEVICES
  kCdi,             // its other modes: an annotation
};

// What one container gets, and where its parts lie on the host.
struct ContainerGrant {
  std::vector<std::string> uuids;
  std::vector<std::uint32_t> minors;      // of the same cards
  std::vector<std::string> capabilities;  // of the driver
  bool graphics_allowed = false;          // by the administrator
  DeviceSelection selection = DeviceSelection::kVisibleDevices;
  std::string key;
  std::string container_directory;  // absolute
  FileIdentity private_directory;   // its identity
  std::string hook_path;            // absolute
  bool substitute_by_hook = false;  // for `run`, which has no separate `start`
  std::string library_directory;    // where the limiter lies, for that hook
  std::string log;                  // absolute, where that hook says what went wrong; may be empty
};

struct SpecEdit {
  std::string_view name;  // for messages and documents
  Status (*apply)(Json& spec, const ContainerGrant& grant);
};

// In the order in which they are applied.
std::span<const SpecEdit> spec_edits();

// All edits. Applied to its own result it changes nothing.
Result<Json> edit_spec(Json spec, const ContainerGrant& grant);

// Whether the engine has already put exactly the granted cards in, so that NVIDIA's runtime has
// nothing left to do.
bool carries_granted_cards(const Json& spec, const ContainerGrant& grant);

// Whether the specification has our mount of that directory and our poststop hook of that key.
bool carries_our_edits(const Json& spec, std::string_view key, std::string_view directory);

}  // namespace vgpu::oci
