#include "runtime-wrapper/config.h"

#include <optional>
#include <utility>

#include "common/base/file.h"
#include "common/base/text.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace vgpu::runtime {
namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{256} * 1024;
constexpr std::int64_t kMaxRecordWaitMs = 60000;

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += '\\';
    out += c;
  }
  return out + '"';
}

std::string quote_list(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  quoted.reserve(texts.size());
  for (const std::string& text : texts)
    quoted.push_back(quote(text));
  return "[" + join(quoted, ", ") + "]";
}

std::optional<std::vector<std::string>> texts_of(const toml::node& node) {
  const toml::array* array = node.as_array();
  if (array == nullptr)
    return std::nullopt;
  std::vector<std::string> texts;
  for (const toml::node& item : *array) {
    const auto text = item.value_exact<std::string>();
    if (!text || text->empty())
      return std::nullopt;
    texts.push_back(*text);
  }
  return texts;
}

template <typename Value>
bool take(std::optional<Value> found, Value& place) {
  if (!found)
    return false;
  place = std::move(*found);
  return true;
}

// The value whose name the node holds.
template <typename Value>
std::optional<Value> named(const toml::node& node,
                           std::initializer_list<std::pair<std::string_view, Value>> names) {
  const auto text = node.value_exact<std::string_view>();
  for (const auto& [name, value] : names) {
    if (text == name)
      return value;
  }
  return std::nullopt;
}

struct Row {
  std::string_view key;
  std::string_view summary;
  std::string_view accepted;
  bool (*parse)(const toml::node& node, Config& config);
  std::string (*print)(const Config& config);
};

constexpr Row kRows[] = {
    {"low_level_runtimes",
     "runtimes that start containers, first found wins; empty: as the node says",
     "a list of names or absolute paths",
     [](const toml::node& n, Config& c) { return take(texts_of(n), c.low_level_runtimes); },
     [](const Config& c) { return quote_list(c.low_level_runtimes); }},
    {"nvidia_runtimes", "NVIDIA's runtimes for containers with GPUs, first found wins",
     "a list of names or absolute paths",
     [](const toml::node& n, Config& c) { return take(texts_of(n), c.nvidia_runtimes); },
     [](const Config& c) { return quote_list(c.nvidia_runtimes); }},
    {"toolkit_mode", "how NVIDIA's runtime is told which cards; auto: as the node says",
     R"("auto", "legacy" or "cdi")",
     [](const toml::node& n, Config& c) {
       return take(named<ToolkitSetting>(n, {{"auto", ToolkitSetting::kAuto},
                                             {"legacy", ToolkitSetting::kLegacy},
                                             {"cdi", ToolkitSetting::kCdi}}),
                   c.toolkit_mode);
     },
     [](const Config& c) {
       return quote(c.toolkit_mode == ToolkitSetting::kCdi      ? "cdi"
                    : c.toolkit_mode == ToolkitSetting::kLegacy ? "legacy"
                                                                : "auto");
     }},
    {"unallocated",
     "containers that ask for GPUs without our allocation: none, or cards we do not manage",
     R"("void" or "others")",
     [](const toml::node& n, Config& c) {
       return take(
           named<Unallocated>(n, {{"void", Unallocated::kVoid}, {"others", Unallocated::kOthers}}),
           c.unallocated);
     },
     [](const Config& c) {
       return quote(c.unallocated == Unallocated::kOthers ? "others" : "void");
     }},
    {"exempt_namespaces", "namespaces whose containers go to NVIDIA's runtime untouched",
     "a list of names",
     [](const toml::node& n, Config& c) { return take(texts_of(n), c.exempt_namespaces); },
     [](const Config& c) { return quote_list(c.exempt_namespaces); }},
    {"privileged", "privileged containers that ask for GPUs: they cannot be limited",
     R"("deny" or "pass")",
     [](const toml::node& n, Config& c) {
       return take(named<Privileged>(n, {{"deny", Privileged::kDeny}, {"pass", Privileged::kPass}}),
                   c.privileged);
     },
     [](const Config& c) { return quote(c.privileged == Privileged::kPass ? "pass" : "deny"); }},
    {"graphics", "allow the graphics, display and video capabilities, whose memory is only watched",
     "true or false",
     [](const toml::node& n, Config& c) { return take(n.value_exact<bool>(), c.graphics); },
     [](const Config& c) { return std::string(c.graphics ? "true" : "false"); }},
    {"record_wait_ms", "how long a container waits for an allocation that is not there yet",
     "a whole number from 0 to 60000",
     [](const toml::node& n, Config& c) {
       const auto wait = n.value_exact<std::int64_t>();
       if (!wait || *wait < 0 || *wait > kMaxRecordWaitMs)
         return false;
       c.record_wait = std::chrono::milliseconds(*wait);
       return true;
     },
     [](const Config& c) { return std::to_string(c.record_wait.count()); }},
    {"library_dir", "where the limiter's libraries lie", "an absolute path",
     [](const toml::node& n, Config& c) {
       const auto path = n.value_exact<std::string>();
       if (!path || !path->starts_with('/'))
         return false;
       c.library_dir = *path;
       return true;
     },
     [](const Config& c) { return quote(c.library_dir); }},
};

const Row* find_row(std::string_view key) {
  for (const Row& row : kRows) {
    if (row.key == key)
      return &row;
  }
  return nullptr;
}

std::string place(const std::string& path, const toml::source_region& source) {
  return "'" + path + "' line " + std::to_string(source.begin.line);
}

}  // namespace

Result<Config> parse_config(std::string_view text, const std::string& path) {
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    return fail(Code::kInvalidArgument, place(path, parsed.error().source()) + ": " +
                                            std::string(parsed.error().description()));
  }
  Config config;
  for (const auto& [key, node] : parsed.table()) {
    const Row* row = find_row(key.str());
    if (row == nullptr) {
      return fail(Code::kInvalidArgument, place(path, node.source()) + ": key '" +
                                              std::string(key.str()) + "' is not known");
    }
    if (!row->parse(node, config)) {
      return fail(Code::kInvalidArgument, place(path, node.source()) + ": key '" +
                                              std::string(row->key) + "' must be " +
                                              std::string(row->accepted));
    }
  }
  return config;
}

Result<Config> load_config(const std::string& path) {
  const auto text = read_file(path, kMaxConfigBytes, Owner::kRoot);
  if (!text) {
    if (text.error().code == Code::kNotFound)
      return Config{};
    return fail(text.error().within("read configuration"));
  }
  TRY(Config config, parse_config(*text, path), "read configuration");
  return config;
}

std::string print_config(const Config& config) {
  std::string text;
  for (const Row& row : kRows) {
    text += "# " + std::string(row.summary) + " (" + std::string(row.accepted) + ")\n";
    text += std::string(row.key) + " = " + row.print(config) + "\n\n";
  }
  text.pop_back();
  return text;
}

std::vector<std::string> nvidia_low_level_runtimes(const std::string& path) {
  std::vector<std::string> runtimes = {"runc", "crun"};
  const auto text = read_file(path, kMaxConfigBytes, Owner::kRoot);
  if (!text)
    return runtimes;
  const toml::parse_result parsed = toml::parse(*text, path);
  if (!parsed)
    return runtimes;
  const auto node = parsed.table().at_path("nvidia-container-runtime.runtimes");
  if (node.node() == nullptr)
    return runtimes;
  return texts_of(*node.node()).value_or(runtimes);
}

}  // namespace vgpu::runtime
