// Slots of the ledger: getting one, noticing its loss, and returning what the dead have left.
#include <cstring>

#include "limiter/ledger.h"
#include "limiter/second_opinion.h"
#include "limiter/shared_word.h"

namespace vgpu::limiter {
namespace {

constexpr std::uint64_t kCheckEvery = 100 * sys::kMillisecond;
constexpr std::uint64_t kPause = sys::kMillisecond / 20;

std::int64_t lock_of(std::uint32_t slot) {
  return VGPU_USAGE_LOCK_OFFSET + slot;
}

void clear(vgpu_usage_slot& slot) {
  for (std::uint64_t& bytes : slot.used) {
    store(bytes, std::uint64_t{0});
  }
  store(slot.in_flight, 0U);
  store(slot.dead_since, std::uint64_t{0});
}

}  // namespace

int Ledger::open_descriptor() const {
  const int fd = sys::open_file(path_, true);
  if (fd >= 0 && !descriptor_is_ours(fd)) {
    sys::close_file(fd);
    return -1;
  }
  return fd;
}

// The program may have closed our descriptor, and its number may be another file's by now.
bool Ledger::descriptor_is_ours(int fd) const {
  sys::FileId id;
  return fd >= 0 && sys::identify(fd, &id) && id.device == id_.device && id.inode == id_.inode;
}

bool Ledger::slot_is_ours() const {
  const std::int32_t slot = slot_.load();
  return slot >= 0 && load(file_->slots[slot].state) != VGPU_SLOT_FREE &&
         load(file_->slots[slot].started) == started_.load();
}

// True when this process has a slot and, as seen within the last tenth of a second, its lock.
bool Ledger::hold_slot() {
  const std::uint64_t now = clock_.now();
  if (slot_.load() >= 0 && now - checked_.load() < kCheckEvery) {
    return true;
  }
  const Locked lock(registration_);
  bool held = slot_.load() >= 0;
  if (held && (!descriptor_is_ours(fd_.load()) || !slot_is_ours())) {
    held = regain_slot();
  } else if (!held) {
    const int fd = open_descriptor();
    held = fd >= 0 && take_slot(fd);
    if (fd >= 0 && !held) {
      sys::close_file(fd);
    }
  }
  checked_.store(held ? now : 0);
  return held;
}

bool Ledger::take_slot(int fd) {
  if (find_slot(fd)) {
    return true;
  }
  reap();
  return find_slot(fd);
}

bool Ledger::find_slot(int fd) {
  for (std::uint32_t i = 0; i < VGPU_USAGE_SLOTS; ++i) {
    vgpu_usage_slot& slot = file_->slots[i];
    if (load(slot.state) != VGPU_SLOT_FREE || !sys::try_lock(fd, lock_of(i))) {
      continue;
    }
    if (load(slot.state) != VGPU_SLOT_FREE) {  // of somebody who died meanwhile
      sys::unlock(fd, lock_of(i));
      continue;
    }
    clear(slot);
    const std::uint64_t now = clock_.now();
    store(slot.pid, sys::process_id());
    store(slot.pid_namespace, sys::pid_namespace());
    store(slot.started, now);
    store(slot.state, std::uint32_t{VGPU_SLOT_USED});
    started_.store(now);
    fd_.store(fd);
    slot_.store(static_cast<std::int32_t>(i));
    return true;
  }
  return false;
}

// The program has closed our descriptor, and with it the lock went. The old slot is taken up again
// if nobody has cleared it; otherwise what we hold is charged anew, whether it fits or not: the
// driver holds it.
bool Ledger::regain_slot() {
  const int fd = open_descriptor();
  if (fd < 0) {
    return false;
  }
  const std::uint64_t give_up = clock_.now() + kPatience;
  while (!reaping_.try_lock()) {
    sys::yield();
  }
  while (!sys::try_lock(fd, VGPU_USAGE_REAP_LOCK_OFFSET)) {
    if (clock_.now() > give_up) {
      reaping_.unlock();
      sys::close_file(fd);
      return false;
    }
    clock_.sleep_until(clock_.now() + kPause);
  }
  vgpu_usage_slot& old = file_->slots[slot_.load()];
  bool held =
      slot_is_ours() && sys::try_lock(fd, lock_of(static_cast<std::uint32_t>(slot_.load())));
  if (held) {
    store(old.state, std::uint32_t{VGPU_SLOT_USED});
    fd_.store(fd);
  } else if (find_slot(fd)) {
    held = true;
    vgpu_usage_slot& slot = file_->slots[slot_.load()];
    for (unsigned i = 0; i < VGPU_MAX_DEVICES; ++i) {
      add(file_->devices[i].used, mine_[i].load());
      add(slot.used[i], mine_[i].load());
    }
  }
  sys::unlock(fd, VGPU_USAGE_REAP_LOCK_OFFSET);
  reaping_.unlock();
  if (!held) {
    sys::close_file(fd);
  }
  return held;
}

bool Ledger::reap() {
  if (!reaping_.try_lock()) {
    return false;
  }
  const int held = fd_.load();
  const bool own = descriptor_is_ours(held);
  const int fd = own ? held : open_descriptor();
  bool done = false;
  if (fd >= 0 && sys::try_lock(fd, VGPU_USAGE_REAP_LOCK_OFFSET)) {
    done = sweep(fd);
    sys::unlock(fd, VGPU_USAGE_REAP_LOCK_OFFSET);
  }
  if (fd >= 0 && !own) {
    sys::close_file(fd);
  }
  reaping_.unlock();
  return done;
}

bool Ledger::sweep(int fd) {
  const std::uint64_t now = clock_.now();
  bool due = mark_dead(fd, now);
  for (const vgpu_usage_device& device : file_->devices) {
    due = due || (load(device.used) & VGPU_USAGE_FROZEN) != 0;
  }
  return !due || recount(fd, now);
}

// A lock asked for through the description that holds it counts as free: our own slot is known by
// its number.
bool Ledger::lives(int fd, std::uint32_t slot) const {
  return static_cast<std::int32_t>(slot) == slot_.load() ||
         sys::locked_elsewhere(fd, lock_of(slot));
}

// True when some dead slot's time of grace is over.
bool Ledger::mark_dead(int fd, std::uint64_t now) {
  const std::uint32_t pid = sys::process_id();
  const std::uint64_t pid_namespace = sys::pid_namespace();
  bool due = false;
  for (std::uint32_t i = 0; i < VGPU_USAGE_SLOTS; ++i) {
    vgpu_usage_slot& slot = file_->slots[i];
    const std::uint32_t state = load(slot.state);
    if (state == VGPU_SLOT_FREE || lives(fd, i)) {
      continue;
    }
    if (state != VGPU_SLOT_DEAD) {
      const bool visible = pid_namespace != 0 && load(slot.pid_namespace) == pid_namespace;
      const bool other = load(slot.pid) != pid;  // with our own pid it is what we were before exec
      if (visible && other && still_alive(load(slot.pid), load(slot.started), id_)) {
        continue;
      }
      store(slot.dead_since, now);
      store(slot.state, std::uint32_t{VGPU_SLOT_DEAD});
    }
    const std::uint64_t since = load(slot.dead_since);
    if (since > now) {
      store(slot.dead_since, now);
    }
    due = due || (since <= now && now - since >= VGPU_USAGE_GRACE_NS);
  }
  return due;
}

bool Ledger::recount(int fd, std::uint64_t now) {
  for (vgpu_usage_device& device : file_->devices) {
    __atomic_fetch_or(&device.used, VGPU_USAGE_FROZEN, __ATOMIC_SEQ_CST);
  }
  if (!wait_for_in_flight(fd)) {
    for (vgpu_usage_device& device : file_->devices) {
      __atomic_fetch_and(&device.used, ~VGPU_USAGE_FROZEN, __ATOMIC_SEQ_CST);
    }
    return false;
  }
  std::uint64_t sums[VGPU_MAX_DEVICES] = {};
  for (std::uint32_t i = 0; i < VGPU_USAGE_SLOTS; ++i) {
    vgpu_usage_slot& slot = file_->slots[i];
    if (load(slot.state) == VGPU_SLOT_DEAD && now - load(slot.dead_since) >= VGPU_USAGE_GRACE_NS &&
        !lives(fd, i)) {
      clear(slot);
      store(slot.state, std::uint32_t{VGPU_SLOT_FREE});
    }
    for (unsigned d = 0; d < VGPU_MAX_DEVICES && load(slot.state) != VGPU_SLOT_FREE; ++d) {
      const std::uint64_t sum = sums[d] + load(slot.used[d]);
      sums[d] = sum < sums[d] || sum >= VGPU_USAGE_FROZEN ? VGPU_USAGE_FROZEN - 1 : sum;
    }
  }
  for (unsigned d = 0; d < VGPU_MAX_DEVICES; ++d) {
    store(file_->devices[d].used, sums[d]);
  }
  return true;
}

// Only the living are waited for, and a stopped one not for long: its part may be half done, so the
// recount is put off.
bool Ledger::wait_for_in_flight(int fd) {
  const std::uint64_t give_up = clock_.now() + kPatience;
  for (std::uint32_t i = 0; i < VGPU_USAGE_SLOTS; ++i) {
    const vgpu_usage_slot& slot = file_->slots[i];
    while (load(slot.state) == VGPU_SLOT_USED && load(slot.in_flight) != 0 && lives(fd, i)) {
      if (clock_.now() > give_up) {
        return false;
      }
      clock_.sleep_until(clock_.now() + kPause);
    }
  }
  return true;
}

void Ledger::forget_in_child() {
  registration_.unlock();
  reaping_.unlock();
  const int fd = fd_.exchange(-1);
  if (descriptor_is_ours(fd)) {
    sys::close_file(fd);
  }
  slot_.store(-1);
  checked_.store(0);
  for (auto& bytes : mine_) {
    bytes.store(0);
  }
}

void Ledger::release() {
  if (file_ == nullptr) {
    return;
  }
  forget_in_child();
  sys::unmap(file_, VGPU_USAGE_SIZE);
  file_ = nullptr;
}

}  // namespace vgpu::limiter
