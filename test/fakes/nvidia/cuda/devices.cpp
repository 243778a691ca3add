#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "test/fakes/nvidia/cuda/driver.h"

namespace vgpu::sim {
namespace {

void parse_uuid(const char* text, CUuuid* uuid) {
  memset(uuid, 0, sizeof *uuid);
  size_t digits = 0;
  for (const char* p = text + 4; *p != '\0' && digits < 32; ++p) {
    if (*p == '-')
      continue;
    char digit[2] = {*p, '\0'};
    auto value = static_cast<unsigned>(strtoul(digit, nullptr, 16));
    auto byte = static_cast<unsigned char>(uuid->bytes[digits / 2]);
    uuid->bytes[digits / 2] = static_cast<char>(byte << 4 | value);
    ++digits;
  }
}

// Domain, bus, device of "00000000:3B:00.0".
void parse_bus_id(const char* text, unsigned (&parts)[3]) {
  char* end = nullptr;
  parts[0] = static_cast<unsigned>(strtoul(text, &end, 16));
  parts[1] = *end == ':' ? static_cast<unsigned>(strtoul(end + 1, &end, 16)) : 0;
  parts[2] = *end == ':' ? static_cast<unsigned>(strtoul(end + 1, &end, 16)) : 0;
}

bool attribute(const Card& card, int attribute, int* value) {
  unsigned pci[3];
  parse_bus_id(card.bus_id, pci);
  const struct {
    int attribute;
    int value;
  } table[] = {
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, static_cast<int>(card.multiprocessors)},
      {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, static_cast<int>(pci[1])},
      {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, static_cast<int>(pci[2])},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 1536},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, static_cast<int>(pci[0])},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, static_cast<int>(card.capability_major)},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, static_cast<int>(card.capability_minor)},
  };
  for (const auto& row : table) {
    if (row.attribute != attribute)
      continue;
    *value = row.value;
    return true;
  }
  // The attributes that exist and that nothing here depends on are simply absent features.
  *value = 0;
  return attribute > 0 && attribute < 150;
}

}  // namespace
}  // namespace vgpu::sim

using vgpu::sim::card_of;
using vgpu::sim::Device;
using vgpu::sim::driver;
using vgpu::sim::find_device;

extern "C" {

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  SIM_ENTER(cuDeviceGet);
  if (device == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  if (find_device(ordinal) == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  SIM_ENTER(cuDeviceGetCount);
  if (count == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  *count = static_cast<int>(driver().devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  SIM_ENTER(cuDeviceGetName);
  if (name == nullptr || size <= 0)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  Device* found = find_device(device);
  if (found == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, static_cast<size_t>(size), "%s", card_of(*found).name);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  SIM_ENTER(cuDeviceGetUuid);
  if (uuid == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  Device* found = find_device(device);
  if (found == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  vgpu::sim::parse_uuid(card_of(*found).uuid, uuid);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  SIM_ENTER(cuDeviceGetUuid_v2);
  return cuDeviceGetUuid(uuid, device);
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  SIM_ENTER(cuDeviceGetAttribute);
  if (value == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  Device* found = find_device(device);
  if (found == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  return vgpu::sim::attribute(card_of(*found), attribute, value) ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetPCIBusId(char* id, int size, CUdevice device) {
  SIM_ENTER(cuDeviceGetPCIBusId);
  if (id == nullptr || size <= 0)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  Device* found = find_device(device);
  if (found == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  unsigned pci[3];
  vgpu::sim::parse_bus_id(card_of(*found).bus_id, pci);
  snprintf(id, static_cast<size_t>(size), "%04x:%02x:%02x.0", pci[0], pci[1], pci[2]);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  SIM_ENTER(cuDeviceGetByPCIBusId);
  if (device == nullptr || id == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  unsigned wanted[3];
  vgpu::sim::parse_bus_id(id, wanted);
  for (size_t i = 0; i < driver().devices.size(); ++i) {
    unsigned pci[3];
    vgpu::sim::parse_bus_id(card_of(driver().devices[i]).bus_id, pci);
    if (memcmp(pci, wanted, sizeof pci) != 0)
      continue;
    *device = static_cast<CUdevice>(i);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  SIM_ENTER(cuDeviceComputeCapability);
  if (major == nullptr || minor == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  Device* found = find_device(device);
  if (found == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  *major = static_cast<int>(card_of(*found).capability_major);
  *minor = static_cast<int>(card_of(*found).capability_minor);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  SIM_ENTER(cuDeviceTotalMem_v2);
  if (bytes == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  Device* found = find_device(device);
  if (found == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  *bytes = card_of(*found).total - card_of(*found).reserved;
  return CUDA_SUCCESS;
}

// The ABI of CUDA 2.0, when device memory had 32-bit sizes: more than fits is shown as the most
// that fits.
CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice device) {
  SIM_ENTER(cuDeviceTotalMem);
  size_t wide = 0;
  CUresult result =
      bytes == nullptr ? CUDA_ERROR_INVALID_VALUE : cuDeviceTotalMem_v2(&wide, device);
  if (result == CUDA_SUCCESS)
    *bytes = wide > UINT32_MAX ? UINT32_MAX : static_cast<unsigned>(wide);
  return result;
}

}  // extern "C"
