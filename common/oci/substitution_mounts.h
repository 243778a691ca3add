#pragma once

#include <cstddef>
#include <string>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/oci/rooted_fs.h"

// Mounting single files from descriptor to descriptor, with the mount calls of Linux 5.2 and 5.12
// or, where the kernel lacks them, with mount(2). No path is walked between a check and its use.
namespace vgpu::oci {

// Which calls to try; false stands for a kernel without them. A call that answers ENOSYS is
// replaced as well.
struct MountCalls {
  bool mount_api = true;      // open_tree, move_mount: 5.2
  bool mount_setattr = true;  // 5.12
};

// Where something gets mounted: a name in a directory. Opened anew for each use, since a descriptor
// from before a mount stays below it.
struct MountTarget {
  int parent = -1;  // O_PATH
  std::string name;

  // O_PATH, never through a link; kInvalidArgument unless it is a regular file.
  Result<UniqueFd> open() const;
};

class Mounter {
 public:
  // After `step_limit` changes every further one fails as if the process had been killed: the seam
  // for crash tests. mount(2) takes paths, so its use changes the working directory to `proc`'s.
  Mounter(const OwnProc& proc, MountCalls calls, std::size_t step_limit = SIZE_MAX)
      : proc_(proc), calls_(calls), steps_left_(step_limit) {}

  // A detached mount of the file `source`, read-only, nosuid, nodev and private already if the
  // kernel can. Made in the mount namespace of the caller, it can be attached in another one.
  // kUnavailable without the mount calls.
  Result<UniqueFd> clone(int source);

  // Mounts a detached mount of `clone`.
  Status attach(int detached, const MountTarget& target);

  // Mounts the file `source`, of the same mount namespace.
  Status bind(int source, const MountTarget& target);

  // Takes the mount whose root `source` is away from its place to `target`; mounts a second one
  // where it cannot be taken away.
  Status move(int source, const MountTarget& target);

  // Makes what is mounted at `target` read-only, nosuid, nodev and private.
  Status harden(const MountTarget& target);

 private:
  Status step();
  Status old_mount(int source, int target, unsigned long flags) const;
  Status old_harden(int mounted);

  const OwnProc& proc_;
  MountCalls calls_;
  std::size_t steps_left_;
};

// Whether a mounted file is read-only, nosuid and nodev.
bool is_hardened(int file);

}  // namespace vgpu::oci
