#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "runtime-wrapper/arguments.h"
#include "runtime-wrapper/config.h"

namespace vgpu::runtime {

// Where things lie on the node. Fixed in the program; tests point elsewhere.
struct Paths {
  std::string config = "/etc/vgpu/runtime.toml";
  std::string trust = "/etc/vgpu/trust.d";
  std::string run = "/run/vgpu";
  std::string nvidia_config = "/etc/nvidia-container-runtime/config.toml";
  std::string hook = VGPU_LIBEXEC_DIR "/vgpu-hook";

  std::string node() const { return run + "/node"; }
  std::string pods() const { return run + "/pods"; }
};

// One invocation: what it was asked, and what it may look at. A broken configuration is kept as its
// error, because containers without a GPU must not suffer from it.
struct Context {
  Arguments arguments;
  Paths paths;
  Result<Config> config;
  const Clock& clock;
  int stage = 0;  // how often this program has been passed on the way here
};

}  // namespace vgpu::runtime
