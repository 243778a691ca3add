#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/oci/container_state.h"
#include "common/oci/mountinfo.h"
#include "common/oci/rooted_fs.h"

// Every copy of the driver's two libraries that the dynamic loader of a container can come upon.
// Opens, looks, changes nothing.
namespace vgpu::oci {

enum class Library { kCuda, kNvml };
inline constexpr std::size_t kLibraries = 2;

enum class FileKind {
  kNative,   // an ELF library of this machine
  kForeign,  // an ELF library of another class or architecture, such as 32-bit
  kEmpty,    // no bytes: the leftover mount point of an earlier container
};

struct DriverFile {
  Library library = Library::kCuda;
  FileKind kind = FileKind::kNative;
  std::string path;  // in the container, free of links
  std::string name;  // last component of `path`
  UniqueFd parent;   // O_PATH, its directory
  UniqueFd file;     // O_PATH
  FileIdentity identity;
  bool mounted = false;  // a mount of its own, not just a file in a directory
};

struct DiscoveryRequest {
  // Where `root` lies as seen from this process: "/" once it is the process's own root.
  std::string root_path = "/";
  // Of the whole namespace, as in mountinfo; those outside `root_path` are left out.
  std::vector<Mount> mounts;
  std::string library_path;  // LD_LIBRARY_PATH of the container's program, may be empty
  // In the container, free of links; everything at or below it is ours and skipped.
  std::string private_path = "/usr/lib/vgpu";
};

// Regular files called libcuda.so* or libnvidia-ml.so*, each once, mounted ones first, then by
// path. Skips development stubs (a directory called "stubs" on the way) and what is not ELF.
// kInvalidArgument if the container names more places to search than anybody needs (1,024
// directories).
Result<std::vector<DriverFile>> discover(const RootedFs& root, const OwnProc& proc,
                                         const DiscoveryRequest& request);

// Directories and patterns named by the text of an ld.so.conf; `include` lines are in `includes`,
// relative ones completed with `directory`, that of the file.
struct LoaderConfig {
  std::vector<std::string> directories;
  std::vector<std::string> includes;
};
LoaderConfig parse_loader_config(std::string_view text, std::string_view directory);

// Paths of our two libraries in an ld.so.cache, whatever its format version.
std::vector<std::string> driver_paths_in_cache(std::string_view cache);

// `path`, seen from the process's root, as seen from `root_path`; empty if it is not below that.
std::string path_below(std::string_view path, std::string_view root_path);

}  // namespace vgpu::oci
