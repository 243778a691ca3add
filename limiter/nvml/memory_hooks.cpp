// NVML's view of memory: the container's share and use, from the same ledger as CUDA's.
#include "limiter/account.h"
#include "limiter/hook.h"

LIMITER_USES(nvmlDeviceGetUUID)

namespace vgpu::limiter {
namespace {

constexpr unsigned kUuidBuffer = 96;  // NVML's own word for a buffer that is large enough
constexpr unsigned kPrefix = 4;       // "GPU-" or "MIG-"

struct Figures {
  unsigned long long total = 0;
  unsigned long long used = 0;
};

nvmlReturn_t share_of(nvmlDevice_t device, unsigned long long total, Figures* figures) {
  char uuid[kUuidBuffer] = {};
  if (REAL(nvmlDeviceGetUUID) == nullptr) {
    return missing<nvmlReturn_t>();
  }
  const nvmlReturn_t result = REAL(nvmlDeviceGetUUID)(device, uuid, sizeof uuid);
  if (result != NVML_SUCCESS) {
    return result;
  }
  DeviceTerms terms;
  const Doubt doubt = account().terms(uuid + kPrefix, &terms);
  if (doubt == Doubt::kUnknownCard || doubt == Doubt::kTornHostPage) {
    *figures = Figures{};
    return NVML_SUCCESS;
  }
  if (doubt != Doubt::kNone) {
    return resolve(doubt).nvml;
  }
  const std::uint64_t used = account().used(terms);
  figures->total = total < terms.limit ? total : terms.limit;
  figures->used = used < figures->total ? used : figures->total;
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace vgpu::limiter

LIMITER_HOOK(nvmlReturn_t, nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t* memory)) {
  LIMITER_ENTER(nvmlDeviceGetMemoryInfo, device, memory);
  nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
  if (result != NVML_SUCCESS) {
    return result;
  }
  vgpu::limiter::Figures figures;
  result = vgpu::limiter::share_of(device, memory->total, &figures);
  *memory = {figures.total, figures.total - figures.used, figures.used};
  return result;
}

// What the driver reserves for itself on the whole card is nothing the container could have: with a
// reserve of 0 the figures add up.
LIMITER_HOOK(nvmlReturn_t, nvmlDeviceGetMemoryInfo_v2,
             (nvmlDevice_t device, nvmlMemory_v2_t* memory)) {
  LIMITER_ENTER(nvmlDeviceGetMemoryInfo_v2, device, memory);
  nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
  if (result != NVML_SUCCESS) {
    return result;
  }
  vgpu::limiter::Figures figures;
  result = vgpu::limiter::share_of(device, memory->total, &figures);
  *memory = {memory->version, figures.total, 0, figures.total - figures.used, figures.used};
  return result;
}
