#include "test/fakes/nvidia-container-runtime/edits.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "test/fakes/nvidia-container-runtime/driver_files.h"

namespace vgpu::fakes {
namespace {

Json& list_at(Json* spec, const char* pointer) {
  Json& list = (*spec)[Json::json_pointer(pointer)];
  if (!list.is_array())
    list = Json::array();
  return list;
}

void set_environment(Json* spec, const std::string& name, const std::string& value) {
  Json& env = list_at(spec, "/process/env");
  const std::string prefix = name + "=";
  const std::string whole = prefix + value;
  bool replaced = false;
  for (Json& entry : env) {
    if (!entry.get_ref<const std::string&>().starts_with(prefix))
      continue;
    entry = whole;
    replaced = true;
  }
  if (!replaced)
    env.push_back(whole);
}

void allow_device(Json* spec, const DeviceNode& node) {
  list_at(spec, "/linux/resources/devices")
      .push_back({{"allow", true},
                  {"type", "c"},
                  {"major", kDeviceMajor},
                  {"minor", node.minor},
                  {"access", "rw"}});
}

void add_device(Json* spec, const DeviceNode& node) {
  Json& devices = list_at(spec, "/linux/devices");
  for (auto it = devices.begin(); it != devices.end();)
    it = (*it).value("path", std::string()) == node.path ? devices.erase(it) : it + 1;
  Json device = {
      {"path", node.path}, {"type", "c"}, {"major", kDeviceMajor}, {"minor", node.minor}};
  device["fileMode"] = 0666;
  const Json user = spec->value(Json::json_pointer("/process/user"), Json::object());
  if (user.value("uid", 0U) > 0)
    device["uid"] = user.value("uid", 0U);
  if (user.value("gid", 0U) > 0)
    device["gid"] = user.value("gid", 0U);
  devices.push_back(std::move(device));
  allow_device(spec, node);
}

void add_mount(Json* spec, const std::string& path, const Json& options) {
  Json& mounts = list_at(spec, "/mounts");
  for (auto it = mounts.begin(); it != mounts.end();)
    it = (*it).value("destination", std::string()) == path ? mounts.erase(it) : it + 1;
  mounts.push_back(
      {{"destination", path}, {"type", "bind"}, {"source", path}, {"options", options}});
}

std::ptrdiff_t depth_of(const Json& mount) {
  return std::ranges::count(mount.value("destination", std::string()), '/');
}

void sort_mounts(Json* spec) {
  std::vector<Json> mounts = list_at(spec, "/mounts");
  std::ranges::stable_sort(mounts, {}, depth_of);
  (*spec)["mounts"] = std::move(mounts);
}

Json cdi_hook(Json args) {
  return {{"path", kCdiHookPath}, {"args", std::move(args)}, {"env", {"NVIDIA_CTK_DEBUG=false"}}};
}

}  // namespace

bool has_device_cgroup_v1() {
  return access("/sys/fs/cgroup/devices/devices.allow", F_OK) == 0;
}

void edit_for_legacy(Json* spec, const std::vector<Gpu>& gpus) {
  if (!has_device_cgroup_v1())
    for (const DeviceNode& node : device_nodes(gpus))
      allow_device(spec, node);
  Json& hooks = list_at(spec, "/hooks/prestart");
  for (const Json& hook : hooks)
    if (hook.value("path", std::string()).ends_with("/nvidia-container-runtime-hook"))
      return;
  hooks.push_back({{"path", kHookPath}, {"args", {"nvidia-container-runtime-hook", "prestart"}}});
}

void edit_for_cdi(Json* spec, const std::vector<Gpu>& gpus, const Config& config) {
  if (spec->contains(Json::json_pointer("/hooks/prestart"))) {
    Json& prestart = list_at(spec, "/hooks/prestart");
    for (auto it = prestart.begin(); it != prestart.end();) {
      const std::string path = (*it).value("path", std::string());
      it = path.ends_with("/nvidia-container-runtime-hook") ? prestart.erase(it) : it + 1;
    }
  }
  set_environment(spec, "NVIDIA_VISIBLE_DEVICES", "void");
  set_environment(spec, "NVIDIA_CTK_LIBCUDA_DIR", config.inventory.library_directory);
  for (const DeviceNode& node : device_nodes(gpus))
    add_device(spec, node);
  const DriverFiles files = find_driver_files(config.inventory);
  for (const std::string& library : files.libraries)
    add_mount(spec, library, {"ro", "nosuid", "nodev", "rbind", "rprivate"});
  for (const std::string& file : config.inventory.extra_files)
    add_mount(spec, file, {"rw", "nosuid", "nodev", "rbind", "rprivate"});
  sort_mounts(spec);
  Json links = {"nvidia-cdi-hook", "create-symlinks"};
  for (const Link& link : files.links) {
    links.push_back("--link");
    links.push_back(link.target + "::" + link.path);
  }
  Json& hooks = list_at(spec, "/hooks/createContainer");
  hooks.push_back(cdi_hook(std::move(links)));
  hooks.push_back(cdi_hook(
      {"nvidia-cdi-hook", "update-ldcache", "--folder", config.inventory.library_directory}));
}

}  // namespace vgpu::fakes
