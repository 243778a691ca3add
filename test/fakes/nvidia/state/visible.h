#pragma once

#include <vector>

#include "test/fakes/nvidia/state/state.h"

namespace vgpu::sim {

// The cards this process may see, in the node's order: those whose device node can be opened, or
// has no driver behind it; all, where the scenario says that device nodes do not count.
std::vector<unsigned> visible_cards(const State& node);

}  // namespace vgpu::sim
