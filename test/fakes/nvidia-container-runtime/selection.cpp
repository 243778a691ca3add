#include "test/fakes/nvidia-container-runtime/selection.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

namespace vgpu::fakes {
namespace {

constexpr std::string_view kVolumeRoot = "/var/run/nvidia-container-devices/";
constexpr std::string_view kJitKind = "runtime.nvidia.com/gpu=";

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    if (!part.empty())
      parts.emplace_back(part);
    if (comma == std::string_view::npos)
      break;
    text.remove_prefix(comma + 1);
  }
  return parts;
}

bool is_qualified(std::string_view name) {
  const std::size_t slash = name.find('/');
  return slash != std::string_view::npos && name.find('=', slash) != std::string_view::npos;
}

std::vector<std::string> from_annotations(const Json& spec, const Config& config) {
  std::map<std::string, std::string> sorted;
  if (const auto annotations = spec.find("annotations"); annotations != spec.end())
    for (const auto& [key, value] : annotations->items())
      for (const std::string& prefix : config.annotation_prefixes)
        if (key.starts_with(prefix) && value.is_string())
          sorted[key] = value;
  std::vector<std::string> names;
  for (const auto& [key, value] : sorted)
    for (std::string& name : split(value))
      names.push_back(std::move(name));
  return names;
}

// ".../GPU-1" or ".../cdi/vendor/class/name" for the qualified form.
std::string volume_name(std::string_view rest) {
  constexpr std::string_view kCdi = "cdi/";
  if (!rest.starts_with(kCdi))
    return std::string(rest);
  std::string name(rest.substr(kCdi.size()));
  const std::size_t last = name.rfind('/');
  if (name.find('=') == std::string::npos && last != std::string::npos)
    name[last] = '=';
  return name;
}

std::vector<std::string> from_volumes(const Json& spec) {
  std::vector<std::string> names;
  const auto mounts = spec.find("mounts");
  if (mounts == spec.end())
    return names;
  for (const Json& mount : *mounts) {
    const std::string destination = mount.value("destination", std::string());
    if (mount.value("source", std::string()) != "/dev/null")
      continue;
    if (!destination.starts_with(kVolumeRoot))
      continue;
    std::string name = volume_name(std::string_view(destination).substr(kVolumeRoot.size()));
    if (!name.starts_with("imex/"))
      names.push_back(std::move(name));
  }
  return names;
}

struct Environment {
  std::map<std::string, std::string> values;  // the last of several wins

  explicit Environment(const Json& spec) {
    const auto process = spec.find("process");
    if (process == spec.end() || !process->contains("env"))
      return;
    for (const Json& entry : process->at("env")) {
      const std::string text = entry;
      values[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
    }
  }
};

std::vector<std::string> from_environment(const Json& spec) {
  const Environment environment(spec);
  const auto& values = environment.values;
  const auto visible = values.find("NVIDIA_VISIBLE_DEVICES");
  if (visible == values.end()) {
    // An image from before the variable existed gets everything.
    const bool old_image =
        values.contains("CUDA_VERSION") && !values.contains("NVIDIA_REQUIRE_CUDA");
    return old_image ? std::vector<std::string>{"all"} : std::vector<std::string>{};
  }
  std::vector<std::string> names = split(visible->second);
  if (std::ranges::find(names, "void") != names.end())
    return {};
  for (const std::string& name : names)
    if (name == "all" || name == "none")
      return {name};
  return names;
}

bool is_privileged(const Json& spec) {
  const Json::json_pointer bounding("/process/capabilities/bounding");
  if (!spec.contains(bounding))
    return false;
  const Json& capabilities = spec.at(bounding);
  return std::ranges::find(capabilities, Json("CAP_SYS_ADMIN")) != capabilities.end();
}

std::vector<std::string> from_volumes_or_environment(const Json& spec, const Config& config) {
  if (config.volume_mounts)
    if (auto names = from_volumes(spec); !names.empty())
      return names;
  if (!config.env_when_unprivileged && !is_privileged(spec))
    return {};
  return from_environment(spec);
}

std::optional<Gpu> find_gpu(const std::string& name, const Inventory& inventory) {
  for (std::size_t index = 0; index < inventory.gpus.size(); ++index)
    if (inventory.gpus[index].uuid == name || std::to_string(index) == name)
      return inventory.gpus[index];
  return std::nullopt;
}

}  // namespace

Selection select_devices(const Json& spec, const Config& config) {
  if (config.mode == "legacy")
    return {Mode::kLegacy, from_volumes_or_environment(spec, config)};
  std::vector<std::string> annotated = from_annotations(spec, config);
  std::vector<std::string> names =
      annotated.empty() ? from_volumes_or_environment(spec, config) : annotated;
  const bool qualified = !names.empty() && std::ranges::all_of(names, is_qualified);
  if (config.mode == "cdi" || (config.mode == "auto" && qualified))
    return {Mode::kCdi, names};
  return {Mode::kJitCdi, from_volumes_or_environment(spec, config)};
}

Result<std::vector<Gpu>> resolve_devices(const Selection& selection, const Config& config) {
  std::vector<Gpu> gpus;
  const std::string default_prefix = config.default_kind + "=";
  for (std::string name : selection.names) {
    if (name == "none")
      continue;
    if (selection.mode == Mode::kCdi && !is_qualified(name))
      name.insert(0, default_prefix);
    if (is_qualified(name)) {
      if (!name.starts_with(kJitKind))
        return fail(Code::kNotFound, "unresolvable CDI devices " + name);
      name.erase(0, kJitKind.size());
    }
    if (name == "all")
      return config.inventory.gpus;
    const std::optional<Gpu> gpu = find_gpu(name, config.inventory);
    if (!gpu)
      return fail(Code::kNotFound, "unknown device '" + name + "'");
    if (std::ranges::find(gpus, gpu->uuid, &Gpu::uuid) == gpus.end())
      gpus.push_back(*gpu);
  }
  return gpus;
}

}  // namespace vgpu::fakes
