#include "test/fakes/nvidia/state/state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <new>

#include "test/fakes/nvidia/state/identity.h"

namespace vgpu::sim {
namespace {

constexpr uint64_t kMillisecond = 1000000;
// Asking the kernel who lives costs a system call per process, so not at every allocation.
constexpr uint64_t kLookInterval = 10 * kMillisecond;

uint64_t& part(Amounts& amounts, Kind kind) {
  switch (kind) {
    case Kind::kContext:
      return amounts.contexts;
    case Kind::kModule:
      return amounts.modules;
    case Kind::kMemory:
      break;
  }
  return amounts.memory;
}

struct flock slot_lock(unsigned slot) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kSlotLockOffset + slot;
  lock.l_len = 1;
  return lock;
}

}  // namespace

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000U + static_cast<uint64_t>(now.tv_nsec);
}

const char* State::default_path() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read once, as the real library reads its variables
  const char* path = getenv("NVIDIA_SIM_STATE");
  return path != nullptr && *path != '\0' ? path : "/dev/nvidia-simulator";
}

State* State::open(const char* path) {
  int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0)
    return nullptr;
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size != static_cast<off_t>(sizeof(StateFile))) {
    errno = EPROTO;
    return nullptr;  // the descriptor stays open: see the declaration
  }
  void* memory = mmap(nullptr, sizeof(StateFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    return nullptr;
  auto* file = static_cast<StateFile*>(memory);
  if (memcmp(file->magic, kMagic, sizeof kMagic) != 0 || file->size != sizeof(StateFile)) {
    errno = EPROTO;
    return nullptr;
  }
  return new (std::nothrow) State(fd, file);
}

void State::initialize(StateFile& file) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&file.lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  file.size = sizeof file;
  memcpy(file.magic, kMagic, sizeof kMagic);
}

State::Guard::Guard(State& state) : state_(state) {
  if (pthread_mutex_lock(&state_.file_->lock) == EOWNERDEAD) {
    state_.recount();
    ++state_.file_->repaired;
    pthread_mutex_consistent(&state_.file_->lock);
  }
}

State::Guard::~Guard() {
  pthread_mutex_unlock(&state_.file_->lock);
}

bool State::has_process(unsigned group) const {
  return std::any_of(std::begin(file_->processes), std::end(file_->processes),
                     [&](const Process& process) {
                       return process.state != kProcessFree && process.group == group;
                     });
}

// A namespace's inode is given again once the namespace is gone: its next owner must not find the
// peaks of the last.
unsigned State::find_group() {
  Identity identity = read_identity();
  unsigned found = kMaxGroups;
  for (unsigned i = 0; i < kMaxGroups; ++i) {
    Group& group = file_->groups[i];
    bool same_label = group.in_use != 0 && strcmp(group.label, identity.label) == 0;
    if (same_label && group.root_mount == identity.root_mount)
      return i;
    if (same_label && !has_process(i))
      group.in_use = 0;
    if (group.in_use == 0 && found == kMaxGroups)
      found = i;
  }
  if (found == kMaxGroups)
    return found;
  Group& group = file_->groups[found];
  group = Group{};
  memcpy(group.label, identity.label, sizeof group.label);
  memcpy(group.cgroup, identity.cgroup, sizeof group.cgroup);
  group.mount_namespace = identity.mount_namespace;
  group.root_mount = identity.root_mount;
  group.pid_namespace = identity.pid_namespace;
  group.in_use = 1;
  return found;
}

bool State::attach() {
  Guard guard(*this);
  refresh_locked(now_ns(), true);
  unsigned group = find_group();
  if (group == kMaxGroups)
    return false;
  for (unsigned slot = 0; slot < kMaxProcesses; ++slot) {
    Process& process = file_->processes[slot];
    if (process.state != kProcessFree)
      continue;
    struct flock lock = slot_lock(slot);
    if (fcntl(fd_, F_SETLK, &lock) != 0)
      continue;
    Identity identity = read_identity();
    process = Process{};
    process.pid = static_cast<uint32_t>(getpid());
    process.group = group;
    process.pid_namespace = identity.pid_namespace;
    memcpy(process.command, identity.command, sizeof process.command);
    process.state = kProcessUsed;
    slot_ = static_cast<int>(slot);
    return true;
  }
  return false;
}

// The record changes first: it is what a recount starts from.
void State::move(unsigned slot, unsigned card, Kind kind, uint64_t bytes, bool add) {
  Process& process = file_->processes[slot];
  uint64_t& held = part(process.held[card], kind);
  uint64_t& group_used = file_->groups[process.group].used[card];
  uint64_t& card_used = file_->cards[card].used;
  held = add ? held + bytes : held - bytes;
  group_used = add ? group_used + bytes : group_used - bytes;
  card_used = add ? card_used + bytes : card_used - bytes;
  uint64_t& group_peak = file_->groups[process.group].peak[card];
  group_peak = std::max(group_peak, group_used);
  file_->cards[card].peak = std::max(file_->cards[card].peak, card_used);
}

