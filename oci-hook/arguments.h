#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/oci/container_state.h"

namespace vgpu::hook {

enum class Phase {
  kCreateContainer,  // `run`: the substitution, in the container's mount namespace before the root
                     // is changed
  kPoststop,         // the container is gone
};

struct Arguments {
  Phase phase = Phase::kPoststop;
  std::string key;
  oci::FileIdentity private_directory;  // create-container only
  // Both absent: they are read from the container's state, which a user namespace cannot.
  std::optional<std::vector<std::uint32_t>> device_minors;
  std::optional<std::string> library_path;
  std::string library_directory;  // where the limiter is installed
  std::string run_directory;
  std::string log;  // file for one JSON line on error, may be empty
};

// vgpu-hook poststop --key K [--run-directory DIR] [--log FILE]
// vgpu-hook create-container --key K --private DEVICE:INODE [--minors N,...] [--library-path PATHS]
//           [--library-directory DIR] [--run-directory DIR] [--log FILE]
// kInvalidArgument for anything else.
Result<Arguments> parse_arguments(const std::vector<std::string>& arguments);

}  // namespace vgpu::hook
