#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "limiter/context_table.h"
#include "limiter/pointer_table.h"

namespace vgpu::limiter {
namespace {

bool put(PointerTable& table, std::uint64_t address, std::uint64_t bytes,
         std::uint64_t context = 1) {
  Allocation replaced;
  return table.put({.address = address, .bytes = bytes, .context = context}, &replaced);
}

TEST(PointerTable, GivesBackWhatWasPut) {
  PointerTable table;
  ASSERT_TRUE(put(table, 0x1000, 512));
  Allocation allocation;
  ASSERT_TRUE(table.take(0x1000, &allocation));
  EXPECT_EQ(allocation.bytes, 512U);
  EXPECT_FALSE(table.take(0x1000, &allocation));
  table.clear();
}

TEST(PointerTable, KnowsNoPointerThatWasNeverPut) {
  PointerTable table;
  Allocation allocation;
  EXPECT_FALSE(table.take(0x1000, &allocation));
  EXPECT_FALSE(table.take(0, &allocation));
}

TEST(PointerTable, TellsWhatARecordReplaces) {
  PointerTable table;
  ASSERT_TRUE(put(table, 0x1000, 512));
  Allocation replaced;
  ASSERT_TRUE(table.put({.address = 0x1000, .bytes = 1024}, &replaced));
  EXPECT_EQ(replaced.bytes, 512U);
  table.clear();
}

TEST(PointerTable, KeepsEveryRecordWhileItGrowsAndShrinks) {
  PointerTable table;
  constexpr std::uint64_t kCount = 50000;
  for (std::uint64_t i = 1; i <= kCount; ++i) {
    ASSERT_TRUE(put(table, i * 512, i));
  }
  Allocation allocation;
  for (std::uint64_t i = 1; i <= kCount; i += 2) {
    ASSERT_TRUE(table.take(i * 512, &allocation));
  }
  for (std::uint64_t i = 2; i <= kCount; i += 2) {
    ASSERT_TRUE(table.take(i * 512, &allocation));
    ASSERT_EQ(allocation.bytes, i);
  }
  table.clear();
}

TEST(PointerTable, TakesAllOfOneContextAndNothingElse) {
  PointerTable table;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    ASSERT_TRUE(put(table, i * 512, 1, i % 2));
  }
  EXPECT_EQ(table.take_context(0).bytes[0], 500U);
  EXPECT_EQ(table.take_context(0).bytes[0], 0U);
  EXPECT_EQ(table.take_context(1).bytes[0], 500U);
  table.clear();
}

TEST(PointerTable, ServesThreads) {
  PointerTable table;
  std::vector<std::thread> threads;
  std::atomic<int> lost{0};
  for (std::uint64_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      Allocation allocation;
      for (std::uint64_t i = 1; i <= 5000; ++i) {
        put(table, (t << 40U) + i * 512, i);
        lost += table.take((t << 40U) + i * 512, &allocation) && allocation.bytes == i ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(lost.load(), 0);
  table.clear();
}

TEST(ContextTable, NeverGivesASerialNumberTwice) {
  auto table = std::make_unique<ContextTable>();
  const std::uint64_t first = table->add({.bytes = 1});
  ContextRecord record;
  ASSERT_TRUE(table->take(first, &record));
  EXPECT_NE(table->add({.bytes = 1}), first);
}

TEST(ContextTable, HoldsOnePrimaryContextPerDevice) {
  auto table = std::make_unique<ContextTable>();
  EXPECT_NE(table->add({.ordinal = 0, .primary = true}), 0U);
  EXPECT_EQ(table->add({.ordinal = 0, .primary = true}), 0U);
  EXPECT_NE(table->add({.ordinal = 1, .primary = true}), 0U);
}

TEST(ContextTable, IsFullAtSomePoint) {
  auto table = std::make_unique<ContextTable>();
  int count = 0;
  while (count < 100000 && table->add({.bytes = 1}) != 0) {
    ++count;
  }
  EXPECT_EQ(count, 1024);
}

TEST(ContextTable, FindsByHandleOnceItIsKnown) {
  auto table = std::make_unique<ContextTable>();
  int context = 0;
  ContextRecord record;
  const std::uint64_t serial = table->add({.bytes = 7});
  EXPECT_FALSE(table->find(&context, &record));
  table->set_handle(serial, &context);
  ASSERT_TRUE(table->find(&context, &record));
  EXPECT_EQ(record.bytes, 7U);
}

}  // namespace
}  // namespace vgpu::limiter
