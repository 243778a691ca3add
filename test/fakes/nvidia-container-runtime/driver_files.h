#pragma once

#include <string>
#include <vector>

#include "test/fakes/nvidia-container-runtime/config.h"

namespace vgpu::fakes {

struct Link {
  std::string path;    // where the link lies
  std::string target;  // what it says
};

// The driver as it lies on the node.
struct DriverFiles {
  std::vector<std::string> libraries;  // absolute paths of *.so.<driver version>
  std::vector<Link> links;             // SONAME and .so links that a container needs beside them
};

DriverFiles find_driver_files(const Inventory& inventory);

inline constexpr unsigned kDeviceMajor = 195;
inline constexpr unsigned kControlMinor = 255;

struct DeviceNode {
  std::string path;
  unsigned minor = 0;
};

// /dev/nvidiactl and one /dev/nvidia<n> per card.
std::vector<DeviceNode> device_nodes(const std::vector<Gpu>& gpus);

}  // namespace vgpu::fakes
