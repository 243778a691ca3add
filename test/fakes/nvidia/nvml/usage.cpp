#include <algorithm>

#include "test/fakes/nvidia/nvml/nvml.h"

namespace vgpu::sim {
namespace {

constexpr uint64_t kSampleNs = 100000000;  // utilization is a figure of the last sample period

struct Figures {
  uint64_t total;
  uint64_t reserved;
  uint64_t used;
};

Figures figures(nvmlDevice_t device) {
  State& node = *nvml().state;
  node.publish();
  State::Guard guard(node);
  const Card& card = card_of(device);
  uint64_t used = node.file().options.nvml_lag_ms == 0 ? card.used : card.published;
  return Figures{.total = card.total,
                 .reserved = card.reserved,
                 .used = std::min(used, card.total - card.reserved)};
}

struct Entry {
  unsigned pid;
  uint64_t bytes;
};

// The processes with a context on the card, as far as they exist in the caller's pid namespace.
std::vector<Entry> processes(nvmlDevice_t device) {
  State& node = *nvml().state;
  node.publish();
  State::Guard guard(node);
  std::vector<Entry> found;
  bool lags = node.file().options.nvml_lag_ms != 0;
  for (unsigned slot = 0; slot < kMaxProcesses; ++slot) {
    const Process& process = node.file().processes[slot];
    if (process.state != kProcessUsed || process.held[device->card].contexts == 0)
      continue;
    pid_t pid = node.owner(slot);
    if (pid <= 0)
      continue;
    uint64_t bytes = lags ? process.published[device->card] : process.held[device->card].sum();
    found.push_back(Entry{.pid = static_cast<unsigned>(pid), .bytes = bytes});
  }
  return found;
}

// The list protocol: `count` says how much room there is and comes back as how much is needed.
template <typename Info>
nvmlReturn_t list(nvmlDevice_t device, unsigned* count, Info* infos) {
  if (count == nullptr || (*count != 0 && infos == nullptr))
    return NVML_ERROR_INVALID_ARGUMENT;
  std::vector<Entry> entries = processes(device);
  unsigned room = *count;
  *count = static_cast<unsigned>(entries.size());
  if (room < entries.size())
    return NVML_ERROR_INSUFFICIENT_SIZE;
  for (size_t i = 0; i < entries.size(); ++i) {
    infos[i] = Info{};
    infos[i].pid = entries[i].pid;
    infos[i].usedGpuMemory = entries[i].bytes;
    if constexpr (sizeof(Info) == sizeof(nvmlProcessInfo_t)) {
      infos[i].gpuInstanceId = 0xffffffff;
      infos[i].computeInstanceId = 0xffffffff;
    }
  }
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace vgpu::sim

extern "C" {

// Version 1 counts what the driver keeps for itself as used.
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  if (memory == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  nvmlMemory_v2_t wide{};
  wide.version = NVML_MEMORY_V2;
  nvmlReturn_t result = nvmlDeviceGetMemoryInfo_v2(device, &wide);
  if (result != NVML_SUCCESS)
    return result;
  memory->total = wide.total;
  memory->free = wide.free;
  memory->used = wide.used + wide.reserved;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  SIM_ENTER_DEVICE(nvmlDeviceGetMemoryInfo_v2, device);
  if (memory == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  if (memory->version != NVML_MEMORY_V2)
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  vgpu::sim::Figures now = vgpu::sim::figures(device);
  memory->total = now.total;
  memory->reserved = now.reserved;
  memory->used = now.used;
  memory->free = now.total - now.reserved - now.used;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  SIM_ENTER_DEVICE(nvmlDeviceGetUtilizationRates, device);
  if (utilization == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  vgpu::sim::State& node = *vgpu::sim::nvml().state;
  vgpu::sim::State::Guard guard(node);
  vgpu::sim::Card& card = vgpu::sim::card_of(device);
  uint64_t now = vgpu::sim::now_ns();
  uint64_t period = now - card.utilization_at;
  if (period >= vgpu::sim::kSampleNs) {
    uint64_t queued = card.busy_until > now ? card.busy_until - now : 0;
    uint64_t done =
        std::max(card.busy_ns - std::min(queued, card.busy_ns), card.utilization_busy_ns);
    card.utilization = static_cast<uint32_t>(
        std::min<uint64_t>(100, (done - card.utilization_busy_ns) * 100 / period));
    card.utilization_at = now;
    card.utilization_busy_ns = done;
  }
  utilization->gpu = card.utilization;
  utilization->memory = card.utilization / 2;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int* count,
                                                  nvmlProcessInfo_v1_t* infos) {
  SIM_ENTER_DEVICE(nvmlDeviceGetComputeRunningProcesses, device);
  return vgpu::sim::list(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* count,
                                                     nvmlProcessInfo_t* infos) {
  SIM_ENTER_DEVICE(nvmlDeviceGetComputeRunningProcesses_v2, device);
  return vgpu::sim::list(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* count,
                                                     nvmlProcessInfo_t* infos) {
  SIM_ENTER_DEVICE(nvmlDeviceGetComputeRunningProcesses_v3, device);
  return vgpu::sim::list(device, count, infos);
}

// Nothing here draws, and no MPS server runs.
#define SIM_EMPTY_LIST(function, Info)                                               \
  nvmlReturn_t function(nvmlDevice_t device, unsigned int* count, Info* /*infos*/) { \
    SIM_ENTER_DEVICE(function, device);                                              \
    if (count == nullptr)                                                            \
      return NVML_ERROR_INVALID_ARGUMENT;                                            \
    *count = 0;                                                                      \
    return NVML_SUCCESS;                                                             \
  }
SIM_EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
SIM_EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t)
SIM_EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
SIM_EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
SIM_EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t)
SIM_EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

}  // extern "C"
