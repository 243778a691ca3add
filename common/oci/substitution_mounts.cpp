#include "common/oci/substitution_mounts.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace vgpu::oci {
namespace {

int open_tree_clone(int source) {
  return static_cast<int>(
      ::syscall(SYS_open_tree, source, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH));
}

int move_mount_by_fd(int source, int target) {
  return static_cast<int>(::syscall(SYS_move_mount, source, "", target, "",
                                    MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
}

int harden_by_fd(int mount) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  // A driver file bound from a shared tree would otherwise follow what is mounted over it on the
  // host later.
  attributes.propagation = MS_PRIVATE;
  return static_cast<int>(
      ::syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attributes, sizeof attributes));
}

// Flags a mount has. In a user namespace they are locked: a remount that leaves one out fails.
unsigned long flags_of(int file) {
  struct Pair {
    unsigned long seen;
    unsigned long flag;
  };
  constexpr std::array<Pair, 7> kPairs = {{{ST_RDONLY, MS_RDONLY},
                                           {ST_NOSUID, MS_NOSUID},
                                           {ST_NODEV, MS_NODEV},
                                           {ST_NOEXEC, MS_NOEXEC},
                                           {ST_NOATIME, MS_NOATIME},
                                           {ST_NODIRATIME, MS_NODIRATIME},
                                           {ST_RELATIME, MS_RELATIME}}};
  struct statvfs status {};
  unsigned long flags = 0;
  if (::fstatvfs(file, &status) == 0)
    for (const Pair& pair : kPairs)
      if ((status.f_flag & pair.seen) != 0)
        flags |= pair.flag;
  return flags;
}

}  // namespace

Result<UniqueFd> MountTarget::open() const {
  UniqueFd file(::openat(parent, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0)
    return fail(system_error("open '" + name + "'", errno));
  if (!S_ISREG(status.st_mode))
    return fail(Code::kInvalidArgument, "'" + name + "' is not a regular file");
  return file;
}

Status Mounter::step() {
  if (steps_left_ == 0)
    return fail(Code::kInternal, "stopped at the step limit");
  --steps_left_;
  return {};
}

Result<UniqueFd> Mounter::clone(int source) {
  if (calls_.mount_api) {
    UniqueFd mount(open_tree_clone(source));
    if (mount) {
      if (calls_.mount_setattr && harden_by_fd(mount.get()) != 0) {
        if (errno != ENOSYS)
          return fail(system_error("make mount read-only and private", errno));
        calls_.mount_setattr = false;
      }
      return mount;
    }
    if (errno != ENOSYS)
      return fail(system_error("clone mount", errno));
    calls_.mount_api = false;
  }
  return fail(Code::kUnavailable, "the kernel has no open_tree (Linux 5.2)");
}

Status Mounter::attach(int detached, const MountTarget& target) {
  TRY_STATUS(step(), "mount");
  TRY(const UniqueFd place, target.open(), "mount");
  if (move_mount_by_fd(detached, place.get()) != 0)
    return fail(system_error("mount on '" + target.name + "'", errno));
  // Again, although the clone is: below a shared mount it became shared.
  return harden(target);
}

Status Mounter::bind(int source, const MountTarget& target) {
  if (calls_.mount_api) {
    const auto detached = clone(source);
    if (detached)
      return attach(detached->get(), target);
    if (calls_.mount_api)
      return fail(detached.error());
  }
  TRY_STATUS(step(), "mount");
  TRY(const UniqueFd place, target.open(), "mount");
  TRY_STATUS(old_mount(source, place.get(), MS_BIND), "mount on '" + target.name + "'");
  return harden(target);
}

Status Mounter::move(int source, const MountTarget& target) {
  TRY_STATUS(step(), "move mount");
  TRY(const UniqueFd place, target.open(), "move mount");
  if (calls_.mount_api) {
    if (move_mount_by_fd(source, place.get()) == 0)
      return harden(target);
    if (errno == EINVAL)  // it lies in a shared tree, or is locked there
      return bind(source, target);
    if (errno != ENOSYS)
      return fail(system_error("move mount to '" + target.name + "'", errno));
    calls_.mount_api = false;
  }
  if (old_mount(source, place.get(), MS_MOVE))
    return harden(target);
  return bind(source, target);
}

Status Mounter::harden(const MountTarget& target) {
  TRY_STATUS(step(), "harden mount");
  TRY(const UniqueFd mounted, target.open(), "harden mount");
  if (calls_.mount_setattr) {
    if (harden_by_fd(mounted.get()) == 0)
      return {};
    if (errno != ENOSYS)
      return fail(system_error("make '" + target.name + "' read-only and private", errno));
    calls_.mount_setattr = false;
  }
  TRY_STATUS(old_harden(mounted.get()), "make '" + target.name + "' read-only and private");
  return {};
}

Status Mounter::old_mount(int source, int target, unsigned long flags) const {
  if (::fchdir(proc_.descriptors()) != 0)
    return fail(system_error("change to '/proc/self/fd'", errno));
  if (::mount(std::to_string(source).c_str(), std::to_string(target).c_str(), nullptr, flags,
              nullptr) != 0)
    return fail(system_error("mount", errno));
  return {};
}

Status Mounter::old_harden(int mounted) {
  TRY_STATUS(old_mount(mounted, mounted, MS_PRIVATE), "private");
  const unsigned long flags = flags_of(mounted) | MS_RDONLY | MS_NOSUID | MS_NODEV;
  TRY_STATUS(old_mount(mounted, mounted, MS_REMOUNT | MS_BIND | flags), "read-only");
  if (!is_hardened(mounted))
    return fail(Code::kInternal, "the mount stayed writable");
  return {};
}

bool is_hardened(int file) {
  constexpr unsigned long kWanted = ST_RDONLY | ST_NOSUID | ST_NODEV;
  struct statvfs status {};
  return ::fstatvfs(file, &status) == 0 && (status.f_flag & kWanted) == kWanted;
}

}  // namespace vgpu::oci
