#ifndef VGPU_TEST_UNIT_LIMITER_LEDGER_SUPPORT_H
#define VGPU_TEST_UNIT_LIMITER_LEDGER_SUPPORT_H

#include <atomic>
#include <cstdint>

#include "limiter/ledger.h"
#include "test/unit/limiter/files.h"

namespace vgpu::limiter {

// Time that passes when somebody sleeps, and when a test says so.
struct TestTime {
  static std::uint64_t now() { return time.fetch_add(1); }
  static void sleep_until(std::uint64_t when) {
    std::uint64_t seen = time.load();
    while (seen < when && !time.compare_exchange_weak(seen, when)) {
    }
  }
  static void pass(std::uint64_t duration) { time.fetch_add(duration); }
  static inline std::atomic<std::uint64_t> time{1000 * sys::kSecond};
};

// As a process of the container has it. Several in one test stand for several processes: each holds
// its slot through a file description of its own. The destructor is a death.
struct TestLedger : Ledger {
  explicit TestLedger(const TestUsageFile& file) {
    opening = open(file.path(), {TestTime::now, TestTime::sleep_until});
  }
  ~TestLedger() { release(); }
  TestLedger(const TestLedger&) = delete;
  TestLedger& operator=(const TestLedger&) = delete;
  TestLedger(TestLedger&&) = delete;
  TestLedger& operator=(TestLedger&&) = delete;

  Charge charge(std::uint64_t bytes, std::uint64_t limit, std::uint64_t observed = 0) {
    return Ledger::charge(0, bytes, {.limit = limit, .observed_bytes = observed});
  }
  Opening opening;
};

}  // namespace vgpu::limiter

#endif
