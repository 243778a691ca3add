#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "limiter/shared_word.h"
#include "test/unit/limiter/ledger_support.h"

namespace vgpu::limiter {
namespace {

using Charge = Ledger::Charge;

TEST(Ledger, GrantsWhatFits) {
  const TestUsageFile file;
  TestLedger ledger(file);
  EXPECT_EQ(ledger.charge(60, 100), Charge::kGranted);
  EXPECT_EQ(ledger.charge(40, 100), Charge::kGranted);
  EXPECT_EQ(file.used(), 100U);
}

TEST(Ledger, RefusesTheChargeThatWouldCrossTheLimit) {
  const TestUsageFile file;
  TestLedger ledger(file);
  ASSERT_EQ(ledger.charge(60, 100), Charge::kGranted);
  EXPECT_EQ(ledger.charge(41, 100), Charge::kRefused);
  EXPECT_EQ(file.used(), 60U);
}

TEST(Ledger, RefusesSizesThatWouldWrap) {
  const TestUsageFile file;
  TestLedger ledger(file);
  ASSERT_EQ(ledger.charge(60, 100), Charge::kGranted);
  EXPECT_EQ(ledger.charge(UINT64_MAX - 10, 100), Charge::kRefused);
}

TEST(Ledger, CountsHowOftenItRefused) {
  const TestUsageFile file;
  TestLedger ledger(file);
  ledger.charge(101, 100);
  ledger.charge(101, 100);
  EXPECT_EQ(load(file.file().devices[0].refused), 2U);
}

TEST(Ledger, RefusesEverythingWhenTheLimitHasShrunkBelowUse) {
  const TestUsageFile file;
  TestLedger ledger(file);
  ASSERT_EQ(ledger.charge(60, 100), Charge::kGranted);
  EXPECT_EQ(ledger.charge(1, 50), Charge::kRefused);
}

TEST(Ledger, GivesBackWhatIsUncharged) {
  const TestUsageFile file;
  TestLedger ledger(file);
  ASSERT_EQ(ledger.charge(60, 100), Charge::kGranted);
  ledger.uncharge(0, 60);
  EXPECT_EQ(file.used(), 0U);
  EXPECT_EQ(ledger.charge(100, 100), Charge::kGranted);
}

TEST(Ledger, NeverGivesBackMoreThanItsOwn) {
  const TestUsageFile file;
  TestLedger other(file);
  TestLedger ledger(file);
  ASSERT_EQ(other.charge(50, 100), Charge::kGranted);
  ASSERT_EQ(ledger.charge(10, 100), Charge::kGranted);
  ledger.uncharge(0, 30);
  EXPECT_EQ(file.used(), 50U);
}

TEST(Ledger, CountsWhatTheHostSeesWhenThatIsMore) {
  const TestUsageFile file;
  TestLedger ledger(file);
  EXPECT_EQ(ledger.charge(30, 100, 80), Charge::kRefused);
  EXPECT_EQ(ledger.charge(20, 100, 80), Charge::kGranted);
}

TEST(Ledger, CountsMemoryThatIsThereAlreadyWhetherItFitsOrNot) {
  const TestUsageFile file;
  TestLedger ledger(file);
  ASSERT_TRUE(ledger.charge_always(0, 500));
  EXPECT_EQ(file.used(), 500U);
  EXPECT_EQ(ledger.charge(1, 100), Charge::kRefused);
}

TEST(Ledger, SharesOneLimitBetweenProcesses) {
  const TestUsageFile file;
  TestLedger first(file);
  TestLedger second(file);
  ASSERT_EQ(first.charge(60, 100), Charge::kGranted);
  EXPECT_EQ(second.charge(60, 100), Charge::kRefused);
}

TEST(Ledger, GivesEachProcessASlotOfItsOwn) {
  const TestUsageFile file;
  TestLedger first(file);
  TestLedger second(file);
  first.charge(10, 100);
  second.charge(20, 100);
  EXPECT_EQ(load(file.file().slots[0].used[0]), 10U);
  EXPECT_EQ(load(file.file().slots[1].used[0]), 20U);
}

TEST(Ledger, TakesNoSlotForLooking) {
  const TestUsageFile file;
  TestLedger ledger(file);
  EXPECT_EQ(ledger.used(0), 0U);
  EXPECT_EQ(load(file.file().slots[0].state), std::uint32_t{VGPU_SLOT_FREE});
}

TEST(Ledger, NeverPassesTheLimitWhenThreadsRace) {
  const TestUsageFile file;
  TestLedger ledger(file);
  std::atomic<int> granted{0};
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      while (ledger.charge(7, 10000) == Charge::kGranted) {
        granted.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(granted.load(), 10000 / 7);
  EXPECT_EQ(file.used(), 7U * (10000 / 7));
}

TEST(Ledger, IsEmptyAgainAfterThreadsChargeAndUncharge) {
  const TestUsageFile file;
  TestLedger ledger(file);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 2000; ++round) {
        if (ledger.charge(5, 1000) == Charge::kGranted) {
          ledger.uncharge(0, 5);
        }
        if (round % 100 == 0) {
          ledger.reap();
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(file.used(), 0U);
}

TEST(Ledger, IsMissingWhereThereIsNoFile) {
  Ledger ledger;
  EXPECT_EQ(ledger.open("/nonexistent/usage"), Ledger::Opening::kMissing);
}

TEST(Ledger, RefusesAFileThatIsTooShort) {
  const TestUsageFile file;
  file.truncate(VGPU_USAGE_SIZE - 1);
  EXPECT_EQ(TestLedger(file).opening, Ledger::Opening::kInvalid);
}

TEST(Ledger, RefusesAFileOfAnotherKind) {
  const TestUsageFile file;
  file.file().magic[0] = 'X';
  EXPECT_EQ(TestLedger(file).opening, Ledger::Opening::kInvalid);
}

TEST(Ledger, RefusesAFileWhoseSlotsAreLaidOutOtherwise) {
  const TestUsageFile file;
  file.file().slot_size = 256;
  EXPECT_EQ(TestLedger(file).opening, Ledger::Opening::kInvalid);
}

}  // namespace
}  // namespace vgpu::limiter
