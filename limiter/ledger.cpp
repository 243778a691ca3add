#include "limiter/ledger.h"

#include <cstring>

#include "limiter/shared_word.h"

namespace vgpu::limiter {
namespace {

constexpr std::uint64_t kCheckEvery = 100 * sys::kMillisecond;
constexpr std::uint64_t kFrozenIsSuspect = 2 * sys::kMillisecond;
constexpr std::uint64_t kPause = sys::kMillisecond / 20;

bool is_frozen(std::uint64_t used) {
  return (used & VGPU_USAGE_FROZEN) != 0;
}

std::uint64_t larger(std::uint64_t a, std::uint64_t b) {
  return a > b ? a : b;
}

}  // namespace

Ledger::Opening Ledger::open(const char* path, LedgerClock clock) {
  const int fd = sys::open_file(path, true);
  if (fd < 0) {
    return Opening::kMissing;
  }
  sys::FileId id;
  const bool large_enough = sys::identify(fd, &id) && id.size >= VGPU_USAGE_SIZE;
  auto* file = large_enough
                   ? static_cast<vgpu_usage_file*>(sys::map_file(fd, VGPU_USAGE_SIZE, true))
                   : nullptr;
  sys::close_file(fd);
  if (file == nullptr) {
    return Opening::kInvalid;
  }
  if (std::memcmp(file->magic, VGPU_USAGE_MAGIC, sizeof file->magic) != 0 ||
      load(file->version) < VGPU_USAGE_VERSION || load(file->size) < VGPU_USAGE_SIZE ||
      load(file->slot_count) != VGPU_USAGE_SLOTS ||
      load(file->slot_size) != sizeof(vgpu_usage_slot)) {
    sys::unmap(file, VGPU_USAGE_SIZE);
    return Opening::kInvalid;
  }
  file_ = file;
  path_ = path;
  id_ = id;
  clock_ = clock;
  return Opening::kOk;
}

Ledger::Charge Ledger::charge(unsigned device, std::uint64_t bytes, Room room) {
  if (!hold_slot()) {
    return Charge::kNoSlot;
  }
  Charge answer = try_charge(device, bytes, room);
  if (answer == Charge::kRefused) {
    reap();
    answer = try_charge(device, bytes, room);
  }
  if (answer == Charge::kRefused) {
    if (waiting_helps(device, bytes, room)) {
      return Charge::kPending;
    }
    add(file_->devices[device].refused, std::uint64_t{1});
  }
  return answer;
}

Ledger::Charge Ledger::try_charge(unsigned device, std::uint64_t bytes, Room room) {
  for (;;) {
    std::uint32_t slot = 0;
    if (!enter(device, &slot)) {
      return Charge::kStuck;
    }
    std::uint64_t used = load(file_->devices[device].used);
    while (!is_frozen(used)) {
      const std::uint64_t held = larger(used, room.observed_bytes);
      if (held > room.limit || bytes > room.limit - held) {
        leave(slot);
        return Charge::kRefused;
      }
      if (replace(file_->devices[device].used, used, used + bytes)) {
        add(file_->slots[slot].used[device], bytes);
        mine_[device].fetch_add(bytes);
        leave(slot);
        return Charge::kGranted;
      }
    }
    leave(slot);
  }
}

bool Ledger::charge_always(unsigned device, std::uint64_t bytes) {
  std::uint32_t slot = 0;
  if (!hold_slot() || !enter(device, &slot)) {
    return false;
  }
  add(file_->devices[device].used, bytes);
  add(file_->slots[slot].used[device], bytes);
  mine_[device].fetch_add(bytes);
  leave(slot);
  return true;
}

void Ledger::uncharge(unsigned device, std::uint64_t bytes) {
  const std::int32_t held = slot_.load();
  std::uint64_t mine = mine_[device].load();
  while (!mine_[device].compare_exchange_weak(mine, mine < bytes ? 0 : mine - bytes)) {
  }
  if (!slot_is_ours()) {
    return;
  }
  std::uint32_t slot = 0;
  if (!enter(device, &slot)) {
    // Somebody holds the ledger up. Our slot alone is put right: the sum is too high until the next
    // recount, never too low.
    subtract_saturating(file_->slots[held].used[device], bytes);
    return;
  }
  subtract_saturating(file_->devices[device].used,
                      subtract_saturating(file_->slots[slot].used[device], bytes));
  leave(slot);
}

// In flight with the device not frozen, so that no recount begins before leave(). False when it
// stays frozen.
bool Ledger::enter(unsigned device, std::uint32_t* slot) {
  for (;;) {
    *slot = static_cast<std::uint32_t>(slot_.load());
    add(file_->slots[*slot].in_flight, 1U);
    if (!is_frozen(load(file_->devices[device].used))) {
      return true;
    }
    leave(*slot);
    if (!wait_until_thawed(device)) {
      return false;
    }
  }
}

void Ledger::leave(std::uint32_t slot) {
  subtract_saturating(file_->slots[slot].in_flight, 1U);
}

bool Ledger::wait_until_thawed(unsigned device) {
  const std::uint64_t start = clock_.now();
  for (;;) {
    if (!is_frozen(load(file_->devices[device].used))) {
      return true;
    }
    const std::uint64_t waited = clock_.now() - start;
    if (waited > kPatience) {
      return false;
    }
    // Whoever froze it may have died at it: then its lock is free, and the recount is ours to do.
    if (waited > kFrozenIsSuspect) {
      reap();
    }
    clock_.sleep_until(clock_.now() + kPause);
  }
}

bool Ledger::waiting_helps(unsigned device, std::uint64_t bytes, Room room) const {
  std::uint64_t dead = 0;
  for (const vgpu_usage_slot& slot : file_->slots) {
    if (load(slot.state) == VGPU_SLOT_DEAD) {
      dead += load(slot.used[device]);
    }
  }
  const std::uint64_t used = load(file_->devices[device].used) & ~VGPU_USAGE_FROZEN;
  const std::uint64_t living = larger(used > dead ? used - dead : 0,
                                      room.observed_bytes > dead ? room.observed_bytes - dead : 0);
  return dead > 0 && living <= room.limit && bytes <= room.limit - living;
}

std::uint64_t Ledger::next_return() {
  const std::uint64_t now = clock_.now();
  std::uint64_t next = now + VGPU_USAGE_GRACE_NS;
  for (const vgpu_usage_slot& slot : file_->slots) {
    if (load(slot.state) == VGPU_SLOT_DEAD) {
      const std::uint64_t back = load(slot.dead_since) + VGPU_USAGE_GRACE_NS;
      next = back < next ? back : next;
    }
  }
  // At once is never an answer: what is due and did not come back waits for somebody else.
  return larger(next, now + kPause);
}

std::uint64_t Ledger::used(unsigned device) {
  const std::uint64_t now = clock_.now();
  if (now - reaped_.load() > kCheckEvery) {
    reaped_.store(now);
    reap();
  }
  return load(file_->devices[device].used) & ~VGPU_USAGE_FROZEN;
}

}  // namespace vgpu::limiter
