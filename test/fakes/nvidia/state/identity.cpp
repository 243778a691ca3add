#include "test/fakes/nvidia/state/identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace vgpu::sim {
namespace {

uint64_t inode(const char* path) {
  struct stat status {};
  return stat(path, &status) == 0 ? status.st_ino : 0;
}

// The first line of a file that starts with `prefix`, without it.
void read_line(const char* path, const char* prefix, char* out, size_t size) {
  out[0] = '\0';
  char text[4096];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0)
    return;
  text[length] = '\0';
  char* rest = text;
  while (char* line = strsep(&rest, "\n")) {
    if (strncmp(line, prefix, strlen(prefix)) != 0)
      continue;
    snprintf(out, size, "%s", line + strlen(prefix));
    return;
  }
}

uint64_t root_mount_id() {
  constexpr unsigned kUniqueMountId = 0x4000;  // STATX_MNT_ID_UNIQUE
  struct statx status {};
  if (statx(AT_FDCWD, "/", 0, kUniqueMountId, &status) != 0 ||
      (status.stx_mask & kUniqueMountId) == 0)
    return 0;
  return status.stx_mnt_id;
}

}  // namespace

Identity read_identity() {
  Identity identity{};
  identity.mount_namespace = inode("/proc/self/ns/mnt");
  identity.pid_namespace = inode("/proc/self/ns/pid");
  read_line("/proc/self/comm", "", identity.command, sizeof identity.command);
  read_line("/proc/self/cgroup", "0::", identity.cgroup, sizeof identity.cgroup);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read once, as the real library reads its variables
  const char* label = getenv("NVIDIA_SIM_GROUP");
  if (label != nullptr && *label != '\0') {
    snprintf(identity.label, sizeof identity.label, "%s", label);
    return identity;
  }
  identity.root_mount = root_mount_id();
  snprintf(identity.label, sizeof identity.label, "mnt:%llu",
           static_cast<unsigned long long>(identity.mount_namespace));
  return identity;
}

}  // namespace vgpu::sim
