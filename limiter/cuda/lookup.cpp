#include "limiter/cuda/lookup.h"

#include <cstring>

#include "limiter/hook.h"

namespace vgpu::limiter {
namespace {

struct Version {
  const char* name;    // as cuGetProcAddress takes it
  int since;           // the first CUDA version that means this symbol
  const char* symbol;  // as exported
};

// Every version of every function whose accounting matters, from driver_symbols.tsv.
constexpr Version kVersions[] = {
#include "limiter/driver_versions.inc"
};

bool is_per_thread(const char* symbol) {
  const std::size_t length = std::strlen(symbol);
  return length > 5 && (std::strcmp(symbol + length - 5, "_ptds") == 0 ||
                        std::strcmp(symbol + length - 5, "_ptsz") == 0);
}

const HookRow* row_of(const char* symbol) {
  for (const HookRow* row = hooks_begin(); symbol != nullptr && row != hooks_end(); ++row) {
    if (row->hook != nullptr && std::strcmp(row->name, symbol) == 0) {
      return row;
    }
  }
  return nullptr;
}

}  // namespace

const char* symbol_meant(const char* name, int version, cuuint64_t flags) {
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const Version* best = nullptr;
  for (const Version& candidate : kVersions) {
    if (std::strcmp(candidate.name, name) != 0 || candidate.since > version ||
        (is_per_thread(candidate.symbol) && !per_thread)) {
      continue;
    }
    const bool newer = best == nullptr || candidate.since > best->since;
    const bool same_for_thread =
        best != nullptr && candidate.since == best->since && is_per_thread(candidate.symbol);
    if (newer || same_for_thread) {
      best = &candidate;
    }
  }
  return best == nullptr ? nullptr : best->symbol;
}

// By address first: version and flags then stay the driver's business. When two functions share one
// address, the name decides; and by name alone when the driver answers with an entry point that it
// does not export.
void* translated(const char* name, int version, cuuint64_t flags, void* found) {
  if (found == nullptr || name == nullptr) {
    return found;
  }
  const HookRow* meant = row_of(symbol_meant(name, version, flags));
  if (meant != nullptr && *meant->real == found) {
    return meant->hook;
  }
  for (const HookRow* row = hooks_begin(); row != hooks_end(); ++row) {
    if (row->hook == found) {
      return found;
    }
    if (row->hook != nullptr && *row->real == found) {
      return row->hook;
    }
  }
  return meant != nullptr ? meant->hook : found;
}

}  // namespace vgpu::limiter
