#include "test/fakes/nvidia/tool/ledger.h"

#include <memory>
#include <sstream>
#include <vector>

#include <nlohmann/json.hpp>

namespace vgpu::sim {
namespace {

using Json = nlohmann::ordered_json;

const char* name(uint32_t state) {
  return state == kProcessDead ? "dead" : "alive";
}

Json process_row(const State& state, unsigned slot, const StateFile& file) {
  const Process& process = file.processes[slot];
  Json cards = Json::array();
  uint64_t used = 0;
  for (unsigned card = 0; card < file.card_count; ++card) {
    const Amounts& held = process.held[card];
    used += held.sum();
    cards.push_back(
        {{"contexts", held.contexts}, {"modules", held.modules}, {"memory", held.memory}});
  }
  pid_t owner = state.owner(slot);
  return {{"slot", slot},
          {"pid", owner > 0 ? owner : 0},
          {"pid_inside", process.pid},
          {"pid_namespace", process.pid_namespace},
          {"command", process.command},
          {"state", name(process.state)},
          {"group", file.groups[process.group].label},
          {"used", used},
          {"cards", cards}};
}

Json to_json(const State& state, const StateFile& file) {
  Json all;
  all["driver_version"] = file.options.driver_version;
  all["cuda_version"] = file.options.cuda_version;
  all["repaired"] = file.repaired;
  all["cards"] = Json::array();
  for (unsigned i = 0; i < file.card_count; ++i) {
    const Card& card = file.cards[i];
    all["cards"].push_back({{"index", i},
                            {"name", card.name},
                            {"uuid", card.uuid},
                            {"minor", card.minor},
                            {"total", card.total},
                            {"reserved", card.reserved},
                            {"used", card.used},
                            {"peak", card.peak},
                            {"busy_ns", card.busy_ns}});
  }
  std::vector<unsigned> processes(kMaxGroups);
  all["processes"] = Json::array();
  for (unsigned slot = 0; slot < kMaxProcesses; ++slot) {
    if (file.processes[slot].state == kProcessFree)
      continue;
    ++processes[file.processes[slot].group];
    all["processes"].push_back(process_row(state, slot, file));
  }
  all["groups"] = Json::array();
  for (unsigned i = 0; i < kMaxGroups; ++i) {
    const Group& group = file.groups[i];
    if (group.in_use == 0)
      continue;
    all["groups"].push_back(
        {{"group", group.label},
         {"cgroup", group.cgroup},
         {"mount_namespace", group.mount_namespace},
         {"pid_namespace", group.pid_namespace},
         {"processes", processes[i]},
         {"used", std::vector<uint64_t>(group.used, group.used + file.card_count)},
         {"peak", std::vector<uint64_t>(group.peak, group.peak + file.card_count)}});
  }
  return all;
}

std::string mib(uint64_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

std::string to_text(const Json& all) {
  std::ostringstream out;
  out << "driver " << all["driver_version"].get<std::string>() << "\n";
  for (const Json& card : all["cards"])
    out << "card " << card["index"] << "  " << card["uuid"].get<std::string>() << "  "
        << card["name"].get<std::string>() << "  used " << mib(card["used"]) << " of "
        << mib(card["total"]) << ", peak " << mib(card["peak"]) << "\n";
  for (const Json& group : all["groups"]) {
    out << "group " << group["group"].get<std::string>() << "  processes " << group["processes"];
    for (size_t card = 0; card < group["used"].size(); ++card)
      out << "  card " << card << ": used " << mib(group["used"][card]) << ", peak "
          << mib(group["peak"][card]);
    out << "\n";
  }
  for (const Json& process : all["processes"])
    out << "process " << process["pid"] << " (inside: " << process["pid_inside"] << ")  "
        << process["command"].get<std::string>() << "  " << process["state"].get<std::string>()
        << "  group " << process["group"].get<std::string>() << "  used " << mib(process["used"])
        << "\n";
  return out.str();
}

}  // namespace

std::string print_ledger(State& state, bool json) {
  state.refresh(true);
  auto copy = std::make_unique<StateFile>();
  {
    State::Guard guard(state);
    *copy = state.file();
  }
  Json all = to_json(state, *copy);
  return json ? all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : to_text(all);
}

}  // namespace vgpu::sim
