#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "test/fakes/nvidia/state/state.h"
#include "test/fakes/nvidia/tool/ledger.h"
#include "test/fakes/nvidia/tool/scenario.h"

namespace vgpu::sim {
namespace {

constexpr char kUsage[] =
    "usage: nvidia-sim init --scenario FILE STATE\n"
    "       nvidia-sim ledger [--json] STATE\n"
    "       nvidia-sim peak GROUP CARD STATE     peak bytes of a group on a card\n"
    "       nvidia-sim reset-peaks STATE\n"
    "       nvidia-sim set KEY VALUE STATE       keys: free_delay_ms nvml_lag_ms launch_cost_ns "
    "queue_depth context_mib module_mib\n";

// Written under another name and renamed, so that nobody maps half a file. Nobody keeps an old one
// by accident: it is a new file.
Status write_state(const std::string& path, const StateFile& file) {
  std::string temporary = path + ".new";
  int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0)
    return fail(system_error("open '" + temporary + "'", errno));
  bool written =
      fchmod(fd, 0666) == 0 && write(fd, &file, sizeof file) == static_cast<ssize_t>(sizeof file);
  int error = errno;
  close(fd);
  if (!written)
    return fail(system_error("write '" + temporary + "'", error));
  if (rename(temporary.c_str(), path.c_str()) != 0)
    return fail(system_error("rename '" + temporary + "'", errno));
  return {};
}

Status init(const std::string& scenario, const std::string& path) {
  auto file = std::make_unique<StateFile>();
  TRY_STATUS(load_scenario(scenario, *file), "init");
  State::initialize(*file);
  return write_state(path, *file);
}

// Kept for good: a state is never closed in a process that uses it. Volatile, so that it is seen to be kept.
State* volatile kept_state = nullptr;

Result<State*> open_state(const std::string& path) {
  State* state = State::open(path.c_str());
  if (state == nullptr)
    return fail(system_error("open state '" + path + "'", errno));
  kept_state = state;
  return state;
}

Status ledger(const std::string& path, bool json) {
  TRY(State * state, open_state(path), "ledger");
  std::string text = print_ledger(*state, json);
  fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

Status peak(const std::string& label, const std::string& card, const std::string& path) {
  TRY(State * state, open_state(path), "peak");
  unsigned long index = strtoul(card.c_str(), nullptr, 10);
  State::Guard guard(*state);
  for (const Group& group : state->file().groups) {
    if (group.in_use == 0 || label != group.label || index >= kMaxCards)
      continue;
    printf("%llu\n", static_cast<unsigned long long>(group.peak[index]));
    return {};
  }
  return fail(Code::kNotFound, "peak: no group '" + label + "' in '" + path + "'");
}

Status set(const std::string& key, const std::string& value, const std::string& path) {
  TRY(State * state, open_state(path), "set");
  State::Guard guard(*state);
  Options& options = state->file().options;
  const struct {
    const char* key;
    uint64_t* value;
    uint64_t unit;
  } rows[] = {
      {"free_delay_ms", &options.free_delay_ms, 1},
      {"nvml_lag_ms", &options.nvml_lag_ms, 1},
      {"launch_cost_ns", &options.launch_cost_ns, 1},
      {"queue_depth", &options.queue_depth, 1},
      {"context_mib", &options.context_bytes, 1 << 20},
      {"module_mib", &options.module_bytes, 1 << 20},
  };
  for (const auto& row : rows) {
    if (key != row.key)
      continue;
    char* end = nullptr;
    uint64_t parsed = strtoull(value.c_str(), &end, 10);
    if (value.empty() || *end != '\0')
      return fail(Code::kInvalidArgument, "set: '" + value + "' is not a number");
    *row.value = parsed * row.unit;
    return {};
  }
  return fail(Code::kInvalidArgument, "set: key '" + key + "' is not known");
}

Status reset_peaks(const std::string& path) {
  TRY(State * state, open_state(path), "reset-peaks");
  state->reset_peaks();
  return {};
}

Status run(const std::vector<std::string>& words) {
  size_t count = words.size();
  if (count == 4 && words[0] == "init" && words[1] == "--scenario")
    return init(words[2], words[3]);
  if (count == 2 && words[0] == "ledger")
    return ledger(words[1], false);
  if (count == 3 && words[0] == "ledger" && words[1] == "--json")
    return ledger(words[2], true);
  if (count == 4 && words[0] == "peak")
    return peak(words[1], words[2], words[3]);
  if (count == 2 && words[0] == "reset-peaks")
    return reset_peaks(words[1]);
  if (count == 4 && words[0] == "set")
    return set(words[1], words[2], words[3]);
  return fail(Code::kInvalidArgument, kUsage);
}

}  // namespace
}  // namespace vgpu::sim

int main(int argc, char** argv) {
  vgpu::Status status = vgpu::sim::run(std::vector<std::string>(argv + 1, argv + argc));
  if (status)
    return 0;
  fprintf(stderr, "nvidia-sim: %s\n", status.error().message.c_str());
  return 1;
}