void State::recount() {
  for (unsigned card = 0; card < kMaxCards; ++card) {
    file_->cards[card].used = 0;
    for (Group& group : file_->groups)
      group.used[card] = 0;
    for (const Process& process : file_->processes) {
      if (process.state == kProcessFree)
        continue;
      file_->cards[card].used += process.held[card].sum();
      file_->groups[process.group].used[card] += process.held[card].sum();
    }
    file_->cards[card].peak = std::max(file_->cards[card].peak, file_->cards[card].used);
    for (Group& group : file_->groups)
      group.peak[card] = std::max(group.peak[card], group.used[card]);
  }
}

bool State::charge(unsigned card, Kind kind, uint64_t bytes) {
  Guard guard(*this);
  const Card& gpu = file_->cards[card];
  uint64_t now = now_ns();
  refresh_locked(now, false);
  auto has_room = [&] {
    return bytes <= gpu.total - gpu.reserved && gpu.used <= gpu.total - gpu.reserved - bytes;
  };
  if (!has_room())
    refresh_locked(now, true);
  if (!has_room() || slot_ < 0)
    return false;
  publish_locked(now);
  move(static_cast<unsigned>(slot_), card, kind, bytes, true);
  return true;
}

void State::uncharge(unsigned card, Kind kind, uint64_t bytes) {
  Guard guard(*this);
  // A program that closes descriptors it does not know loses its record as if it had died.
  if (slot_ < 0 || part(file_->processes[slot_].held[card], kind) < bytes)
    return;
  publish_locked(now_ns());
  move(static_cast<unsigned>(slot_), card, kind, bytes, false);
}

uint64_t State::free_bytes(unsigned card) {
  Guard guard(*this);
  refresh_locked(now_ns(), false);
  const Card& gpu = file_->cards[card];
  uint64_t usable = gpu.total - gpu.reserved;
  return usable > gpu.used ? usable - gpu.used : 0;
}

// An open-file-description request sees the process's own record locks as well, which a plain
// F_GETLK would not.
pid_t State::owner(unsigned slot) const {
  struct flock lock = slot_lock(slot);
  if (fcntl(fd_, F_OFD_GETLK, &lock) != 0)
    return 0;
  return lock.l_type == F_UNLCK ? -1 : lock.l_pid;
}

void State::refresh(bool force) {
  Guard guard(*this);
  refresh_locked(now_ns(), force);
}

void State::refresh_locked(uint64_t now, bool force) {
  if (!force && now - file_->looked_at < kLookInterval)
    return;
  file_->looked_at = now;
  for (unsigned slot = 0; slot < kMaxProcesses; ++slot) {
    Process& process = file_->processes[slot];
    if (process.state == kProcessUsed && owner(slot) < 0) {
      process.dead_since = now;
      process.state = kProcessDead;
    }
    if (process.state != kProcessDead ||
        now - process.dead_since < file_->options.free_delay_ms * kMillisecond)
      continue;
    publish_locked(now);
    for (unsigned card = 0; card < file_->card_count; ++card)
      for (Kind kind : {Kind::kContext, Kind::kModule, Kind::kMemory})
        move(slot, card, kind, part(process.held[card], kind), false);
    process.state = kProcessFree;
  }
}

void State::publish() {
  Guard guard(*this);
  uint64_t now = now_ns();
  refresh_locked(now, true);
  publish_locked(now);
}

// Called before every change and every look: in one tick of NVML's clock the first caller decides
// what all see.
void State::publish_locked(uint64_t now) {
  uint64_t lag = file_->options.nvml_lag_ms * kMillisecond;
  if (lag == 0)
    return;
  if (now / lag == file_->published_tick)
    return;
  file_->published_tick = now / lag;
  for (unsigned card = 0; card < file_->card_count; ++card)
    file_->cards[card].published = file_->cards[card].used;
  for (Process& process : file_->processes) {
    if (process.state == kProcessFree)
      continue;
    for (unsigned card = 0; card < file_->card_count; ++card)
      process.published[card] = process.held[card].sum();
  }
}

void State::reset_peaks() {
  Guard guard(*this);
  refresh_locked(now_ns(), true);
  for (unsigned i = 0; i < kMaxGroups; ++i) {
    Group& group = file_->groups[i];
    if (!has_process(i))
      group.in_use = 0;
    memcpy(group.peak, group.used, sizeof group.peak);
  }
  for (Card& card : file_->cards)
    card.peak = card.used;
}

int State::apply_rules(const char* function) {
  for (unsigned i = 0; i < file_->rule_count; ++i) {
    Rule& rule = file_->rules[i];
    if (strcmp(rule.function, function) != 0)
      continue;
    if (rule.slow_us != 0)
      usleep(static_cast<useconds_t>(rule.slow_us));
    uint64_t call = __atomic_fetch_add(&rule.calls, 1, __ATOMIC_RELAXED);
    if (rule.result != 0 && call >= rule.after)
      return rule.result;
  }
  return 0;
}

}  // namespace vgpu::sim
