#pragma once

#include <sys/capability.h>

#include <array>
#include <span>

#include "common/base/result.h"

// What a process needs while it touches what containers control. Everything else it gives up first.
namespace vgpu::oci {

// Entering a mount namespace, mounting there, and reading what a container's root may hide from
// everybody else.
inline constexpr std::array<cap_value_t, 3> kSubstitutionCapabilities = {
    CAP_SYS_ADMIN,        // setns, open_tree, move_mount, mount_setattr
    CAP_SYS_CHROOT,       // setns into a mount namespace, chroot to the container's root
    CAP_DAC_READ_SEARCH,  // directories of the image that only its own users may enter
};

// Gives up every other capability of the calling thread, also for programs it would execute. One
// that the caller does not have stays absent.
Status keep_capabilities(std::span<const cap_value_t> kept);

// From now on the calling thread can make only the system calls of a substitution; any other one
// ends the process. For good. Builds with sanitizers, which make calls of their own, stay
// unrestricted.
Status keep_substitution_calls();

}  // namespace vgpu::oci
