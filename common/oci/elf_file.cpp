#include "common/oci/elf_file.h"

#include <elf.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

namespace vgpu::oci {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
#error "the driver exists for x86-64 and aarch64 only"
#endif
static_assert(std::endian::native == std::endian::little);

}  // namespace

Result<ElfKind> elf_kind(int fd) {
  // e_ident, e_type and e_machine lie at the same place in both classes.
  std::array<unsigned char, sizeof(Elf64_Ehdr)> bytes{};
  ssize_t length = 0;
  do {
    length = ::pread(fd, bytes.data(), bytes.size(), 0);
  } while (length < 0 && errno == EINTR);
  if (length < 0)
    return fail(system_error("read ELF header", errno));
  if (length < static_cast<ssize_t>(sizeof(Elf32_Ehdr)) ||
      std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0)
    return ElfKind::kNone;
  if (bytes[EI_CLASS] != ELFCLASS64 || bytes[EI_DATA] != ELFDATA2LSB)
    return ElfKind::kForeign;
  Elf64_Ehdr header{};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (length < static_cast<ssize_t>(sizeof header) || header.e_type != ET_DYN)
    return ElfKind::kNone;
  return header.e_machine == kMachine ? ElfKind::kNative : ElfKind::kForeign;
}

}  // namespace vgpu::oci
