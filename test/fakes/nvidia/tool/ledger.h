#pragma once

#include <string>

#include "test/fakes/nvidia/state/state.h"

namespace vgpu::sim {

// The ledger as text for people, or as one JSON object: cards, groups with their used and peak
// bytes per card, processes.
std::string print_ledger(State& state, bool json);

}  // namespace vgpu::sim
