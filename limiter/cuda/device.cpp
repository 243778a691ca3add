#include "limiter/cuda/device.h"

#include "limiter/hook.h"

LIMITER_USES(cuCtxGetCurrent)
LIMITER_USES(cuCtxGetDevice)
LIMITER_USES(cuDeviceGetUuid)
LIMITER_USES(cuDeviceGetUuid_v2)

namespace vgpu::limiter {
namespace {

constexpr int kMaxOrdinal = 64;

struct Name {
  std::atomic<bool> known{false};
  char text[kUuidTextSize] = {};
};

Name names[kMaxOrdinal];

void write_uuid(const CUuuid& uuid, char* text) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) {
      *text++ = '-';
    }
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    *text++ = kDigits[byte >> 4U];
    *text++ = kDigits[byte & 15U];
  }
  *text = '\0';
}

}  // namespace

// The ordinals of a process keep their cards for its life.
CUresult uuid_of(CUdevice ordinal, const char** uuid) {
  if (ordinal < 0 || ordinal >= kMaxOrdinal) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  Name& name = names[ordinal];
  if (!name.known.load(std::memory_order_acquire)) {
    const auto ask =
        REAL(cuDeviceGetUuid_v2) != nullptr ? REAL(cuDeviceGetUuid_v2) : REAL(cuDeviceGetUuid);
    if (ask == nullptr) {
      return missing<CUresult>();
    }
    CUuuid bytes = {};
    const CUresult result = ask(&bytes, ordinal);
    if (result != CUDA_SUCCESS) {
      return result;
    }
    const Locked lock(account().naming);
    if (!name.known.load(std::memory_order_acquire)) {
      write_uuid(bytes, name.text);
      name.known.store(true, std::memory_order_release);
    }
  }
  *uuid = name.text;
  return CUDA_SUCCESS;
}

CUresult current_place(Place* place) {
  if (REAL(cuCtxGetCurrent) == nullptr || REAL(cuCtxGetDevice) == nullptr) {
    return missing<CUresult>();
  }
  CUresult result = REAL(cuCtxGetDevice)(&place->ordinal);
  if (result == CUDA_SUCCESS) {
    result = REAL(cuCtxGetCurrent)(&place->context);
  }
  return result == CUDA_SUCCESS ? uuid_of(place->ordinal, &place->uuid) : result;
}

CUresult terms_of(const char* uuid, DeviceTerms* terms) {
  const Doubt doubt = account().terms(uuid, terms);
  // Zero is what may be used of it: a figure, not an error.
  const bool zero = doubt == Doubt::kUnknownCard || doubt == Doubt::kTornHostPage;
  const CUresult result = resolve(doubt).cuda;
  return zero ? CUDA_SUCCESS : result;
}

CUresult charge(const char* uuid, std::uint64_t bytes, std::uint32_t* device) {
  bool refused = false;
  const Doubt doubt = account().charge(uuid, bytes, device, &refused);
  if (doubt != Doubt::kNone) {
    return resolve(doubt).cuda;
  }
  return refused ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

}  // namespace vgpu::limiter
