#include <strings.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "test/fakes/nvidia/nvml/nvml.h"

namespace vgpu::sim {

bool is_device(nvmlDevice_t device) {
  Nvml& me = nvml();
  const std::lock_guard<std::mutex> guard(me.lock);
  return std::find(me.devices.begin(), me.devices.end(), device) != me.devices.end();
}

Card& card_of(nvmlDevice_t device) {
  return nvml().state->file().cards[device->card];
}

namespace {

// Domain, bus and device of "00000000:3B:00.0", with any number of digits.
bool parse_bus_id(const char* text, unsigned (&parts)[3]) {
  return sscanf(text, "%x:%x:%x", &parts[0], &parts[1], &parts[2]) ==
         3;  // NOLINT(cert-err34-c): hexadecimal, bounded by use
}

bool same_bus_id(const char* left, const char* right) {
  unsigned a[3];
  unsigned b[3];
  return parse_bus_id(left, a) && parse_bus_id(right, b) && memcmp(a, b, sizeof a) == 0;
}

nvmlReturn_t put_number(unsigned value, unsigned* out) {
  if (out == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  *out = value;
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace vgpu::sim

using vgpu::sim::Card;
using vgpu::sim::card_of;
using vgpu::sim::nvml;
using vgpu::sim::put_text;

extern "C" {

nvmlReturn_t nvmlDeviceGetCount(unsigned int* count) {
  return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) {
  SIM_ENTER(nvmlDeviceGetCount_v2);
  if (count == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  *count = static_cast<unsigned>(nvml().devices.size());
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  SIM_ENTER(nvmlDeviceGetHandleByIndex_v2);
  if (device == nullptr || index >= nvml().devices.size())
    return NVML_ERROR_INVALID_ARGUMENT;
  *device = nvml().devices[index];
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  SIM_ENTER(nvmlDeviceGetHandleByUUID);
  if (uuid == nullptr || device == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  for (nvmlDevice_t candidate : nvml().devices) {
    if (strcasecmp(card_of(candidate).uuid, uuid) != 0)
      continue;
    *device = candidate;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) {
  SIM_ENTER(nvmlDeviceGetHandleByPciBusId_v2);
  if (id == nullptr || device == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  for (nvmlDevice_t candidate : nvml().devices) {
    if (!vgpu::sim::same_bus_id(card_of(candidate).bus_id, id))
      continue;
    *device = candidate;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  SIM_ENTER_DEVICE(nvmlDeviceGetName, device);
  return put_text(card_of(device).name, name, length);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  SIM_ENTER_DEVICE(nvmlDeviceGetIndex, device);
  if (index == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  const auto& devices = nvml().devices;
  *index =
      static_cast<unsigned>(std::find(devices.begin(), devices.end(), device) - devices.begin());
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minor) {
  SIM_ENTER_DEVICE(nvmlDeviceGetMinorNumber, device);
  if (minor == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  *minor = card_of(device).minor;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  SIM_ENTER_DEVICE(nvmlDeviceGetUUID, device);
  return put_text(card_of(device).uuid, uuid, length);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  SIM_ENTER_DEVICE(nvmlDeviceGetPciInfo_v3, device);
  if (pci == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  const Card& card = card_of(device);
  unsigned parts[3] = {};
  vgpu::sim::parse_bus_id(card.bus_id, parts);
  *pci = nvmlPciInfo_t{};
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", parts[0] & 0xffff,
           parts[1] & 0xff, parts[2] & 0xff);
  snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", parts[0], parts[1] & 0xff,
           parts[2] & 0xff);
  pci->domain = parts[0];
  pci->bus = parts[1];
  pci->device = parts[2];
  pci->pciDeviceId = card.pci_device_id;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  SIM_ENTER_DEVICE(nvmlDeviceGetCudaComputeCapability, device);
  if (major == nullptr || minor == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  *major = static_cast<int>(card_of(device).capability_major);
  *minor = static_cast<int>(card_of(device).capability_minor);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t* memory) {
  SIM_ENTER_DEVICE(nvmlDeviceGetBAR1MemoryInfo, device);
  if (memory == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  constexpr unsigned long long kAperture = 256ULL << 20;
  constexpr unsigned long long kInUse = 2ULL << 20;
  *memory =
      nvmlBAR1Memory_t{.bar1Total = kAperture, .bar1Free = kAperture - kInUse, .bar1Used = kInUse};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int* node) {
  SIM_ENTER_DEVICE(nvmlDeviceGetNumaNodeId, device);
  if (card_of(device).numa_node < 0)
    return NVML_ERROR_NOT_SUPPORTED;
  return vgpu::sim::put_number(static_cast<unsigned>(card_of(device).numa_node), node);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int* mode) {
  SIM_ENTER_DEVICE(nvmlDeviceGetComputeMode, device);
  return vgpu::sim::put_number(0, mode);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int* mode) {
  SIM_ENTER_DEVICE(nvmlDeviceGetPersistenceMode, device);
  return vgpu::sim::put_number(0, mode);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor,
                                      unsigned int* celsius) {
  SIM_ENTER_DEVICE(nvmlDeviceGetTemperature, device);
  return sensor != 0 ? NVML_ERROR_INVALID_ARGUMENT : vgpu::sim::put_number(40, celsius);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* milliwatts) {
  SIM_ENTER_DEVICE(nvmlDeviceGetPowerUsage, device);
  return vgpu::sim::put_number(30000, milliwatts);
}

}  // extern "C"
