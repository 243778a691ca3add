#include "common/gpu/host_page.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include <gtest/gtest.h>

#include "common/base/fd.h"

namespace vgpu::gpu {
namespace {

constexpr const char* kCard = "GPU-00000000-1111-2222-3333-444455556666";

vgpu_host_page page_of_one_card() {
  ContainerAllocation share;
  share.cards.push_back({kCard, 3000_MiB, Percent{30}});
  share.policy = Policy::kForce;
  share.on_limit = OnLimit::kKill;
  NodeFacts node;
  node.cards.push_back({kCard, 0, 320_MiB});
  return first_host_page(host_copy(share, 7, node));
}

const vgpu_host_copy& current(const vgpu_host_page& page) {
  return page.copies[page.current & 1U];
}

bool checks(const vgpu_host_page& page) {
  const vgpu_host_copy& copy = current(page);
  return copy.checksum == vgpu_checksum(&copy, offsetof(vgpu_host_copy, checksum)) &&
         copy.generation == page.current >> 1U;
}

UniqueFd file_with(const vgpu_host_page& page) {
  UniqueFd fd(::memfd_create("host", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), &page, sizeof page), static_cast<ssize_t>(sizeof page));
  return fd;
}

vgpu_host_page read_back(const UniqueFd& fd) {
  vgpu_host_page page{};
  EXPECT_EQ(::pread(fd.get(), &page, sizeof page, 0), static_cast<ssize_t>(sizeof page));
  return page;
}

TEST(HostPage, SaysWhatTheAllocationSays) {
  const vgpu_host_page page = page_of_one_card();
  EXPECT_EQ(std::memcmp(page.magic, VGPU_HOST_MAGIC, 8), 0);
  EXPECT_EQ(page.size, sizeof page);
  ASSERT_TRUE(checks(page));
  const vgpu_host_copy& copy = current(page);
  EXPECT_EQ(copy.allocation_generation, 7U);
  EXPECT_EQ(copy.policy, static_cast<unsigned>(VGPU_POLICY_FORCE));
  EXPECT_EQ(copy.on_limit, static_cast<unsigned>(VGPU_ON_LIMIT_KILL));
  ASSERT_EQ(copy.device_count, 1U);
  EXPECT_STREQ(static_cast<const char*>(copy.devices[0].uuid), kCard);
  EXPECT_EQ(copy.devices[0].memory_limit, (3000_MiB).count);
  EXPECT_EQ(copy.devices[0].context_bytes, (320_MiB).count);
  EXPECT_EQ(copy.devices[0].cores, 30U);
  EXPECT_EQ(copy.devices[0].dilation, 0x10000U);
}

TEST(HostPage, ChangesInPlaceInTheCopyNobodyReads) {
  const UniqueFd fd = file_with(page_of_one_card());
  ASSERT_TRUE(update_host_page(fd.get(), [](vgpu_host_copy& c) { c.devices[0].memory_limit = 5; }));
  const vgpu_host_page page = read_back(fd);
  EXPECT_EQ(page.current, 2U << 1U | 1U);
  ASSERT_TRUE(checks(page));
  EXPECT_EQ(current(page).devices[0].memory_limit, 5U);
  EXPECT_EQ(current(page).devices[0].cores, 30U);
  EXPECT_EQ(page.copies[0].devices[0].memory_limit, (3000_MiB).count);
}

TEST(HostPage, ThatIsDamagedIsNotChanged) {
  vgpu_host_page page = page_of_one_card();
  page.copies[0].devices[0].memory_limit = 1;
  const UniqueFd fd = file_with(page);
  EXPECT_FALSE(update_host_page(fd.get(), [](vgpu_host_copy&) {}));
  EXPECT_EQ(read_back(fd).current, page.current);
}

TEST(UsageHeader, IsTheBeginningOfAnEmptyLedger) {
  const auto file = std::make_unique<vgpu_usage_file>();
  const std::string header = usage_header();
  ASSERT_LE(header.size(), offsetof(vgpu_usage_file, devices));
  std::memcpy(static_cast<void*>(file.get()), header.data(), header.size());
  EXPECT_EQ(std::memcmp(file->magic, VGPU_USAGE_MAGIC, 8), 0);
  EXPECT_EQ(file->version, VGPU_USAGE_VERSION);
  EXPECT_EQ(file->size, VGPU_USAGE_SIZE);
  EXPECT_EQ(file->slot_count, VGPU_USAGE_SLOTS);
  EXPECT_EQ(file->slot_size, sizeof(vgpu_usage_slot));
}

}  // namespace
}  // namespace vgpu::gpu
