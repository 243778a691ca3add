#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace vgpu::runtime {

enum class ToolkitSetting { kAuto, kLegacy, kCdi };
enum class Unallocated { kVoid, kOthers };
enum class Privileged { kDeny, kPass };

// /etc/vgpu/runtime.toml. The defaults are those of a node without the file.
struct Config {
  std::vector<std::string> low_level_runtimes;  // empty: the node's facts, then runc, then crun
  std::vector<std::string> nvidia_runtimes = {"nvidia-container-runtime",
                                              "/usr/local/nvidia/toolkit/nvidia-container-runtime"};
  ToolkitSetting toolkit_mode = ToolkitSetting::kAuto;
  Unallocated unallocated = Unallocated::kVoid;
  std::vector<std::string> exempt_namespaces = {"vgpu-system"};
  Privileged privileged = Privileged::kDeny;
  bool graphics = false;
  std::chrono::milliseconds record_wait{10000};
  std::string library_dir = VGPU_LIBRARY_DIR;
};

// The file's settings over the defaults; no file is no setting. Errors name file and key, what was
// found and what is accepted. The file must be root's and closed to other writers.
Result<Config> load_config(const std::string& path);
Result<Config> parse_config(std::string_view text, const std::string& path);

// As a file that parse_config reads back, each key with its summary.
std::string print_config(const Config& config);

// `nvidia-container-runtime.runtimes` of NVIDIA's own configuration; its default if there is no
// such file or key.
std::vector<std::string> nvidia_low_level_runtimes(const std::string& path);

}  // namespace vgpu::runtime
