#include "test/fakes/nvidia-container-runtime/driver_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace vgpu::fakes {

DriverFiles find_driver_files(const Inventory& inventory) {
  DriverFiles files;
  const std::string suffix = ".so." + inventory.driver_version;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(inventory.library_directory, error)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(suffix) || !entry.is_regular_file(error))
      continue;
    files.libraries.push_back(entry.path());
    const std::string stem = entry.path().string().substr(
        0, entry.path().string().size() - inventory.driver_version.size() - 1);
    files.links.push_back({stem + ".1", name});
    if (name.starts_with("libcuda."))
      files.links.push_back({stem, std::filesystem::path(stem).filename().string() + ".1"});
  }
  std::ranges::sort(files.libraries);
  std::ranges::sort(files.links, {}, &Link::path);
  return files;
}

std::vector<DeviceNode> device_nodes(const std::vector<Gpu>& gpus) {
  std::vector<DeviceNode> nodes = {{"/dev/nvidiactl", kControlMinor}};
  for (const Gpu& gpu : gpus)
    nodes.push_back({"/dev/nvidia" + std::to_string(gpu.minor), gpu.minor});
  return nodes;
}

}  // namespace vgpu::fakes
