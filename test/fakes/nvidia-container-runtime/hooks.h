#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"

namespace vgpu::fakes {

// nvidia-container-runtime-hook prestart: enters the container's mount namespace (root not yet
// changed), mounts the driver's libraries and devices, makes the links, allows the devices.
Status run_legacy_hook();

// nvidia-cdi-hook create-symlinks | update-ldcache: runs in the container's namespaces, the host's
// root still visible.
Status run_cdi_hook(const std::vector<std::string>& arguments);

}  // namespace vgpu::fakes
