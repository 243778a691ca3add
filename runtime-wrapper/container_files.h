#pragma once

#include <string>

#include "common/base/result.h"
#include "common/gpu/allocation.h"
#include "common/gpu/node.h"
#include "common/oci/container_state.h"

namespace vgpu::runtime {

// Makes <run directory>/containers/<key> anew: `host`, `usage` and the empty slots of the driver.
// Everything in it may be read by anybody, `usage` written: the container's user is unknown and may
// be in a user namespace.
Result<oci::FileIdentity> make_container_directory(const std::string& run_directory,
                                                   const std::string& key,
                                                   const gpu::ContainerAllocation& share,
                                                   std::uint64_t allocation_generation,
                                                   const gpu::NodeFacts& node);

}  // namespace vgpu::runtime
