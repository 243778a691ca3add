#include "runtime-wrapper/start.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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
constexpr std::size_t kMaxProcBytes = 64 * 1024;
constexpr std::size_t kMaxIdWords = 8;

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
  if (!known.state || known.state->runtime.empty() ||
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

// What the last part of a process's cgroup is called: "<id>" or, under systemd,
// "<prefix>-<id>.scope".
std::string cgroup_leaf(const oci::ContainerState& state) {
  if (state.cgroups_path.empty())
    return state.id;
  const auto parts = split(state.cgroups_path, ':');
  if (parts.size() == 3) {
    return (parts[1].empty() ? "" : std::string(parts[1]) + "-") + std::string(parts[2]) + ".scope";
  }
  return state.cgroups_path.substr(state.cgroups_path.rfind('/') + 1);
}

Status check_cgroup(const oci::ContainerState& state, pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/cgroup";
  TRY(const std::string text, read_file(path, kMaxProcBytes, Owner::kAnyone), "check process");
  const std::string leaf = cgroup_leaf(state);
  for (const std::string_view line : split(text, '\n')) {
    // crun puts the program one level further down.
    for (const std::string_view part : split(line, '/')) {
      if (part == leaf)
        return {};
    }
  }
  return fail(Code::kPermission, "process " + std::to_string(pid) + " of '" + state.pid_file +
                                     "' is not in the container's cgroup ('" + leaf + "')");
}

Result<pid_t> read_pid(const oci::ContainerState& state) {
  if (state.pid_file.empty()) {
    return fail(Code::kInvalidArgument,
                "the container was created without '--pid-file', so its process cannot be found");
  }
  TRY(const std::string text, read_file(state.pid_file, 64, Owner::kAnyone), "find process");
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
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process && errno != ENOSYS) {
    return fail(system_error("open process " + std::to_string(pid), errno));
  }
  if (auto checked = check_cgroup(state, pid); !checked)
    return checked;
  // The number has meant one process since the descriptor was opened, if that one still lives.
  pollfd ended{process.get(), POLLIN, 0};
  if (process && ::poll(&ended, 1, 0) != 0) {
    return fail(Code::kNotFound, "process " + std::to_string(pid) + " has ended");
  }
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
