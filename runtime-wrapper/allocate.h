#pragma once

#include <optional>

#include "common/base/json.h"
#include "common/gpu/allocation.h"
#include "common/gpu/node.h"
#include "runtime-wrapper/context.h"
#include "runtime-wrapper/pod.h"

namespace vgpu::runtime {

// The pod's allocation, believed: signed by a key this node trusts, made for this pod and this
// node, not older than what the node has already verified. From the annotations, else from the
// pod's record; if there is none and `wait` is set, waits for the record as long as the
// configuration says. kUnavailable: not yet allocated.
Result<gpu::Allocation> verified_allocation(const Context& context, const Json& spec,
                                            const PodIdentity& pod, const gpu::NodeFacts& node,
                                            bool wait);

}  // namespace vgpu::runtime
