#include "test/unit/limiter/fake_driver.h"

#include <cstring>

namespace vgpu::limiter {
namespace {

constexpr std::uint64_t kTotal = std::uint64_t{16} << 30U;

CUcontext context_of(int number) {
  static char handles[16];
  return reinterpret_cast<CUcontext>(&handles[number]);
}

CUresult get_device(CUdevice* device) {
  *device = fake_driver().current;
  return CUDA_SUCCESS;
}
CUresult get_current(CUcontext* context) {
  *context = context_of(fake_driver().current);
  return CUDA_SUCCESS;
}
// Device n's UUID is n in every byte.
CUresult get_uuid(CUuuid* uuid, CUdevice device) {
  std::memset(uuid->bytes, device, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}
CUresult primary_state(CUdevice /*device*/, unsigned* flags, int* active) {
  *flags = 0;
  *active = fake_driver().primary ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult primary_retain(CUcontext* context, CUdevice device) {
  fake_driver().primary = fake_driver().primary || fake_driver().answer == CUDA_SUCCESS;
  *context = context_of(device);
  return fake_driver().answer;
}
CUresult primary_release(CUdevice /*device*/) {
  fake_driver().primary = false;
  return CUDA_SUCCESS;
}
CUresult create(CUcontext* context, unsigned /*flags*/, CUdevice /*device*/) {
  *context = context_of(8 + fake_driver().contexts++ % 8);
  return fake_driver().answer;
}
CUresult destroy(CUcontext /*context*/) {
  return fake_driver().answer;
}
CUresult get_info(size_t* free_bytes, size_t* total) {
  *free_bytes = kTotal;
  *total = kTotal;
  return CUDA_SUCCESS;
}
CUresult old_info(unsigned* free_bytes, unsigned* total) {
  *free_bytes = 17;
  *total = 17;
  return CUDA_SUCCESS;
}
// Asks through the exported name, as a driver would that is linked without -Bsymbolic.
CUresult allocate(CUdeviceptr* pointer, size_t /*bytes*/) {
  size_t free_bytes = 0;
  size_t total = 0;
  cuMemGetInfo_v2(&free_bytes, &total);
  fake_driver().seen_inside = total;
  fake_driver().allocations++;
  *pointer = fake_driver().next;
  fake_driver().next += 0x10000;
  return fake_driver().answer;
}
CUresult allocate_pitch(CUdeviceptr* pointer, size_t* pitch, size_t /*width*/, size_t /*height*/,
                        unsigned /*size*/) {
  *pitch = fake_driver().pitch;
  return allocate(pointer, 0);
}
CUresult release(CUdeviceptr /*pointer*/) {
  fake_driver().frees++;
  return fake_driver().answer;
}
CUresult look_up(const char* /*name*/, void** function, int /*version*/, cuuint64_t /*flags*/,
                 CUdriverProcAddressQueryResult* /*status*/) {
  *function = fake_driver().looked_up;
  return CUDA_SUCCESS;
}
nvmlReturn_t nvml_uuid(nvmlDevice_t /*device*/, char* uuid, unsigned /*size*/) {
  constexpr char kUuid[] = "GPU-00000000-0000-0000-0000-000000000000";
  std::memcpy(uuid, kUuid, sizeof kUuid);
  return NVML_SUCCESS;
}
nvmlReturn_t nvml_memory(nvmlDevice_t /*device*/, nvmlMemory_t* memory) {
  *memory = {kTotal, kTotal / 2, kTotal / 2};
  return NVML_SUCCESS;
}

struct Entry {
  const char* name;
  void* address;
};

template <typename T>
void* address(T* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

FakeDriver& fake_driver() {
  static FakeDriver driver;
  return driver;
}

void* find_in_fake_driver(const char* name) {
  const Entry entries[] = {
      {"cuCtxGetDevice", address(get_device)},
      {"cuCtxGetCurrent", address(get_current)},
      {"cuDeviceGetUuid", address(get_uuid)},
      {"cuDevicePrimaryCtxGetState", address(primary_state)},
      {"cuDevicePrimaryCtxRetain", address(primary_retain)},
      {"cuDevicePrimaryCtxRelease_v2", address(primary_release)},
      {"cuCtxCreate_v2", address(create)},
      {"cuCtxDestroy_v2", address(destroy)},
      {"cuMemGetInfo_v2", address(get_info)},
      {"cuMemGetInfo", address(old_info)},
      {"cuMemAlloc_v2", address(allocate)},
      {"cuMemAllocPitch_v2", address(allocate_pitch)},
      {"cuMemFree_v2", address(release)},
      {"cuGetProcAddress_v2", address(look_up)},
      {"nvmlDeviceGetUUID", address(nvml_uuid)},
      {"nvmlDeviceGetMemoryInfo", address(nvml_memory)},
  };
  for (const Entry& entry : entries) {
    if (std::strcmp(entry.name, name) == 0) {
      return entry.address;
    }
  }
  return nullptr;
}

}  // namespace vgpu::limiter
