#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

// The state file: what all simulated libraries on one node share. One build writes and reads it, so
// it has no version policy: a file of another layout is refused by its magic and size.
//
// The lock is a robust, process-shared mutex inside the file: when its owner dies, the next one to
// lock is told so by the kernel and recounts every sum from the process records, which are the
// primary data. A process's record belongs to whoever holds the POSIX record lock on byte
// kSlotLockOffset + slot of this file; the kernel drops it at death, and names the holder's pid in
// the namespace of whoever asks.
namespace vgpu::sim {

constexpr unsigned kMaxCards = 16;
constexpr unsigned kMaxProcesses = 1024;
constexpr unsigned kMaxGroups = 512;
constexpr unsigned kMaxRules = 32;
constexpr char kMagic[8] = {'V', 'G', 'P', 'U', 'S', 'I', 'M', '1'};
constexpr int64_t kSlotLockOffset = int64_t{1} << 40;

struct Amounts {  // bytes
  uint64_t contexts;
  uint64_t modules;
  uint64_t memory;

  uint64_t sum() const { return contexts + modules + memory; }
};

struct Card {
  char name[64];
  char uuid[48];      // "GPU-" and 36 characters
  char bus_id[32];    // "00000000:3B:00.0"
  uint64_t total;     // bytes
  uint64_t reserved;  // bytes of `total` that nobody can allocate
  uint32_t multiprocessors;
  int32_t numa_node;
  uint32_t minor;  // of /dev/nvidia<minor>
  uint32_t capability_major;
  uint32_t capability_minor;
  uint32_t pci_device_id;
  uint64_t
      used;  // bytes, the sum over all processes, the dead included until their memory is freed
  uint64_t peak;            // bytes
  uint64_t published;       // bytes used as NVML shows them
  uint64_t busy_ns;         // GPU time of all kernels that were launched
  uint64_t utilization_at;  // when NVML's utilization was sampled, and the busy time then
  uint64_t utilization_busy_ns;
  uint64_t busy_until;   // CLOCK_MONOTONIC, ns: end of the last kernel in the card's queue
  uint32_t utilization;  // per cent
  uint32_t padding;
};

enum ProcessState : uint32_t { kProcessFree = 0, kProcessUsed = 1, kProcessDead = 2 };

struct Process {
  uint32_t state;
  uint32_t pid;  // as the process sees itself
  uint32_t group;
  uint32_t padding;
  uint64_t pid_namespace;  // inode
  uint64_t dead_since;     // CLOCK_MONOTONIC in ns, when its death was first seen
  char command[16];
  Amounts held[kMaxCards];
  uint64_t published[kMaxCards];  // bytes as NVML shows them
};

struct Group {
  uint32_t in_use;
  uint32_t padding;
  char label[128];  // NVIDIA_SIM_GROUP, else "mnt:<inode of the mount namespace>"
  char cgroup[256];
  uint64_t mount_namespace;
  uint64_t root_mount;  // see Identity
  uint64_t pid_namespace;
  uint64_t used[kMaxCards];  // bytes
  uint64_t peak[kMaxCards];
};

struct Rule {
  char function[64];
  int32_t result;  // returned once `after` calls have passed; 0 = none
  uint32_t padding;
  uint64_t after;    // calls that still succeed
  uint64_t slow_us;  // every call takes this much longer
  uint64_t calls;    // atomic
};

struct Options {
  char driver_version[32];
  int32_t cuda_version;     // 13000
  uint32_t check_nodes;     // 1: a card is visible where its device node can be opened
  uint64_t context_bytes;   // memory that a context takes
  uint64_t module_bytes;    // memory that a module takes
  uint64_t block_bytes;     // small allocations take whole blocks of this size; 512: none do
  uint64_t free_delay_ms;   // from a death seen to the memory being free
  uint64_t nvml_lag_ms;     // NVML shows figures that are up to this old
  uint64_t launch_cost_ns;  // time that a launch takes in the caller
  uint64_t queue_depth;     // launches that a stream holds before the next one blocks
  uint64_t serialize;       // 1: one kernel at a time per card, in order of launch
};

struct StateFile {
  char magic[8];
  uint64_t size;
  pthread_mutex_t lock;
  uint64_t looked_at;       // CLOCK_MONOTONIC in ns: when the living were last counted
  uint64_t published_tick;  // NVML's clock, in units of nvml_lag_ms
  uint32_t card_count;
  uint32_t rule_count;
  uint64_t repaired;  // how often the lock's owner was found dead
  Options options;
  Card cards[kMaxCards];
  Rule rules[kMaxRules];
  Group groups[kMaxGroups];
  Process processes[kMaxProcesses];
};

}  // namespace vgpu::sim
