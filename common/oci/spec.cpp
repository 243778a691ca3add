#include "common/oci/spec.h"

#include <algorithm>
#include <utility>

#include "common/base/text.h"

namespace vgpu::oci {
namespace {

constexpr std::uint64_t kCardMajor = 195;
constexpr std::uint64_t kFirstMinorOfNoCard = 254;  // 254 is nvidia-modeset, 255 nvidiactl

const Json::Array& list_at(const Json& spec, std::initializer_list<std::string_view> path) {
  static const Json::Array empty_list;
  const Json* value = spec.at(path);
  const Json::Array* items = value != nullptr ? value->items() : nullptr;
  return items != nullptr ? *items : empty_list;
}

std::string_view text_of(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  const std::string* text = value != nullptr ? value->string() : nullptr;
  return text != nullptr ? std::string_view(*text) : std::string_view();
}

// "NAME" of "NAME=value".
std::string_view name_of(std::string_view entry) {
  return entry.substr(0, entry.find('='));
}

Json::Array* environment_list(Json& spec) {
  Json* process = spec.find("process");
  Json* env = process != nullptr ? process->find("env") : nullptr;
  return env != nullptr ? env->items() : nullptr;
}

std::optional<std::uint64_t> card_minor(const Json& device) {
  const std::string path = clean_path(text_of(device, "path"));
  static constexpr std::string_view kPrefix = "/dev/nvidia";
  if (path.starts_with(kPrefix)) {
    if (const auto minor = to_unsigned(std::string_view(path).substr(kPrefix.size()))) {
      return minor;
    }
  }
  const Json* major = device.find("major");
  const Json* minor = device.find("minor");
  if (text_of(device, "type") == "b" || major == nullptr || minor == nullptr ||
      major->natural() != kCardMajor) {
    return std::nullopt;
  }
  const auto number = minor->natural();
  return number && *number < kFirstMinorOfNoCard ? number : std::nullopt;
}

// Absent, null and -1 stand for every number.
bool is_wildcard(const Json& rule, std::string_view key) {
  const Json* value = rule.find(key);
  return value == nullptr || value->is_null() || value->integer() == -1;
}

}  // namespace

std::optional<std::string> annotation(const Json& spec, std::string_view key) {
  const Json* value = spec.at({"annotations", key});
  const std::string* text = value != nullptr ? value->string() : nullptr;
  if (text == nullptr)
    return std::nullopt;
  return *text;
}

void remove_annotations(Json& spec, const std::function<bool(std::string_view)>& chosen) {
  Json* annotations = spec.find("annotations");
  if (annotations == nullptr || annotations->members() == nullptr)
    return;
  std::erase_if(*annotations->members(), [&](const auto& member) { return chosen(member.first); });
}

std::optional<std::string> environment(const Json& spec, std::string_view name) {
  std::optional<std::string> value;
  for (const Json& item : list_at(spec, {"process", "env"})) {
    const std::string* entry = item.string();
    if (entry == nullptr || name_of(*entry) != name)
      continue;
    value = entry->size() > name.size() ? entry->substr(name.size() + 1) : std::string();
  }
  return value;
}

void set_environment(Json& spec, std::string_view name, std::string_view value) {
  const Json wanted(std::string(name) + "=" + std::string(value));
  Json* process = spec.find("process");
  if (process == nullptr || process->members() == nullptr)
    return;
  if (environment_list(spec) == nullptr)
    process->set("env", Json::array());
  Json::Array& entries = *environment_list(spec);
  bool found = false;
  for (Json& item : entries) {
    const std::string* entry = item.string();
    if (entry == nullptr || name_of(*entry) != name)
      continue;
    item = wanted;
    found = true;
  }
  if (!found)
    entries.push_back(wanted);
}

void remove_environment(Json& spec, const std::function<bool(std::string_view)>& chosen) {
  Json::Array* entries = environment_list(spec);
  if (entries == nullptr)
    return;
  std::erase_if(*entries, [&](const Json& item) {
    const std::string* entry = item.string();
    return entry != nullptr && chosen(name_of(*entry));
  });
}

std::string cgroups_path(const Json& spec) {
  const Json* linux_part = spec.find("linux");
  return linux_part != nullptr ? std::string(text_of(*linux_part, "cgroupsPath")) : std::string();
}

bool has_user_namespace(const Json& spec) {
  if (!list_at(spec, {"linux", "uidMappings"}).empty())
    return true;
  const Json::Array& namespaces = list_at(spec, {"linux", "namespaces"});
  return std::any_of(namespaces.begin(), namespaces.end(),
                     [](const Json& item) { return text_of(item, "type") == "user"; });
}

std::vector<std::uint32_t> card_minors(const Json& spec) {
  std::vector<std::uint32_t> minors;
  for (const Json& device : list_at(spec, {"linux", "devices"})) {
    if (const auto minor = card_minor(device))
      minors.push_back(static_cast<std::uint32_t>(*minor));
  }
  std::sort(minors.begin(), minors.end());
  minors.erase(std::unique(minors.begin(), minors.end()), minors.end());
  return minors;
}

bool opens_every_card(const Json& spec) {
  const Json::Array& rules = list_at(spec, {"linux", "resources", "devices"});
  return std::any_of(rules.begin(), rules.end(), [](const Json& rule) {
    const Json* allow = rule.find("allow");
    if (allow == nullptr || allow->boolean() != true)
      return false;
    if (text_of(rule, "type") == "b" || !is_wildcard(rule, "minor"))
      return false;
    const Json* major = rule.find("major");
    if (!is_wildcard(rule, "major") && major->natural() != kCardMajor)
      return false;
    const std::string_view access = text_of(rule, "access");
    return access.empty() || access.find_first_of("rw") != std::string_view::npos;
  });
}

bool has_driver_mount(const Json& spec) {
  const Json::Array& mounts = list_at(spec, {"mounts"});
  return std::any_of(mounts.begin(), mounts.end(), [](const Json& mount) {
    const std::string path = clean_path(text_of(mount, "destination"));
    const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
    return name.starts_with("libcuda.so") || name.starts_with("libnvidia-ml.so");
  });
}

bool has_toolkit_hook(const Json& spec) {
  const Json* hooks = spec.find("hooks");
  if (hooks == nullptr || hooks->members() == nullptr)
    return false;
  for (const auto& phase : *hooks->members()) {
    const Json::Array* items = phase.second.items();
    if (items == nullptr)
      continue;
    for (const Json& hook : *items) {
      const std::string_view path = text_of(hook, "path");
      const std::string_view name = path.substr(path.rfind('/') + 1);
      if (name.starts_with("nvidia-container-runtime-hook") ||
          name.starts_with("nvidia-container-toolkit") || name.starts_with("nvidia-cdi-hook") ||
          name.starts_with("nvidia-ctk")) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace vgpu::oci
