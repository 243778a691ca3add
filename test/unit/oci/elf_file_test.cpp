#include "common/oci/elf_file.h"

#include <fcntl.h>

#include "common/base/fd.h"
#include "test/unit/oci/scratch.h"

namespace vgpu::oci {
namespace {

using test::library_bytes;

ElfKind kind_of(std::string_view content) {
  const test::Scratch scratch;
  test::write(scratch.path() + "/f", content);
  const UniqueFd file(::open((scratch.path() + "/f").c_str(), O_RDONLY | O_CLOEXEC));
  return elf_kind(file.get()).value();
}

TEST(ElfFile, KnowsALibraryOfThisMachine) {
  EXPECT_EQ(kind_of(library_bytes("")), ElfKind::kNative);
}

TEST(ElfFile, KnowsA32BitLibrary) {
  EXPECT_EQ(kind_of(library_bytes("", 1, 3)), ElfKind::kForeign);
}

TEST(ElfFile, KnowsALibraryOfAnotherArchitecture) {
  EXPECT_EQ(kind_of(library_bytes("", 2, 21)), ElfKind::kForeign);
}

TEST(ElfFile, TakesAnythingElseForNoLibrary) {
  EXPECT_EQ(kind_of(""), ElfKind::kNone);
  EXPECT_EQ(kind_of("\x7f"
                    "ELF"),
            ElfKind::kNone);
  EXPECT_EQ(kind_of("/* GNU ld script */ INPUT ( libcuda.so.1 ) with more text than a header has"),
            ElfKind::kNone);
}

TEST(ElfFile, TakesAnExecutableForNoLibrary) {
  std::string program = library_bytes("");
  program[16] = 2;
  EXPECT_EQ(kind_of(program), ElfKind::kNone);
}

}  // namespace
}  // namespace vgpu::oci
