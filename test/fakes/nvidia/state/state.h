#pragma once

#include <sys/types.h>

#include <cstdint>

#include "test/fakes/nvidia/state/layout.h"

namespace vgpu::sim {

enum class Kind { kContext, kModule, kMemory };

uint64_t now_ns();  // CLOCK_MONOTONIC

// One process's view of the node's state file. All sums are exact at every moment the lock is free.
class State {
 public:
  // The path that NVIDIA_SIM_STATE names, else /dev/nvidia-simulator.
  static const char* default_path();
  // Maps an existing file, for the life of the process: its descriptor is never closed, since
  // closing any descriptor of the file would drop the process's record lock. Null with errno set;
  // EPROTO: not a state file of this build.
  static State* open(const char* path);
  // Prepares `file`, zeroed and with its cards and options set, for use.
  static void initialize(StateFile& file);

  StateFile& file() { return *file_; }
  const StateFile& file() const { return *file_; }

  // Takes a process record for the caller; false when all are taken.
  bool attach();
  // Charges the caller's record; false when the card has no room.
  bool charge(unsigned card, Kind kind, uint64_t bytes);
  void uncharge(unsigned card, Kind kind, uint64_t bytes);
  uint64_t free_bytes(unsigned card);

  // The pid of a record's owner in the caller's pid namespace: 0 where it has none there, -1 when
  // it is dead.
  pid_t owner(unsigned slot) const;

  // Frees the memory of the dead whose delay has passed. `force`: even when somebody looked a
  // moment ago.
  void refresh(bool force);
  // Copies the figures that NVML shows, if they are older than its lag.
  void publish();
  // Forgets peaks, and groups without processes.
  void reset_peaks();

  // Puts one call through the rules of the scenario: waits where it is to be slow, returns what it
  // is to fail with, else 0.
  int apply_rules(const char* function);

  class Guard {
   public:
    explicit Guard(State& state);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    State& state_;
  };

 private:
  State(int fd, StateFile* file) : fd_(fd), file_(file) {}
  void move(unsigned slot, unsigned card, Kind kind, uint64_t bytes, bool add);
  void recount();
  void refresh_locked(uint64_t now, bool force);
  void publish_locked(uint64_t now);
  bool has_process(unsigned group) const;
  unsigned find_group();

  int fd_;
  StateFile* file_;
  int slot_ = -1;
};

}  // namespace vgpu::sim
