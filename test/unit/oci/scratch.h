#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

// What the tests of the container's file system share: a directory of their own, small libraries,
// and the rule that a test which cannot run says so, or fails where VGPU_REQUIRE names what it
// needs.
namespace vgpu::test {

inline bool is_required(std::string_view need) {
  const char* text =
      std::getenv("VGPU_REQUIRE");  // NOLINT(concurrency-mt-unsafe): tests set nothing
  const std::string list = "," + std::string(text == nullptr ? "" : text) + ",";
  return list.find("," + std::string(need) + ",") != std::string::npos;
}

// A new directory, removed at the end.
class Scratch {
 public:
  Scratch() {
    std::string pattern = "/tmp/vgpu-test-XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr)
      path_ = pattern;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void write(const std::string& path, std::string_view content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

inline void link(const std::string& path, const std::string& target) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::filesystem::create_symlink(target, path);
}

// The first bytes of a shared library; `tail` makes it differ from others. Class 1 is 32-bit,
// machine 62 x86-64, 183 aarch64.
#if defined(__x86_64__)
inline constexpr char kThisMachine = 62;
#else
inline constexpr char kThisMachine = static_cast<char>(183);
#endif
inline std::string library_bytes(std::string_view tail, char elf_class = 2,
                                 char machine = kThisMachine) {
  std::string bytes(
      "\x7f"
      "ELF",
      4);
  bytes += {elf_class, 1, 1};
  bytes.resize(16);
  bytes += {3, 0, machine, 0};
  bytes.resize(64);
  return bytes + std::string(tail);
}

}  // namespace vgpu::test
