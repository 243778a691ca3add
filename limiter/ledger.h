// This process's part in the usage file (api/limiter/usage.h, whose rules it carries out): charge
// before the driver allocates, uncharge after it has freed, return what the dead have left.
//
// Thread-safe. A charge is a handful of atomic operations; system calls happen when a process gets
// its slot, ten times a second to see that the slot is still held, and when the dead are looked
// for. Nobody waits longer than kPatience for anybody, stopped or dead.
#ifndef VGPU_LIMITER_LEDGER_H
#define VGPU_LIMITER_LEDGER_H

#include <atomic>
#include <cstdint>

#include "api/limiter/usage.h"
#include "limiter/spin_lock.h"
#include "limiter/sys.h"

namespace vgpu::limiter {

// The seam for time; both in ns of CLOCK_BOOTTIME.
struct LedgerClock {
  std::uint64_t (*now)() = sys::boot_time;
  void (*sleep_until)(std::uint64_t) = sys::sleep_until_boot_time;
};

struct Room {
  std::uint64_t limit = 0;           // bytes
  std::uint64_t observed_bytes = 0;  // what the host sees in use, 0 = it does not look
};

class Ledger {
 public:
  enum class Opening { kOk, kMissing, kInvalid };
  enum class Charge {
    kGranted,
    kRefused,  // the limit stands in the way
    kPending,  // only bytes of the dead stand in the way: try again at next_return()
    kNoSlot,   // every slot is taken
    kStuck,    // a stopped process holds the ledger up
  };

  static constexpr std::uint64_t kPatience = 100 * sys::kMillisecond;

  // Maps `path` (kept, not copied) and checks it. No slot is taken yet.
  Opening open(const char* path, LedgerClock clock = {});

  Charge charge(unsigned device, std::uint64_t bytes, Room room);
  // For memory that the driver holds already: counted whether it fits or not.
  bool charge_always(unsigned device, std::uint64_t bytes);
  void uncharge(unsigned device, std::uint64_t bytes);

  // Bytes charged to the container, at most a tenth of a second behind the deaths of its processes.
  std::uint64_t used(unsigned device);
  // When the next bytes of a dead process come back, at the latest.
  std::uint64_t next_return();
  // Looks for the dead and returns what they have left; false when somebody else was at it or held
  // it up.
  bool reap();

  // In the child of a fork: the slot and everything charged belong to the parent.
  void forget_in_child();
  // Gives the slot up as death would.
  void release();

 private:
  bool hold_slot();
  bool take_slot(int fd);
  bool find_slot(int fd);
  bool regain_slot();
  bool slot_is_ours() const;
  bool descriptor_is_ours(int fd) const;
  int open_descriptor() const;

  Charge try_charge(unsigned device, std::uint64_t bytes, Room room);
  bool enter(unsigned device, std::uint32_t* slot);
  void leave(std::uint32_t slot);
  bool wait_until_thawed(unsigned device);
  bool waiting_helps(unsigned device, std::uint64_t bytes, Room room) const;

  bool sweep(int fd);
  bool mark_dead(int fd, std::uint64_t now);
  bool recount(int fd, std::uint64_t now);
  bool wait_for_in_flight(int fd);
  bool lives(int fd, std::uint32_t slot) const;

  vgpu_usage_file* file_ = nullptr;
  const char* path_ = nullptr;
  sys::FileId id_;
  LedgerClock clock_;

  SpinLock registration_;  // guards the next four
  std::atomic<int> fd_{-1};
  std::atomic<std::int32_t> slot_{-1};
  std::atomic<std::uint64_t> started_{0};
  std::atomic<std::uint64_t> checked_{0};

  SpinLock reaping_;
  std::atomic<std::uint64_t> reaped_{0};
  std::atomic<std::uint64_t> mine_[VGPU_MAX_DEVICES] =
      {};  // bytes, to be charged anew should the slot be lost
};

}  // namespace vgpu::limiter

#endif
