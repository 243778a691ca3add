// Reader of the host page (api/limiter/host.h): what this container may use, as the host says now.
#ifndef VGPU_LIMITER_HOST_PAGE_H
#define VGPU_LIMITER_HOST_PAGE_H

#include <atomic>
#include <cstdint>

#include "api/limiter/host.h"

namespace vgpu::limiter {

// A UUID without its "GPU-" or "MIG-": 36 characters and a NUL.
constexpr unsigned kUuidTextSize = 37;

struct DeviceTerms {
  std::uint32_t index = 0;           // in the host page and in the usage file
  std::uint64_t limit = 0;           // bytes
  std::uint64_t context_bytes = 0;   // bytes
  std::uint64_t observed_bytes = 0;  // bytes; 0 unless the host has looked within the last 10 s
  bool hold = false;                 // no new memory for now
};

class HostPage {
 public:
  enum class Opening { kOk, kMissing, kInvalid };
  enum class Finding { kFound, kUnknownDevice, kTorn };

  // Maps the page once; checks magic, version and size. Without it nothing is found.
  Opening open(const char* path);
  // The terms of the card named `uuid` (kUuidTextSize), all from one generation of the page. `now`
  // is CLOCK_BOOTTIME in ns.
  Finding find(const char* uuid, std::uint64_t now, DeviceTerms* terms);

 private:
  bool is_whole(std::uint64_t current) const;

  const vgpu_host_page* page_ = nullptr;
  // The last `current` whose copy checked: the same word needs no second checksum.
  std::atomic<std::uint64_t> checked_{~std::uint64_t{0}};
};

}  // namespace vgpu::limiter

#endif
