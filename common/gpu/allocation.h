#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/base/units.h"

// The allocation as values. The format is api/allocation.h's.
namespace vgpu::gpu {

enum class Policy { kOff, kDefault, kForce };
enum class OnLimit { kError, kKill };

struct CardShare {
  std::string uuid;  // "GPU-…" or "MIG-…"
  Bytes memory;      // gross
  Percent cores;     // 0 = unlimited
};

struct ContainerAllocation {
  std::vector<CardShare> cards;  // 1 to 16, distinct
  Policy policy = Policy::kDefault;
  std::uint32_t priority = 1;  // 0 high, 1 low
  OnLimit on_limit = OnLimit::kError;
  bool oversubscribe = false;
  std::vector<std::string> capabilities = {"compute",
                                           "utility"};  // of the driver, sorted as written
};

struct Allocation {
  std::uint64_t generation = 0;
  std::string pod;   // UID
  std::string node;  // name
  std::vector<std::pair<std::string, ContainerAllocation>> containers;

  // Null pointer if the allocation does not name that container.
  const ContainerAllocation* find(std::string_view container) const;
};

// kInvalidArgument unless the text is an allocation of version 1 in every part. Members it does not
// know are refused: a newer scheduler may mean a limit by them.
Result<Allocation> parse_allocation(std::string_view text);

// "GPU-" or "MIG-" and a UUID of 8-4-4-4-12 hexadecimal digits.
bool is_card_uuid(std::string_view text);
// 1 to 64 letters, digits and '-': a UID of the API server or of a static pod. Harmless as a file
// name.
bool is_pod_uid(std::string_view text);

}  // namespace vgpu::gpu
