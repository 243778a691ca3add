#include "common/oci/spec_edits.h"

#include <algorithm>
#include <utility>

#include "common/base/text.h"
#include "common/oci/spec.h"

namespace vgpu::oci {
namespace {

constexpr std::string_view kPrivateDirectory = "/usr/lib/vgpu";  // api/limiter/host.h
constexpr std::string_view kUsagePath = "/usr/lib/vgpu/usage";
constexpr std::string_view kVisibleDevices = "NVIDIA_VISIBLE_DEVICES";
constexpr std::string_view kDriverCapabilities = "NVIDIA_DRIVER_CAPABILITIES";
constexpr std::string_view kCdiPrefix = "cdi.k8s.io/";
constexpr std::string_view kCdiKey = "cdi.k8s.io/vgpu";
constexpr std::uint64_t kHookTimeoutSeconds = 10;
constexpr std::uint64_t kPoststopTimeoutSeconds = 5;

std::string_view text_of(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  const std::string* text = value != nullptr ? value->string() : nullptr;
  return text != nullptr ? std::string_view(*text) : std::string_view();
}

Json::Array* items_of(Json& object, std::string_view key) {
  Json* value = object.find(key);
  return value != nullptr ? value->items() : nullptr;
}

// The list of that name, made if it is absent or null.
Result<Json::Array*> list_in(Json& object, std::string_view key) {
  Json* value = object.find(key);
  if (value == nullptr || value->is_null())
    object.set(key, Json::array());
  Json::Array* items = items_of(object, key);
  if (items == nullptr) {
    return fail(Code::kInvalidArgument, "'" + std::string(key) + "' is not a list");
  }
  return items;
}

bool is_our_hook(const Json& hook, std::string_view key) {
  const Json* args = hook.find("args");
  const Json::Array* items = args != nullptr ? args->items() : nullptr;
  if (items == nullptr || items->size() < 4)
    return false;
  return (*items)[0] == Json("vgpu-hook") && (*items)[2] == Json("--key") &&
         (*items)[3] == Json(key);
}

bool is_our_mount(const Json& mount, const std::string& directory) {
  const std::string_view source = text_of(mount, "source");
  const std::string_view destination = text_of(mount, "destination");
  return (source == directory && destination == kPrivateDirectory) ||
         (source == directory + "/usage" && destination == kUsagePath);
}

// First, so that an edit killed after its rename can be done again. The directory's name is this
// container's own: no other mount or hook can match.
Status remove_own_traces(Json& spec, const ContainerGrant& grant) {
  if (Json::Array* mounts = items_of(spec, "mounts")) {
    std::erase_if(
        *mounts, [&](const Json& mount) { return is_our_mount(mount, grant.container_directory); });
  }
  Json* hooks = spec.find("hooks");
  if (hooks == nullptr)
    return {};
  for (const std::string_view phase : {"poststop", "createContainer"}) {
    Json::Array* items = items_of(*hooks, phase);
    if (items == nullptr)
      continue;
    const std::size_t ours =
        std::erase_if(*items, [&](const Json& hook) { return is_our_hook(hook, grant.key); });
    if (ours > 0 && items->empty())
      hooks->remove(phase);
  }
  return {};
}

Status refuse_foreign_mounts(Json& spec, const ContainerGrant& /*grant*/) {
  const Json::Array* mounts = items_of(spec, "mounts");
  if (mounts == nullptr)
    return {};
  for (const Json& mount : *mounts) {
    const std::string_view destination = text_of(mount, "destination");
    if (is_at_or_below(destination, kPrivateDirectory)) {
      return fail(Code::kPermission,
                  "the container has a mount at '" + std::string(destination.substr(0, 256)) +
                      "'; a GPU container may not have mounts at or below '" +
                      std::string(kPrivateDirectory) + "'; another mountPath helps");
    }
  }
  return {};
}

Status check_present_cards(Json& spec, const ContainerGrant& grant) {
  const std::vector<std::uint32_t> present = card_minors(spec);
  if (present.empty() || carries_granted_cards(spec, grant))
    return {};
  std::string names;
  for (const std::uint32_t minor : present) {
    names += (names.empty() ? "'/dev/nvidia" : ", '/dev/nvidia") + std::to_string(minor) + "'";
  }
  return fail(Code::kPermission,
              "the engine has already put in " + names +
                  ", which are not the allocated cards; another device plugin or CDI request "
                  "selects GPUs for this container");
}

Status remove_device_environment(Json& spec, const ContainerGrant& /*grant*/) {
  static constexpr std::string_view kNames[] = {"NVIDIA_GDS",
                                                "NVIDIA_MOFED",
                                                "NVIDIA_NVSWITCH",
                                                "NVIDIA_GDRCOPY",
                                                "NVIDIA_IMEX_CHANNELS",
                                                "NVIDIA_MIG_CONFIG_DEVICES",
                                                "NVIDIA_MIG_MONITOR_DEVICES"};
  remove_environment(spec, [](std::string_view name) {
    return name.starts_with("NVIDIA_GPU_MEMORY_") ||
           std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
  });
  return {};
}

// The toolkit's request by volume mounts beats its request by environment.
Status remove_device_mounts(Json& spec, const ContainerGrant& /*grant*/) {
  Json::Array* mounts = items_of(spec, "mounts");
  if (mounts == nullptr)
    return {};
  std::erase_if(*mounts, [](const Json& mount) {
    const std::string_view destination = text_of(mount, "destination");
    return is_at_or_below(destination, "/var/run/nvidia-container-devices") ||
           is_at_or_below(destination, "/run/nvidia-container-devices");
  });
  return {};
}

Status remove_cdi_requests(Json& spec, const ContainerGrant& /*grant*/) {
  remove_annotations(spec, [](std::string_view key) { return key.starts_with(kCdiPrefix); });
  return {};
}

Status select_devices(Json& spec, const ContainerGrant& grant) {
  if (carries_granted_cards(spec, grant)) {
    set_environment(spec, kVisibleDevices, "void");
    return {};
  }
  if (grant.selection == DeviceSelection::kVisibleDevices) {
    set_environment(spec, kVisibleDevices, join(grant.uuids, ","));
    return {};
  }
  set_environment(spec, kVisibleDevices, "void");
  std::string names;
  for (const std::string& uuid : grant.uuids) {
    if (!names.empty())
      names += ',';
    names += "runtime.nvidia.com/gpu=" + uuid;
  }
  Json* annotations = spec.find("annotations");
  if (annotations == nullptr || annotations->members() == nullptr) {
    spec.set("annotations", Json::object());
    annotations = spec.find("annotations");
  }
  annotations->set(kCdiKey, Json(names));
  return {};
}

Status clamp_capabilities(Json& spec, const ContainerGrant& grant) {
  for (const std::string_view wanted : {"graphics", "display", "video"}) {
    const auto& granted = grant.capabilities;
    if (!grant.graphics_allowed &&
        std::find(granted.begin(), granted.end(), wanted) != granted.end()) {
      return fail(Code::kPermission,
                  "the allocation grants driver capability '" + std::string(wanted) +
                      "', through which memory cannot be limited; 'graphics = true' in "
                      "'/etc/vgpu/runtime.toml' allows it");
    }
  }
  const std::string asked = environment(spec, kDriverCapabilities).value_or("");
  std::vector<std::string> kept;
  for (const std::string& capability : grant.capabilities) {
    const auto parts = split(asked, ',');
    const bool wanted = std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
      return trim(part) == capability || trim(part) == "all";
    });
    if (wanted)
      kept.push_back(capability);
  }
  if (kept.empty())
    kept = grant.capabilities;
  set_environment(spec, kDriverCapabilities, join(kept, ","));
  return {};
}

