// Every doubt is resolved here, and in one way: new memory is refused.
#ifndef VGPU_LIMITER_DOUBT_H
#define VGPU_LIMITER_DOUBT_H

#include <cstdint>

#include "api/limiter/cuda_abi.h"
#include "api/limiter/nvml_abi.h"

namespace vgpu::limiter {

enum class Doubt : std::uint8_t {
  kNone,
  kNoDriver,
  kNoFunction,
  kNoHostPage,
  kBadHostPage,
  kTornHostPage,
  kUnknownCard,
  kNoUsageFile,
  kBadUsageFile,
  kNoSlot,
  kStuckLedger,
  kNoMemory,
};

struct Answer {
  CUresult cuda;
  nvmlReturn_t nvml;
};

/* What a hook answers when it cannot know better; the first time each is met, one line says so on
 * stderr.
 *
 *   doubt          what stands in the way                                   CUDA NVML no driver our
 * slot holds no driver, or holds us                    SHARED_OBJECT_INIT_FAILED LIBRARY_NOT_FOUND
 *   no function    this driver is too old to have the function              NOT_FOUND
 * FUNCTION_NOT_FOUND no host page   the host's page is not there OPERATING_SYSTEM         UNKNOWN
 *   bad host page  it is not a page we know, or shorter than it must be     OPERATING_SYSTEM
 * UNKNOWN torn host page its current copy does not check: every limit is zero     OUT_OF_MEMORY
 * UNKNOWN unknown card   a card the page does not name: its limit is zero         OUT_OF_MEMORY
 * NO_PERMISSION no usage file  the container's ledger is not there OPERATING_SYSTEM         UNKNOWN
 *   bad usage file it is not a ledger we know                               OPERATING_SYSTEM
 * UNKNOWN no slot        more processes use the cards than the ledger has slots   OPERATING_SYSTEM
 * UNKNOWN stuck ledger   a stopped process holds the ledger up                    OPERATING_SYSTEM
 * UNKNOWN no memory      no memory for our own tables                             OUT_OF_MEMORY
 * UNKNOWN
 */
Answer resolve(Doubt doubt);

// The line for an allocation that the limit refuses; printed once in a process. `uuid` without its
// "GPU-".
void say_refused(const char* uuid, std::uint64_t bytes, std::uint64_t used, std::uint64_t limit,
                 bool hold);

// A child of a fork says it for itself.
void forget_what_was_said();

}  // namespace vgpu::limiter

#endif
