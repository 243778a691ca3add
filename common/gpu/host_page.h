#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "api/limiter/host.h"
#include "api/limiter/usage.h"
#include "common/base/result.h"
#include "common/gpu/allocation.h"
#include "common/gpu/node.h"

// The two files of a container directory, as bytes: api/limiter/host.h and usage.h.
namespace vgpu::gpu {

// One copy of the page for this container's share; generation and checksum are left for publish.
vgpu_host_copy host_copy(const ContainerAllocation& share, std::uint64_t allocation_generation,
                         const NodeFacts& node);

// The whole first page, generation 1 in copy 0 current.
vgpu_host_page first_host_page(const vgpu_host_copy& copy);

// Publishes a change to an existing page in place: fills the copy that is not current from the one
// that is, lets `change` edit it, and names it current last. kInvalidArgument if the page is not
// one of ours.
Status update_host_page(int fd, const std::function<void(vgpu_host_copy&)>& change);

// The usage file's first bytes; the rest of its VGPU_USAGE_SIZE bytes is zero.
std::string usage_header();

}  // namespace vgpu::gpu
