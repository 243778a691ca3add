#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "common/base/result.h"

// The OCI runtime specification as NVIDIA's runtime (1.18 and later) decodes and encodes it:
// through fixed structures.
namespace vgpu::fakes {

using Json = nlohmann::ordered_json;

// A container spec read into those structures and written back. Refuses a field the structures do
// not have and a value of the wrong kind; drops empty lists, maps, strings and numbers whose
// structure field says "omitempty".
Result<Json> strict_round_trip(const Json& spec);

}  // namespace vgpu::fakes
