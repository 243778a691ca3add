#include "test/unit/limiter/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include <gtest/gtest.h>

#include "limiter/shared_word.h"

namespace vgpu::limiter {

SharedFile::SharedFile(std::size_t size)
    : path_(testing::TempDir() + "vgpu-limiter-XXXXXX"), size_(size) {
  const int fd = mkostemp(path_.data(), O_CLOEXEC);
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0);
  memory_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
}

SharedFile::~SharedFile() {
  munmap(memory_, size_);
  unlink(path_.c_str());
}

void SharedFile::truncate(std::size_t size) const {
  EXPECT_EQ(::truncate(path(), static_cast<off_t>(size)), 0);
}

TestHostPage::TestHostPage() : SharedFile(sizeof(vgpu_host_page)) {
  std::memcpy(page().magic, VGPU_HOST_MAGIC, sizeof page().magic);
  page().version = VGPU_HOST_VERSION;
  page().size = sizeof(vgpu_host_page);
}

std::uint64_t TestHostPage::prepare(const std::vector<Card>& cards) const {
  const std::uint64_t generation = (load(page().current) >> 1U) + 1;
  vgpu_host_copy copy = {};
  copy.generation = generation;
  copy.device_count = static_cast<std::uint32_t>(cards.size());
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const std::string uuid = "GPU-" + cards[i].uuid;
    std::memcpy(copy.devices[i].uuid, uuid.data(), uuid.size());
    copy.devices[i].memory_limit = cards[i].limit;
    copy.devices[i].context_bytes = cards[i].context;
    copy.devices[i].observed_bytes = cards[i].observed;
    copy.devices[i].flags = cards[i].flags;
  }
  copy.checksum = vgpu_checksum(&copy, offsetof(vgpu_host_copy, checksum));
  auto* target = reinterpret_cast<std::uint64_t*>(&page().copies[generation & 1U]);
  std::uint64_t words[sizeof copy / sizeof(std::uint64_t)];
  std::memcpy(words, &copy, sizeof copy);
  for (std::size_t i = 0; i < sizeof copy / sizeof(std::uint64_t); ++i) {
    store(target[i], words[i]);
  }
  return generation << 1U | (generation & 1U);
}

void TestHostPage::write(const std::vector<Card>& cards) const {
  store(page().current, prepare(cards));
}

void TestHostPage::beat(std::uint64_t heartbeat) const {
  store(page().heartbeat, heartbeat);
}

TestUsageFile::TestUsageFile() : SharedFile(VGPU_USAGE_SIZE) {
  std::memcpy(file().magic, VGPU_USAGE_MAGIC, sizeof file().magic);
  file().version = VGPU_USAGE_VERSION;
  file().size = VGPU_USAGE_SIZE;
  file().slot_count = VGPU_USAGE_SLOTS;
  file().slot_size = sizeof(vgpu_usage_slot);
}

std::uint64_t TestUsageFile::used(unsigned device) const {
  return load(file().devices[device].used);
}

}  // namespace vgpu::limiter
