#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"

// A directory tree that somebody else wrote (the root of a container), reached only through a
// descriptor of its top. No path in it leads out of it: links, absolute ones too, are followed
// inside. Everything found in it is hostile.
namespace vgpu::oci {

// Descriptors of this process through a proc file system of its own choice: inside a container's
// mount namespace /proc is the container's. Open it before entering.
class OwnProc {
 public:
  // Opens /proc/self of the calling process; after fork, the child opens its own.
  static Result<OwnProc> open();

  // Opens for reading what `fd` (O_PATH) refers to: the same file, whatever its name leads to by
  // now.
  Result<UniqueFd> reopen(int fd, int flags) const;

  // Where `fd` lies, as seen from this process's root. kNotFound if it is not reachable from there
  // any more.
  Result<std::string> path_of(int fd) const;

  // Contents of /proc/self/<name> at this moment (not that of opening).
  Result<std::string> read(const char* name, std::size_t max_bytes) const;

  // /proc/self/fd: descriptor n is the magic link "n" in it.
  int descriptors() const { return descriptors_.get(); }

 private:
  UniqueFd self_;
  UniqueFd descriptors_;
};

// How paths are resolved. kKernel falls back to kByHand where the kernel has no openat2
// (before 5.6), or a filter denies it.
enum class Resolver { kKernel, kByHand };

class RootedFs {
 public:
  // `root` is a directory, O_PATH will do. It must stay below nothing hostile: it is trusted, its
  // contents are not.
  explicit RootedFs(UniqueFd root, Resolver resolver = Resolver::kKernel)
      : root_(std::move(root)), resolver_(resolver) {}

  // Opens a path, "/a/b" and "a/b" being the same, with O_PATH | O_CLOEXEC | `flags`. Links are
  // followed inside the tree unless O_NOFOLLOW is given for the last component. Nothing is read, so
  // devices and pipes are harmless.
  Result<UniqueFd> open_path(std::string_view path, int flags = 0) const;

  // Names in a directory, without "." and "..", at most `max_entries` of them; the rest is left out
  // and `complete` false.
  struct Listing {
    std::vector<std::string> names;
    bool complete = true;
  };
  static Result<Listing> list(int directory_fd, std::size_t max_entries);

  // Contents of a regular file; kInvalidArgument if it is none, kExhausted if it is longer than
  // `max_bytes`.
  Result<std::string> read(const OwnProc& proc, std::string_view path, std::size_t max_bytes) const;

  int fd() const { return root_.get(); }

 private:
  UniqueFd root_;
  Resolver resolver_;
};

// Up to `max_bytes` of an open file; kExhausted if there are more.
Result<std::string> read_all(int fd, std::size_t max_bytes);

}  // namespace vgpu::oci
