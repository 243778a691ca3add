#pragma once

#include <cstddef>

namespace vgpu::sim {

// One exported driver symbol. The table is made at configure time from driver_symbols.txt, in byte
// order of the symbols.
struct Symbol {
  const char* name;
  int since;  // CUDA version
  void* address;
};

// NOLINTBEGIN(readability-identifier-naming): constants, of another file
extern const Symbol kSymbols[];
extern const size_t kSymbolCount;
// NOLINTEND(readability-identifier-naming)

// What a symbol without code of its own answers.
int stub(const char* function);

}  // namespace vgpu::sim
