#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include <gtest/gtest.h>

#include "limiter/shared_word.h"
#include "test/unit/limiter/ledger_support.h"

namespace vgpu::limiter {
namespace {

using Charge = Ledger::Charge;

constexpr std::uint64_t kGrace = VGPU_USAGE_GRACE_NS;

// A process that charged `bytes` and died.
void die_with(const TestUsageFile& file, std::uint64_t bytes) {
  TestLedger ledger(file);
  EXPECT_EQ(ledger.charge(bytes, 1U << 20U), Charge::kGranted);
}

// Locks `count` bytes of the file for as long as it lives.
class Holder {
 public:
  Holder(const TestUsageFile& file, std::int64_t offset, std::int64_t count)
      : fd_(open(file.path(), O_RDWR | O_CLOEXEC)) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = offset;
    lock.l_len = count;
    EXPECT_EQ(fcntl(fd_, F_OFD_SETLK, &lock), 0);
  }
  ~Holder() { close(fd_); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  Holder(Holder&&) = delete;
  Holder& operator=(Holder&&) = delete;

 private:
  int fd_;
};

// What closefrom would do to the limiter's descriptors on this file.
void close_descriptors_of(const std::string& path) {
  DIR* directory = opendir("/proc/self/fd");
  const int own = dirfd(directory);
  while (const dirent* entry =
             readdir(directory)) {  // NOLINT(concurrency-mt-unsafe): no other thread
    const int fd = std::atoi(entry->d_name);
    char target[4096] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (fd != own && readlink(link.c_str(), target, sizeof target - 1) > 0 && path == target) {
      close(fd);
    }
  }
  closedir(directory);
}

TEST(LedgerDeaths, KeepTheirBytesForTheTimeOfGrace) {
  const TestUsageFile file;
  die_with(file, 60);
  TestLedger ledger(file);
  EXPECT_EQ(ledger.charge(60, 100), Charge::kPending);
  TestTime::pass(kGrace - 10 * sys::kMillisecond);
  EXPECT_EQ(ledger.charge(60, 100), Charge::kPending);
  EXPECT_EQ(file.used(), 60U);
}

TEST(LedgerDeaths, ReturnTheirBytesAfterwards) {
  const TestUsageFile file;
  die_with(file, 60);
  TestLedger ledger(file);
  ASSERT_EQ(ledger.charge(60, 100), Charge::kPending);
  TestTime::sleep_until(ledger.next_return());
  EXPECT_EQ(ledger.charge(60, 100), Charge::kGranted);
  EXPECT_EQ(file.used(), 60U);
}

TEST(LedgerDeaths, AreNotWaitedForWhenTheLivingStandInTheWay) {
  const TestUsageFile file;
  die_with(file, 10);
  TestLedger living(file);
  ASSERT_EQ(living.charge(60, 100), Charge::kGranted);
  EXPECT_EQ(living.charge(50, 100), Charge::kRefused);
}

TEST(LedgerDeaths, ShowInFiguresUntilTheyAreOver) {
  const TestUsageFile file;
  die_with(file, 60);
  TestLedger ledger(file);
  TestTime::pass(sys::kSecond);
  EXPECT_EQ(ledger.used(0), 60U);
  TestTime::pass(kGrace);
  EXPECT_EQ(ledger.used(0), 0U);
}

TEST(LedgerDeaths, BetweenTheHalvesOfAChargeAreCorrected) {
  const TestUsageFile file;
  die_with(file, 60);
  add(file.file().devices[0].used, std::uint64_t{30});  // charged, and died before its slot knew
  store(file.file().slots[0].in_flight, 1U);
  TestLedger ledger(file);
  ledger.reap();
  TestTime::pass(kGrace);
  EXPECT_TRUE(ledger.reap());
  EXPECT_EQ(file.used(), 0U);
}

TEST(LedgerDeaths, OfAReaperLeaveNothingFrozen) {
  const TestUsageFile file;
  TestLedger ledger(file);
  ASSERT_EQ(ledger.charge(60, 100), Charge::kGranted);
  for (vgpu_usage_device& device : file.file().devices) {
    add(device.used, VGPU_USAGE_FROZEN);
  }
  EXPECT_EQ(ledger.charge(40, 100), Charge::kGranted);
  EXPECT_EQ(file.used(), 100U);
}

TEST(LedgerDeaths, FreeTheSlotForTheNextProcess) {
  const TestUsageFile file;
  die_with(file, 60);
  TestLedger(file).reap();
  TestTime::pass(kGrace);
  TestLedger(file).reap();
  TestLedger next(file);
  ASSERT_EQ(next.charge(5, 100), Charge::kGranted);
  EXPECT_EQ(load(file.file().slots[0].used[0]), 5U);
}

TEST(LedgerStops, InFlightPutTheRecountOffAndHangNobody) {
  const TestUsageFile file;
  TestLedger stopped(file);
  ASSERT_EQ(stopped.charge(10, 100), Charge::kGranted);
  store(file.file().slots[0].in_flight, 1U);
  die_with(file, 60);
  TestLedger ledger(file);
  ledger.reap();
  TestTime::pass(kGrace);
  const std::uint64_t start = TestTime::now();
  EXPECT_FALSE(ledger.reap());
  EXPECT_LT(TestTime::now() - start, 2 * Ledger::kPatience);
  EXPECT_EQ(file.used(), 70U);
  EXPECT_EQ(ledger.charge(30, 100), Charge::kGranted);
}

TEST(LedgerStops, OfAReaperRefuseAfterAShortWait) {
  const TestUsageFile file;
  TestLedger ledger(file);
  ASSERT_EQ(ledger.charge(10, 100), Charge::kGranted);
  const Holder reaper(file, VGPU_USAGE_REAP_LOCK_OFFSET, 1);
  add(file.file().devices[0].used, VGPU_USAGE_FROZEN);
  const std::uint64_t start = TestTime::now();
  EXPECT_EQ(ledger.charge(10, 100), Charge::kStuck);
  EXPECT_LT(TestTime::now() - start, 2 * Ledger::kPatience);
}

TEST(LedgerStops, OfAReaperLoseNoUncharge) {
  const TestUsageFile file;
  TestLedger ledger(file);
  ASSERT_EQ(ledger.charge(10, 100), Charge::kGranted);
  {
    const Holder reaper(file, VGPU_USAGE_REAP_LOCK_OFFSET, 1);
    add(file.file().devices[0].used, VGPU_USAGE_FROZEN);
    ledger.uncharge(0, 10);
  }
  EXPECT_EQ(ledger.charge(100, 100), Charge::kGranted);
}

TEST(LedgerSlots, AreRefusedWhenAllAreTaken) {
  const TestUsageFile file;
  for (vgpu_usage_slot& slot : file.file().slots) {
    store(slot.state, std::uint32_t{VGPU_SLOT_USED});
  }
  const Holder others(file, VGPU_USAGE_LOCK_OFFSET, VGPU_USAGE_SLOTS);
  TestLedger ledger(file);
  EXPECT_EQ(ledger.charge(1, 100), Charge::kNoSlot);
}

TEST(LedgerSlots, AreTakenUpAgainWhenTheProgramClosesOurDescriptor) {
  const TestUsageFile file;
  TestLedger ledger(file);
  ASSERT_EQ(ledger.charge(60, 100), Charge::kGranted);
  close_descriptors_of(file.path());
  TestTime::pass(sys::kSecond);
  ASSERT_EQ(ledger.charge(1, 100), Charge::kGranted);
  TestLedger other(file);
  other.reap();
  EXPECT_EQ(load(file.file().slots[0].state), std::uint32_t{VGPU_SLOT_USED});
}

TEST(LedgerSlots, AreChargedAnewWhenTheyWereTakenForDead) {
  const TestUsageFile file;
  TestLedger ledger(file);
  ASSERT_EQ(ledger.charge(60, 100), Charge::kGranted);
  close_descriptors_of(file.path());
  TestLedger other(file);
  other.reap();
  TestTime::pass(kGrace);
  other.reap();
  ASSERT_EQ(file.used(), 0U);
  EXPECT_EQ(ledger.charge(50, 100), Charge::kRefused);
  EXPECT_EQ(file.used(), 60U);
}

TEST(LedgerSlots, AreNotInheritedByAForkedChild) {
  const TestUsageFile file;
  TestLedger ledger(file);
  ASSERT_EQ(ledger.charge(60, 100), Charge::kGranted);
  const pid_t child = fork();
  if (child == 0) {
    ledger.forget_in_child();
    const bool alone = ledger.charge(20, 100) == Charge::kGranted &&
                       load(file.file().slots[1].used[0]) == 20 &&
                       load(file.file().slots[0].used[0]) == 60;
    _exit(alone ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  TestLedger other(file);
  other.reap();
  EXPECT_EQ(load(file.file().slots[0].state), std::uint32_t{VGPU_SLOT_USED});
  EXPECT_EQ(load(file.file().slots[1].state), std::uint32_t{VGPU_SLOT_DEAD});
}

TEST(LedgerSlots, HoldTheirLockByALowDescriptor) {
  const TestUsageFile file;
  const int high = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 500);
  TestLedger ledger(file);
  ASSERT_EQ(ledger.charge(1, 100), Charge::kGranted);
  bool low = false;
  for (int fd = 3; fd < high; ++fd) {
    char target[4096] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    low = low || (readlink(link.c_str(), target, sizeof target - 1) > 0 &&
                  std::string(target) == file.path());
  }
  close(high);
  EXPECT_TRUE(low);
}

}  // namespace
}  // namespace vgpu::limiter
