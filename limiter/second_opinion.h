#ifndef VGPU_LIMITER_SECOND_OPINION_H
#define VGPU_LIMITER_SECOND_OPINION_H

#include <cstdint>

#include "limiter/sys.h"

namespace vgpu::limiter {

// A process may close our descriptor (closefrom) and so lose its lock while it lives and holds
// memory. True when process `pid` of our own pid namespace still is the one that registered at
// `registered` (CLOCK_BOOTTIME, ns) and still maps `file`, as far as /proc shows.
bool still_alive(std::uint32_t pid, std::uint64_t registered, const sys::FileId& file);

}  // namespace vgpu::limiter

#endif
