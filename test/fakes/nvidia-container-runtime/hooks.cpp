#include "test/fakes/nvidia-container-runtime/hooks.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "test/fakes/nvidia-container-runtime/container.h"
#include "test/fakes/nvidia-container-runtime/driver_files.h"
#include "test/fakes/nvidia-container-runtime/edits.h"
#include "test/fakes/nvidia-container-runtime/selection.h"

namespace vgpu::fakes {
namespace {

Status enter_mount_namespace(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/mnt";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return fail(system_error("open '" + path + "'", errno));
  const int entered = setns(fd, CLONE_NEWNS);
  const int error_number = errno;
  close(fd);
  if (entered != 0)
    return fail(system_error("enter '" + path + "'", error_number));
  return {};
}

// What is made in the container belongs to its root user: a file system of its user namespace takes
// no other.
void act_as_owner(const Json& spec) {
  for (const char* kind : {"gidMappings", "uidMappings"}) {
    const Json mappings = spec.value(Json::json_pointer("/linux/" + std::string(kind)), Json());
    for (const Json& mapping : mappings) {
      if (mapping.value("containerID", 1U) != 0)
        continue;
      const auto id = mapping.value("hostID", 0U);
      if (kind[0] == 'g')
        setfsgid(id);
      else
        setfsuid(id);
    }
  }
}

// The line "<n>:devices:<path>" of the process's cgroups.
Result<std::string> device_cgroup(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t found = line.find(":devices:");
    if (found != std::string::npos)
      return "/sys/fs/cgroup/devices" + line.substr(found + sizeof(":devices:") - 1);
  }
  return fail(Code::kNotFound, "container is in no device cgroup");
}

Status allow_devices(pid_t pid, const std::vector<DeviceNode>& nodes) {
  if (!has_device_cgroup_v1())
    return {};
  TRY(const std::string directory, device_cgroup(pid), "allow devices");
  for (const DeviceNode& node : nodes) {
    std::ofstream file(directory + "/devices.allow");
    file << "c " << kDeviceMajor << ':' << node.minor << " rw" << std::flush;
    if (!file)
      return fail(system_error("write '" + directory + "/devices.allow'", errno));
  }
  return {};
}

// Where a distribution of that kind keeps its libraries.
std::string library_directory(const std::string& root) {
  const bool debian =
      exists_in(root, "/etc/debian_version") || exists_in(root, "/usr/lib/x86_64-linux-gnu");
  return debian ? "/usr/lib/x86_64-linux-gnu" : "/usr/lib64";
}

Status mount_driver(const Container& container, const Inventory& inventory,
                    const std::vector<DeviceNode>& nodes) {
  const DriverFiles files = find_driver_files(inventory);
  const std::filesystem::path directory = library_directory(container.root);
  for (const std::string& library : files.libraries) {
    const std::string inside = directory / std::filesystem::path(library).filename();
    TRY_STATUS(bind_into(container.root, library, inside, MS_RDONLY | MS_NOSUID | MS_NODEV),
               "mount driver");
  }
  for (const std::string& file : inventory.extra_files)
    TRY_STATUS(bind_into(container.root, file, file, MS_NOSUID | MS_NODEV), "mount state");
  for (const DeviceNode& node : nodes)
    TRY_STATUS(bind_into(container.root, node.path, node.path, MS_NOSUID | MS_NOEXEC),
               "mount device");
  for (const Link& link : files.links)
    TRY_STATUS(link_in(container.root, directory / std::filesystem::path(link.path).filename(),
                       link.target),
               "link driver");
  return update_loader_cache(container.root, directory);
}

}  // namespace

Status run_legacy_hook() {
  TRY(const Config config, load_config(), "prestart");
  if (config.mode != "legacy" && config.mode != "auto")
    return fail(Code::kInvalidArgument,
                "invoking the NVIDIA Container Runtime Hook directly is "
                "not supported in mode '" +
                    config.mode + "'");
  TRY(const Container container, read_container(), "prestart");
  Config legacy = config;
  legacy.mode = "legacy";
  const Selection selection = select_devices(container.spec, legacy);
  if (selection.names.empty())
    return {};
  TRY(const std::vector<Gpu> gpus, resolve_devices(selection, legacy), "prestart");
  const std::vector<DeviceNode> nodes = device_nodes(gpus);
  TRY_STATUS(allow_devices(container.pid, nodes), "prestart");
  TRY_STATUS(enter_mount_namespace(container.pid), "prestart");
  act_as_owner(container.spec);
  return mount_driver(container, config.inventory, nodes);
}

Status run_cdi_hook(const std::vector<std::string>& arguments) {
  TRY(const Container container, read_container(), "nvidia-cdi-hook");
  const std::string command = arguments.empty() ? "" : arguments.front();
  if (command == "update-ldcache")
    return update_loader_cache(container.root, arguments.size() > 2 ? arguments[2] : "");
  if (command != "create-symlinks")
    return fail(Code::kInvalidArgument, "unknown command '" + command + "'");
  for (std::size_t i = 1; i + 1 < arguments.size(); i += 2) {
    const std::string& pair = arguments[i + 1];
    const std::size_t middle = pair.find("::");
    TRY_STATUS(link_in(container.root, pair.substr(middle + 2), pair.substr(0, middle)),
               "create symlinks");
  }
  return {};
}

}  // namespace vgpu::fakes
