#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"

// Questions to an OCI runtime specification, and the smallest changes to it. The specification is
// the tenant's word in many places: whatever has another type than it should counts as absent.
namespace vgpu::oci {

std::optional<std::string> annotation(const Json& spec, std::string_view key);
void remove_annotations(Json& spec, const std::function<bool(std::string_view key)>& chosen);

// process.env. Of several entries with one name the last counts, as it does for the runtimes.
std::optional<std::string> environment(const Json& spec, std::string_view name);
// Sets every entry of that name, or appends one.
void set_environment(Json& spec, std::string_view name, std::string_view value);
void remove_environment(Json& spec, const std::function<bool(std::string_view name)>& chosen);

std::string cgroups_path(const Json& spec);
bool has_user_namespace(const Json& spec);

// Minor numbers of the NVIDIA cards (character devices 195:0 to 195:253) in linux.devices,
// ascending, each once.
std::vector<std::uint32_t> card_minors(const Json& spec);
// Whether the device rules of linux.resources open every card: what a privileged container gets.
bool opens_every_card(const Json& spec);

// Whether something before us has put NVIDIA's parts in: a library mount of the driver or a hook of
// the toolkit.
bool has_driver_mount(const Json& spec);
bool has_toolkit_hook(const Json& spec);

}  // namespace vgpu::oci
