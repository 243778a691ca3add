// Host pages and usage files for tests, as the host makes them.
#ifndef VGPU_TEST_UNIT_LIMITER_FILES_H
#define VGPU_TEST_UNIT_LIMITER_FILES_H

#include <string>
#include <vector>

#include "api/limiter/usage.h"

namespace vgpu::limiter {

constexpr std::uint64_t kMiB = 1U << 20U;

// A file that is mapped here as the host would write it, and gone with the object.
class SharedFile {
 public:
  explicit SharedFile(std::size_t size);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  SharedFile(SharedFile&&) = delete;
  SharedFile& operator=(SharedFile&&) = delete;

  const char* path() const { return path_.c_str(); }
  void truncate(std::size_t size) const;

 protected:
  void* memory() const { return memory_; }

 private:
  std::string path_;
  std::size_t size_;
  void* memory_ = nullptr;
};

struct Card {
  std::string uuid;  // 36 characters
  std::uint64_t limit = 0;
  std::uint64_t observed = 0;
  std::uint32_t flags = 0;
  std::uint64_t context = 320 * kMiB;
};

class TestHostPage : public SharedFile {
 public:
  TestHostPage();
  vgpu_host_page& page() const { return *static_cast<vgpu_host_page*>(memory()); }
  // The next generation, complete.
  void write(const std::vector<Card>& cards) const;
  // The next generation's copy without making it current.
  std::uint64_t prepare(const std::vector<Card>& cards) const;
  void beat(std::uint64_t heartbeat) const;
};

class TestUsageFile : public SharedFile {
 public:
  TestUsageFile();
  vgpu_usage_file& file() const { return *static_cast<vgpu_usage_file*>(memory()); }
  std::uint64_t used(unsigned device = 0) const;
};

}  // namespace vgpu::limiter

#endif
