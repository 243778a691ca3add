#include "limiter/doubt.h"

#include <atomic>

#include "api/limiter/host.h"
#include "limiter/sys.h"
#include "limiter/text.h"

namespace vgpu::limiter {
namespace {

struct Row {
  Answer answer;
  const char* text;
};

// In the order of the enumerators.
constexpr Row kRows[] = {
    {{CUDA_SUCCESS, NVML_SUCCESS}, ""},
    {{CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, NVML_ERROR_LIBRARY_NOT_FOUND},
     "gpu call refused; '/usr/lib/vgpu/driver' does not hold the driver's library; start the "
     "container "
     "through the vgpu runtime"},
    {{CUDA_ERROR_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND},
     "gpu call refused; this driver does not have the function; a newer driver does"},
    {{CUDA_ERROR_OPERATING_SYSTEM, NVML_ERROR_UNKNOWN},
     "gpu memory refused; '" VGPU_HOST_PATH
     "' cannot be opened; start the container through the vgpu runtime"},
    {{CUDA_ERROR_OPERATING_SYSTEM, NVML_ERROR_UNKNOWN},
     "gpu memory refused; '" VGPU_HOST_PATH
     "' is no limits page of version 1 or later; upgrade vgpu on the "
     "node and start the container again"},
    {{CUDA_ERROR_OUT_OF_MEMORY, NVML_ERROR_UNKNOWN},
     "gpu memory refused; '" VGPU_HOST_PATH
     "' has no whole copy of the limits; the node must write it again"},
    {{CUDA_ERROR_OUT_OF_MEMORY, NVML_ERROR_NO_PERMISSION},
     "gpu memory refused; a card of this container is not in its allocation; ask for as many cards "
     "as are used"},
    {{CUDA_ERROR_OPERATING_SYSTEM, NVML_ERROR_UNKNOWN},
     "gpu memory refused; '" VGPU_USAGE_PATH
     "' cannot be opened for writing; start the container through the "
     "vgpu runtime"},
    {{CUDA_ERROR_OPERATING_SYSTEM, NVML_ERROR_UNKNOWN},
     "gpu memory refused; '" VGPU_USAGE_PATH
     "' is no ledger of version 1 or later; start the container again"},
    {{CUDA_ERROR_OPERATING_SYSTEM, NVML_ERROR_UNKNOWN},
     "gpu memory refused; 1024 processes of this container use its cards already; end some of "
     "them"},
    {{CUDA_ERROR_OPERATING_SYSTEM, NVML_ERROR_UNKNOWN},
     "gpu memory refused; a stopped process of this container holds its ledger up; continue or end "
     "it"},
    {{CUDA_ERROR_OUT_OF_MEMORY, NVML_ERROR_UNKNOWN},
     "gpu memory refused; the process has no memory left for the limiter's tables; free some"},
};
constexpr unsigned kSaidRefused = 31;

std::atomic<std::uint32_t> said{0};

bool first_time(unsigned bit) {
  return (said.fetch_or(1U << bit) & (1U << bit)) == 0;
}

std::uint64_t mebibytes(std::uint64_t bytes) {
  return (bytes + (1U << 20U) - 1) >> 20U;
}

}  // namespace

Answer resolve(Doubt doubt) {
  const auto row = static_cast<unsigned>(doubt);
  if (doubt != Doubt::kNone && first_time(row)) {
    Text<256> line;
    line << "vgpu: " << kRows[row].text << "\n";
    sys::print(line.c_str(), line.size());
  }
  return kRows[row].answer;
}

void say_refused(const char* uuid, std::uint64_t bytes, std::uint64_t used, std::uint64_t limit,
                 bool hold) {
  if (!first_time(kSaidRefused)) {
    return;
  }
  Text<256> line;
  line << "vgpu: " << mebibytes(bytes) << " MiB refused on gpu 'GPU-" << uuid << "'; "
       << mebibytes(used) << " of " << mebibytes(limit) << " MiB are used"
       << (hold ? " and the node holds new memory back; try again later\n"
                : "; free memory or ask for a larger nvidia.com/gpumem\n");
  sys::print(line.c_str(), line.size());
}

void forget_what_was_said() {
  said.store(0);
}

}  // namespace vgpu::limiter