Json make_hook(const ContainerGrant& grant, Json args, std::uint64_t timeout_seconds) {
  Json hook = Json::object();
  hook.set("path", Json(grant.hook_path));
  hook.set("args", std::move(args));
  // Never empty: a runtime may otherwise hand the image's environment to a program that runs as
  // root on the host.
  hook.set("env", Json::strings({"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}));
  hook.set("timeout", Json(timeout_seconds));
  return hook;
}

// Everything the hook needs to know: in a user namespace it cannot read what the wrapper wrote
// down.
Json substitution_arguments(const Json& spec, const ContainerGrant& grant) {
  std::string minors;
  for (const std::uint32_t minor : grant.minors)
    minors += (minors.empty() ? "" : ",") + std::to_string(minor);
  const std::string identity = std::to_string(grant.private_directory.device) + ":" +
                               std::to_string(grant.private_directory.inode);
  const std::string path = environment(spec, "LD_LIBRARY_PATH").value_or("");
  Json arguments = Json::strings({"vgpu-hook", "create-container", "--key", grant.key, "--private",
                                  identity, "--minors", minors, "--library-path", path,
                                  "--library-directory", grant.library_directory});
  if (!grant.log.empty()) {
    arguments.items()->emplace_back("--log");
    arguments.items()->emplace_back(grant.log);
  }
  return arguments;
}

Status add_hooks(Json& spec, const ContainerGrant& grant) {
  Json* hooks = spec.find("hooks");
  if (hooks == nullptr || hooks->is_null()) {
    spec.set("hooks", Json::object());
    hooks = spec.find("hooks");
  }
  if (hooks->members() == nullptr)
    return fail(Code::kInvalidArgument, "'hooks' is not an object");
  if (grant.substitute_by_hook) {
    TRY(Json::Array * items, list_in(*hooks, "createContainer"), "hooks");
    items->push_back(make_hook(grant, substitution_arguments(spec, grant), kHookTimeoutSeconds));
  }
  TRY(Json::Array * items, list_in(*hooks, "poststop"), "hooks");
  items->push_back(make_hook(grant, Json::strings({"vgpu-hook", "poststop", "--key", grant.key}),
                             kPoststopTimeoutSeconds));
  return {};
}

Json make_mount(std::string_view destination, const std::string& source, std::string_view access) {
  Json mount = Json::object();
  mount.set("destination", Json(destination));
  mount.set("type", Json("bind"));
  mount.set("source", Json(source));
  mount.set("options", Json::strings({"bind", access, "nosuid", "nodev", "noexec", "rprivate"}));
  return mount;
}

// Last, so that nothing before us covers them.
Status add_mounts(Json& spec, const ContainerGrant& grant) {
  TRY(Json::Array * mounts, list_in(spec, "mounts"), "mounts");
  mounts->push_back(make_mount(kPrivateDirectory, grant.container_directory, "ro"));
  mounts->push_back(make_mount(kUsagePath, grant.container_directory + "/usage", "rw"));
  return {};
}

constexpr SpecEdit kEdits[] = {
    {"remove own traces", remove_own_traces},
    {"refuse foreign mounts", refuse_foreign_mounts},
    {"check cards put in by the engine", check_present_cards},
    {"remove device environment", remove_device_environment},
    {"remove device mounts", remove_device_mounts},
    {"remove CDI requests", remove_cdi_requests},
    {"select devices", select_devices},  // after every other request is gone
    {"clamp driver capabilities", clamp_capabilities},
    {"add hooks", add_hooks},
    {"add mounts", add_mounts},  // last in the list of mounts
};

}  // namespace

std::span<const SpecEdit> spec_edits() {
  return kEdits;
}

Result<Json> edit_spec(Json spec, const ContainerGrant& grant) {
  const Json* process = spec.find("process");
  if (process == nullptr || process->members() == nullptr) {
    return fail(Code::kInvalidArgument, "the specification has no 'process'");
  }
  for (const SpecEdit& edit : kEdits)
    TRY_STATUS(edit.apply(spec, grant), edit.name);
  return spec;
}

bool carries_granted_cards(const Json& spec, const ContainerGrant& grant) {
  std::vector<std::uint32_t> granted = grant.minors;
  std::sort(granted.begin(), granted.end());
  return !granted.empty() && card_minors(spec) == granted;
}

bool carries_our_edits(const Json& spec, std::string_view key, std::string_view directory) {
  const Json* mounts = spec.find("mounts");
  const Json* poststop = spec.at({"hooks", "poststop"});
  if (mounts == nullptr || mounts->items() == nullptr)
    return false;
  if (poststop == nullptr || poststop->items() == nullptr)
    return false;
  const std::string own(directory);
  return std::count_if(mounts->items()->begin(), mounts->items()->end(),
                       [&](const Json& mount) { return is_our_mount(mount, own); }) == 2 &&
         std::any_of(poststop->items()->begin(), poststop->items()->end(),
                     [&](const Json& hook) { return is_our_hook(hook, key); });
}

}  // namespace vgpu::oci
