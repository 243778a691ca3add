#pragma once

#include <cstddef>
#include <cstdint>

namespace vgpu::sim {

// Who this process is, as the ledger names it. All of it is read from /proc and the environment;
// what cannot be read is 0 or empty.
struct Identity {
  uint64_t mount_namespace;
  uint64_t pid_namespace;
  uint64_t root_mount;  // of "/", an id that the kernel never gives again (Linux 6.8), unlike a
                        // namespace's inode
  char command[16];
  char cgroup[256];
  char label[128];
};

Identity read_identity();

}  // namespace vgpu::sim
