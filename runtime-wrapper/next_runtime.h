#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "runtime-wrapper/context.h"

namespace vgpu::runtime {

// The program that takes our place, by exec.
struct NextRuntime {
  std::string path;
  bool nvidia = false;  // keeps the count of passes, so that a loop back to us is seen
};

inline constexpr int kMaxStage = 3;

// How often this program has been passed on the way here, as VGPU_RUNTIME_STAGE says it.
std::optional<std::string> stage_in_environment();

// The first candidate that is an executable file and not this program (neither a link to it nor a
// copy of it). Names are looked up in fixed directories, never in PATH. kNotFound names what was
// tried.
Result<std::string> find_program(const std::vector<std::string>& candidates);

// runc or crun: by our configuration, else by the node's facts, else whichever is installed. Works
// without both files.
Result<NextRuntime> low_level_runtime(const Context& context);
Result<NextRuntime> nvidia_runtime(const Config& config);

// Whether NVIDIA's runtime would start the same program as we.
bool nvidia_starts(const Context& context, const std::string& low_level);

// The directory in which the low-level runtime keeps its containers: --root, else its default.
std::string runtime_root(const Context& context, const std::string& low_level);

// Replaces this process. The argument list goes on untouched, the environment but for the count of
// passes. Returns only on failure.
Error execute(const NextRuntime& next, int stage, char** argv);

}  // namespace vgpu::runtime
