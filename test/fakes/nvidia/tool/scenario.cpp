#include "test/fakes/nvidia/tool/scenario.h"

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

namespace vgpu::sim {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
using Rows = std::map<std::string_view, std::function<bool(const toml::node&)>>;

template <size_t size>
auto text(char (&out)[size]) {
  return [&out](const toml::node& node) {
    auto value = node.value<std::string>();
    if (!value || value->empty() || value->size() >= size)
      return false;
    snprintf(out, size, "%s", value->c_str());
    return true;
  };
}

template <typename Integer>
auto number(Integer& out, uint64_t unit = 1) {
  return [&out, unit](const toml::node& node) {
    auto value = node.value<int64_t>();
    if (!value || *value < -1 || (*value < 0 && std::is_unsigned_v<Integer>) ||
        *value > (int64_t{1} << 40))
      return false;
    out = static_cast<Integer>(*value * static_cast<int64_t>(unit));
    return true;
  };
}

Status read_table(const toml::table& table, const Rows& rows, const std::string& where) {
  for (const auto& [key, node] : table) {
    auto row = rows.find(key.str());
    if (row == rows.end())
      return fail(Code::kInvalidArgument,
                  where + ": key '" + std::string(key.str()) + "' is not known");
    if (!row->second(node))
      return fail(Code::kInvalidArgument,
                  where + ": key '" + std::string(key.str()) + "' has a value that it cannot have");
  }
  return {};
}

Status read_gpu(const toml::table& table, Card& card, unsigned index) {
  std::string where = "gpu " + std::to_string(index);
  card.minor = index;
  card.numa_node = 0;
  card.capability_major = 8;
  card.capability_minor = 6;
  card.multiprocessors = 72;
  card.pci_device_id = 0x223610de;
  snprintf(card.bus_id, sizeof card.bus_id, "00000000:%02X:00.0", 0x3b + index);
  Rows rows = {
      {"name", text(card.name)},
      {"uuid", text(card.uuid)},
      {"pci_bus_id", text(card.bus_id)},
      {"pci_device_id", number(card.pci_device_id)},
      {"memory_mib", number(card.total, kMiB)},
      {"reserved_mib", number(card.reserved, kMiB)},
      {"multiprocessors", number(card.multiprocessors)},
      {"numa_node", number(card.numa_node)},
      {"minor", number(card.minor)},
      {"capability_major", number(card.capability_major)},
      {"capability_minor", number(card.capability_minor)},
  };
  TRY_STATUS(read_table(table, rows, where), "read scenario");
  if (card.name[0] == '\0' || card.uuid[0] == '\0' || card.total == 0)
    return fail(Code::kInvalidArgument, where + ": 'name', 'uuid' and 'memory_mib' are needed");
  if (card.reserved > card.total)
    return fail(Code::kInvalidArgument, where + ": 'reserved_mib' is more than 'memory_mib'");
  return {};
}

Status read_rule(const toml::table& table, StateFile& file) {
  if (file.rule_count == kMaxRules)
    return fail(Code::kExhausted, "more than " + std::to_string(kMaxRules) + " rules");
  Rule& rule = file.rules[file.rule_count++];
  Rows rows = {
      {"function", text(rule.function)},
      {"result", number(rule.result)},
      {"after", number(rule.after)},
      {"microseconds", number(rule.slow_us)},
  };
  TRY_STATUS(read_table(table, rows, "rule"), "read scenario");
  if (rule.function[0] == '\0')
    return fail(Code::kInvalidArgument, "rule: 'function' is needed");
  return {};
}

template <typename Read>
Status read_tables(const toml::node& node, const std::string& key, Read read) {
  const toml::array* tables = node.as_array();
  if (tables == nullptr)
    return fail(Code::kInvalidArgument, "key '" + key + "' must be an array of tables");
  for (const toml::node& element : *tables) {
    const toml::table* table = element.as_table();
    if (table == nullptr)
      return fail(Code::kInvalidArgument, "key '" + key + "' must be an array of tables");
    TRY_STATUS(read(*table), key);
  }
  return {};
}

void set_defaults(Options& options) {
  snprintf(options.driver_version, sizeof options.driver_version, "580.159.04");
  options.cuda_version = 13000;
  options.check_nodes = 1;
  options.context_bytes = 320 * kMiB;
  options.module_bytes = 20 * kMiB;
  options.block_bytes = 512;
  options.free_delay_ms = 300;
  options.queue_depth = 1024;
  options.serialize = 1;
}

}  // namespace

Status load_scenario(const std::string& path, StateFile& file) {
  toml::parse_result parsed = toml::parse_file(path);
  if (!parsed)
    return fail(Code::kInvalidArgument,
                "parse '" + path + "': " + std::string(parsed.error().description()));
  Options& options = file.options;
  set_defaults(options);
  Rows rows = {
      {"driver_version", text(options.driver_version)},
      {"cuda_version", number(options.cuda_version)},
      {"context_mib", number(options.context_bytes, kMiB)},
      {"module_mib", number(options.module_bytes, kMiB)},
      {"block_kib", number(options.block_bytes, 1024)},
      {"free_delay_ms", number(options.free_delay_ms)},
      {"nvml_lag_ms", number(options.nvml_lag_ms)},
      {"launch_cost_ns", number(options.launch_cost_ns)},
      {"queue_depth", number(options.queue_depth)},
      {"serialize", number(options.serialize)},
      {"device_nodes",
       [&](const toml::node& node) {
         auto value = node.value<std::string>();
         options.check_nodes = value == "check" ? 1 : 0;
         return value == "check" || value == "ignore";
       }},
  };
  toml::table top = std::move(parsed).table();
  for (const char* key : {"gpu", "fail", "slow"}) {
    const toml::node* node = top.get(key);
    if (node == nullptr)
      continue;
    auto read = [&](const toml::table& table) -> Status {
      if (std::string_view(key) != "gpu")
        return read_rule(table, file);
      if (file.card_count == kMaxCards)
        return fail(Code::kExhausted, "more than " + std::to_string(kMaxCards) + " cards");
      unsigned index = file.card_count++;
      return read_gpu(table, file.cards[index], index);
    };
    TRY_STATUS(read_tables(*node, key, read), "'" + path + "'");
    top.erase(key);
  }
  return read_table(top, rows, "'" + path + "'");
}

}  // namespace vgpu::sim
