#include "runtime-wrapper/start.h"

#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <string_view>

#include "common/base/file.h"
#include "common/base/text.h"
#include "common/oci/container_state.h"
#include "common/oci/substitution.h"

namespace vgpu::runtime {
namespace {

constexpr std::size_t kMaxRuntimeStateBytes = std::size_t{16} << 20U;
constexpr std::size_t kMaxIdWords = 8;  // of a command line that are tried as ids
constexpr std::size_t kMaxPidBytes = 64;

// A container of which a command speaks, as far as we know it.
struct Known {
  NextRuntime low_level;
  std::string root;
  std::string key;  // empty if the id is none
  std::optional<oci::ContainerState> state;
};

Result<Known> look_up(const Context& context, const std::string& id) {
  Known known;
  TRY(known.low_level, low_level_runtime(context), "hand over");
  known.root = runtime_root(context, known.low_level.path);
  known.key = oci::container_key(id, known.root).value_or("");
  if (known.key.empty())
    return known;
  auto state = oci::load(context.paths.run, known.key);
  if (state) {
    known.state = std::move(*state);
  } else if (state.error().code != Code::kNotFound) {
    return fail(state.error());
  }
  return known;
}

// The runtime that made the container, unless it would only hand on to the one we start directly.
NextRuntime next_of(const Context& context, const Known& known) {
  // Below NVIDIA's runtime there is only one way on.
  if (context.stage > 0 || !known.state || known.state->runtime.empty() ||
      known.state->runtime == known.low_level.path ||
      nvidia_starts(context, known.low_level.path)) {
    return known.low_level;
  }
  const auto path = find_program({known.state->runtime});
  return path ? NextRuntime{*path, true} : known.low_level;
}

std::string name_of(const oci::ContainerState& state) {
  if (state.pod_name.empty())
    return "container '" + state.id + "'";
  return "pod '" + state.pod_name + "', container '" + state.container_name + "'";
}

// The low-level runtime remembers the mounts of its containers: ours, if it was one of ours.
Status check_never_ours(const Context& context, const Known& known) {
  if (known.key.empty())
    return {};
  const std::string mark = oci::container_directory(context.paths.run, known.key);
  for (const std::string_view name : {"state.json", "status", "config.json"}) {
    const std::string path = known.root + "/" + context.arguments.id + "/" + std::string(name);
    const auto text = read_file(path, kMaxRuntimeStateBytes, Owner::kAnyone);
    if (!text || text->find(mark) == std::string::npos)
      continue;
    return fail(Code::kPermission,
                "the state of GPU container '" + context.arguments.id + "' is gone ('" +
                    oci::state_path(context.paths.run, known.key) +
                    "' was removed), so it cannot be limited; deleting it and creating it again "
                    "helps");
  }
  return {};
}

Result<pid_t> read_pid(const oci::ContainerState& state) {
  if (state.pid_file.empty()) {
    return fail(Code::kInvalidArgument,
                "the container was created without '--pid-file', so its process cannot be found");
  }
  TRY(const std::string text, read_file(state.pid_file, kMaxPidBytes, Owner::kAnyone),
      "find process");
  const auto pid = to_unsigned(trim(text));
  if (!pid || *pid <= 1 || *pid > INT32_MAX) {
    return fail(Code::kInvalidArgument, "'" + state.pid_file + "' holds no process id");
  }
  return static_cast<pid_t>(*pid);
}

Status substitute(const Context& context, const oci::ContainerState& state) {
  if (!context.config)
    return fail(context.config.error());
  TRY(const pid_t pid, read_pid(state), "find process");
  return oci::substitute_in_container(state, pid, context.config->library_dir);
}

}  // namespace

Result<NextRuntime> start(const Context& context) {
  TRY(Known known, look_up(context, context.arguments.id), "start");
  if (!known.state) {
    if (auto checked = check_never_ours(context, known); !checked)
      return fail(checked.error());
    return known.low_level;
  }
  oci::ContainerState& state = *known.state;
  if (state.phase != oci::Phase::kSubstituted) {
    TRY_STATUS(substitute(context, state), name_of(state) + ": put the limiter in place");
    state.phase = oci::Phase::kSubstituted;
    TRY_STATUS(oci::save(state, context.paths.run), name_of(state));
  }
  return next_of(context, known);
}

Result<NextRuntime> exec_into(const Context& context) {
  TRY(const Known known, look_up(context, context.arguments.id), "exec");
  if (!known.state) {
    if (auto checked = check_never_ours(context, known); !checked)
      return fail(checked.error());
    return known.low_level;
  }
  if (known.state->phase != oci::Phase::kSubstituted) {
    return fail(Code::kPermission, name_of(*known.state) +
                                       ": exec refused before the container has been started: "
                                       "the limiter is not in place yet; 'start' puts it there");
  }
  return next_of(context, known);
}

Result<NextRuntime> remove(const Context& context) {
  auto known = look_up(context, context.arguments.id);
  if (!known) {
    // A damaged state must not keep a container from being deleted.
    TRY(const NextRuntime low_level, low_level_runtime(context), "delete");
    return low_level;
  }
  struct stat status {};
  const std::string theirs = known->root + "/" + context.arguments.id;
  if (!known->key.empty() && ::lstat(theirs.c_str(), &status) != 0 && errno == ENOENT) {
    // What cannot be removed now is collected later; the container must go all the same.
    static_cast<void>(oci::remove_container(context.paths.run, known->key));
  }
  return next_of(context, *known);
}

Result<NextRuntime> forward(const Context& context) {
  TRY(const NextRuntime low_level, low_level_runtime(context), "hand over");
  std::size_t tried = 0;
  for (const std::string& word : context.arguments.words) {
    if (++tried > kMaxIdWords)
      break;
    const auto known = look_up(context, word);
    if (known && known->state)
      return next_of(context, *known);
  }
  return low_level;
}

}  // namespace vgpu::runtime
