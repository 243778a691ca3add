#pragma once

#include "common/base/result.h"

// What kind of library a foreign file is, by its first bytes alone.
namespace vgpu::oci {

enum class ElfKind {
  kNative,   // a shared object of this machine's class, byte order and architecture
  kForeign,  // a shared object of another one: 32-bit, another architecture
  kNone,     // anything else: empty, a linker script, not ELF
};

// Reads at most 64 bytes from the start of `fd`, which must be readable.
Result<ElfKind> elf_kind(int fd);

}  // namespace vgpu::oci
