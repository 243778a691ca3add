#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "test/fakes/nvidia/cuda/driver.h"
#include "test/fakes/nvidia/cuda/symbols.h"

namespace vgpu::sim {
namespace {

struct Form {
  bool matches;     // the symbol is the asked-for function in some version
  bool per_thread;  // in its _ptds or _ptsz form
};

// "_v2_ptsz" and the like: what may follow a function's name in its symbols.
Form parse_suffix(const char* rest) {
  if (strncmp(rest, "_v", 2) == 0 && rest[2] >= '0' && rest[2] <= '9') {
    rest += 2;
    while (*rest >= '0' && *rest <= '9')
      ++rest;
  }
  if (*rest == '\0')
    return Form{.matches = true, .per_thread = false};
  bool per_thread = strcmp(rest, "_ptds") == 0 || strcmp(rest, "_ptsz") == 0;
  return Form{.matches = per_thread, .per_thread = per_thread};
}

int driver_version() {
  return state() == nullptr ? 13000 : state()->file().options.cuda_version;
}

// The newest form of `name` that `version` knows; with `per_thread`, the per-thread form of the
// same age or newer if there is one.
const Symbol* choose(const char* name, int version, bool per_thread, bool* exists) {
  const Symbol* end = kSymbols + kSymbolCount;
  const Symbol* row = std::lower_bound(
      kSymbols, end, name,
      [](const Symbol& symbol, const char* key) { return strcmp(symbol.name, key) < 0; });
  const Symbol* plain = nullptr;
  const Symbol* threaded = nullptr;
  size_t length = strlen(name);
  for (; row != end && strncmp(row->name, name, length) == 0; ++row) {
    Form form = parse_suffix(row->name + length);
    if (!form.matches || row->since > driver_version())
      continue;
    *exists = true;
    if (row->since > version)
      continue;
    const Symbol*& best = form.per_thread ? threaded : plain;
    if (best == nullptr || row->since >= best->since)
      best = row;
  }
  if (per_thread && threaded != nullptr && (plain == nullptr || threaded->since >= plain->since))
    return threaded;
  return plain;
}

CUresult look_up(const char* symbol, void** function, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || function == nullptr || version > driver_version() ||
      flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
    return CUDA_ERROR_INVALID_VALUE;
  bool exists = false;
  const Symbol* found = nullptr;
  if (*symbol != '\0')
    found =
        choose(symbol, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &exists);
  *function = found == nullptr ? nullptr : found->address;
  if (status == nullptr)
    return CUDA_SUCCESS;
  if (found != nullptr)
    *status = CU_GET_PROC_ADDRESS_SUCCESS;
  else
    *status =
        exists ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}

}  // namespace

int stub(const char* function) {
  CUresult entered = enter_early(function);
  return entered != CUDA_SUCCESS ? entered : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace vgpu::sim

extern "C" {

CUresult cuGetProcAddress(const char* symbol, void** function, int cudaVersion, cuuint64_t flags) {
  SIM_ENTER_EARLY(cuGetProcAddress);
  return vgpu::sim::look_up(symbol, function, cudaVersion, flags, nullptr);
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  SIM_ENTER_EARLY(cuGetProcAddress_v2);
  return vgpu::sim::look_up(symbol, function, cudaVersion, flags, status);
}

// Data that the driver exports for debuggers.
// NOLINTBEGIN(readability-identifier-naming): the driver's names
extern uint32_t cudbgReportDriverApiErrorFlags;
extern uint32_t cudbgSessionId;
uint32_t cudbgReportDriverApiErrorFlags = 0;
uint32_t cudbgSessionId = 0;
// NOLINTEND(readability-identifier-naming)

}  // extern "C"
