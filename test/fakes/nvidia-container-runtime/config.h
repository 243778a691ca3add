#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"

namespace vgpu::fakes {

struct Gpu {
  std::string uuid;
  unsigned minor = 0;
};

// What the real runtime asks the driver for; the stand-in reads it from a file that the node rig
// writes.
struct Inventory {
  std::string log;  // every invocation is appended here, one JSON line each; empty = nowhere
  std::string library_directory;         // where the driver's libraries lie on the node
  std::string driver_version;            // its libraries are the files *.so.<driver_version>
  std::vector<std::string> extra_files;  // also mounted read-write: the simulator's state
  std::vector<Gpu> gpus;
};

// /etc/nvidia-container-runtime/config.toml, the keys the stand-in knows.
struct Config {
  std::string mode = "auto";
  std::vector<std::string> runtimes = {"runc", "crun"};
  std::vector<std::string> annotation_prefixes = {"cdi.k8s.io/"};
  std::string default_kind = "nvidia.com/gpu";
  bool env_when_unprivileged = true;
  bool volume_mounts = false;
  Inventory inventory;
};

inline constexpr const char* kConfigPath = "/etc/nvidia-container-runtime/config.toml";
inline constexpr const char* kInventoryPath = "/etc/nvidia-container-runtime/stand-in.toml";

// A missing config file means defaults, as with the real one; a broken one is an error.
Result<Config> load_config();

}  // namespace vgpu::fakes
