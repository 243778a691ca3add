#include "common/oci/discovery.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <set>
#include <utility>

#include "common/base/text.h"
#include "common/oci/elf_file.h"

namespace vgpu::oci {
namespace {

constexpr std::size_t kMaxDirectories = 1024;
constexpr std::size_t kMaxEntries =
    32768;  // of one directory; beyond it only the names the loader asks for are tried
// Each takes two descriptors. No image has more; one that has would exhaust them, and what cannot
// be opened is not found.
constexpr std::size_t kMaxFiles = 200;
constexpr std::size_t kMaxConfigFiles = 256;
constexpr std::size_t kMaxConfigBytes = std::size_t{64} << 10U;
constexpr std::size_t kMaxCacheBytes = std::size_t{8} << 20U;

struct LibraryName {
  Library library;
  std::string_view stem;
};
constexpr std::array<LibraryName, kLibraries> kNames = {{
    {Library::kCuda, "libcuda.so"},
    {Library::kNvml, "libnvidia-ml.so"},
}};

// What programs ask the loader for: tried even in a directory too big to be listed.
constexpr std::array kAskedFor = {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1",
                                  "libnvidia-ml.so"};

// Where loaders look without being told, by distribution, and where NVIDIA's images and installers
// put the driver.
constexpr std::array kDefaultDirectories = {
    "/lib",
    "/usr/lib",
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/i386-linux-gnu",
    "/usr/lib/i386-linux-gnu",
    "/lib32",
    "/usr/lib32",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/nvidia/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
};

// File systems that hold no libraries and are slow or odd to look into.
constexpr std::array kPseudoTypes = {"proc",   "sysfs",      "cgroup",  "cgroup2", "devpts",
                                     "mqueue", "securityfs", "debugfs", "tracefs", "bpf",
                                     "pstore", "devtmpfs",   "fusectl", "configfs"};

std::optional<Library> library_of(std::string_view name) {
  for (const LibraryName& row : kNames)
    if (name.starts_with(row.stem))
      return row.library;
  return std::nullopt;
}

std::string_view last_component(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

bool is_pseudo(const Mount& mount) {
  return std::find(kPseudoTypes.begin(), kPseudoTypes.end(), mount.type) != kPseudoTypes.end();
}

bool is_wild(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

class Search {
 public:
  Search(const RootedFs& root, const OwnProc& proc, const DiscoveryRequest& request)
      : root_(root), proc_(proc), request_(request) {}

  Result<std::vector<DriverFile>> run() {
    add_mounts();
    for (const char* directory : kDefaultDirectories)
      add_directory(directory);
    add_loader_config();
    add_cache();
    for (const std::string_view directory : split(request_.library_path, ':'))
      for (const std::string_view part : split(directory, ';'))
        if (part.starts_with('/'))
          add_directory(part);
    for (const std::string& directory : expand("/usr/local/cuda*/compat"))
      add_directory(directory);
    if (too_many_)
      return fail(Code::kInvalidArgument,
                  "the container names more than " + std::to_string(kMaxDirectories) +
                      " directories to search for libraries; shorten its ld.so.conf or "
                      "LD_LIBRARY_PATH");
    if (!problem_.has_value())
      return sorted();
    return fail(*problem_);
  }

 private:
  void add_mounts() {
    for (const Mount& mount : request_.mounts) {
      const std::string point = path_below(mount.point, request_.root_path);
      if (point.empty() || point == "/" || is_pseudo(mount) ||
          is_at_or_below(point, request_.private_path))
        continue;
      if (library_of(last_component(point)))
        add_file(point);
      add_directory(point);
      add_directory(point + "/lib");
      add_directory(point + "/lib64");
    }
  }

  void add_loader_config() {
    std::vector<std::string> files = {"/etc/ld.so.conf"};
    std::set<std::string> seen;
    while (!files.empty() && seen.size() < kMaxConfigFiles) {
      const std::string file = std::move(files.back());
      files.pop_back();
      if (!seen.insert(file).second)
        continue;
      const auto text = root_.read(proc_, file, kMaxConfigBytes);
      if (!text) {
        note_exhausted(text.error());
        continue;
      }
      const LoaderConfig config = parse_loader_config(*text, file.substr(0, file.rfind('/')));
      for (const std::string& directory : config.directories)
        add_directory(directory);
      for (const std::string& pattern : config.includes)
        for (std::string& match : expand(pattern))
          files.push_back(std::move(match));
    }
    too_many_ = too_many_ || !files.empty();
  }

  void add_cache() {
    const auto cache = root_.read(proc_, "/etc/ld.so.cache", kMaxCacheBytes);
    if (!cache) {
      note_exhausted(cache.error());
      return;
    }
    for (const std::string& path : driver_paths_in_cache(*cache))
      add_file(path);
  }

  // Paths that match a pattern with wildcards in any component; the pattern itself if it has none.
  std::vector<std::string> expand(const std::string& pattern) {
    std::vector<std::string> paths = {""};
    for (const std::string_view part : split(pattern, '/')) {
      if (part.empty())
        continue;
      std::vector<std::string> next;
      for (const std::string& path : paths) {
        if (!is_wild(part)) {
          next.push_back(path + "/" + std::string(part));
          continue;
        }
        for (const std::string& name : names_in(path))
          if (::fnmatch(std::string(part).c_str(), name.c_str(), FNM_PERIOD) == 0)
            next.push_back(std::string(path).append("/").append(name));
        if (next.size() > kMaxDirectories) {
          too_many_ = true;
          return {};
        }
      }
      paths = std::move(next);
    }
    return paths;
  }

  std::vector<std::string> names_in(std::string_view directory) {
    const auto fd = root_.open_path(directory, O_DIRECTORY);
    if (!fd)
      return {};
    auto listing = RootedFs::list(fd->get(), kMaxEntries);
    return listing ? std::move(listing->names) : std::vector<std::string>{};
  }

  void add_directory(std::string_view directory) {
    if (!add_one_directory(directory))
      return;
    // Variants for newer processors, searched before the directory itself.
    const std::string variants = std::string(directory) + "/glibc-hwcaps";
    for (const std::string& name : names_in(variants))
      add_one_directory(std::string(variants).append("/").append(name));
  }

  // False if there is none, or it was looked into before.
  bool add_one_directory(std::string_view directory) {
    const auto fd = root_.open_path(directory, O_DIRECTORY);
    if (!fd) {
      note_exhausted(fd.error());
      return false;
    }
    // By path, not by identity: one directory mounted twice shows each file twice.
    const auto path = proc_.path_of(fd->get());
    if (!path || !directories_.insert(*path).second)
      return false;
    if (directories_.size() > kMaxDirectories) {
      too_many_ = true;
      return false;
    }
    const std::string prefix = std::string(directory) + "/";
    const auto listing = RootedFs::list(fd->get(), kMaxEntries);
    if (listing)
      for (const std::string& name : listing->names)
        if (library_of(name))
          add_file(prefix + name);
    if (!listing || !listing->complete)
      for (const char* name : kAskedFor)
        add_file(prefix + name);
    return true;
  }

  void add_file(std::string_view path) {
    auto file = inspect(path);
    if (!file) {
      // What vanished meanwhile cannot be loaded; any other trouble could hide a driver.
      if (file.error().code != Code::kNotFound)
        note(file.error().within("look at '" + std::string(path) + "' in the container"));
      return;
    }
    if (!file->has_value() || !paths_.insert((*file)->path).second)
      return;
    if (files_.size() < kMaxFiles)
      files_.push_back(std::move(**file));
    else
      note({Code::kInvalidArgument, "the container has more than " + std::to_string(kMaxFiles) +
                                        " files with names of the driver's libraries; remove those "
                                        "it does not need"});
  }

  // What cannot be read does not matter to the loader either, unless it is for a limit of ours.
  void note_exhausted(const Error& error) {
    if (error.code == Code::kExhausted)
      note(error.within("look through the container's libraries"));
  }

  // The first trouble decides.
  void note(Error error) {
    if (!problem_.has_value())
      problem_ = std::move(error);
  }

  // Nothing, if the path leads to no library file that is of interest.
  Result<std::optional<DriverFile>> inspect(std::string_view path) const {
    DriverFile found;
    TRY(found.file, root_.open_path(path), "find");
    struct statx status {};
    if (::statx(found.file.get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS, &status) != 0)
      return fail(system_error("status", errno));
    if (!S_ISREG(status.stx_mode))
      return std::optional<DriverFile>{};
    TRY(const std::string seen, proc_.path_of(found.file.get()), "path");
    found.path = path_below(seen, request_.root_path);
    if (found.path.empty() || is_at_or_below(found.path, request_.private_path) ||
        found.path.find("/stubs/") != std::string::npos)
      return std::optional<DriverFile>{};
    found.name = std::string(last_component(found.path));
    const auto library = library_of(last_component(path));
    if (!library)
      return std::optional<DriverFile>{};
    found.library = *library;
    TRY(const std::optional<FileKind> kind, kind_of(found.file.get(), status.stx_size), "read");
    if (!kind)
      return std::optional<DriverFile>{};
    found.kind = *kind;
    found.identity = {makedev(status.stx_dev_major, status.stx_dev_minor), status.stx_ino};
    found.mounted = is_mount(status, seen);
    const std::string_view directory =
        std::string_view(found.path).substr(0, found.path.size() - found.name.size());
    TRY(found.parent, root_.open_path(directory, O_DIRECTORY), "open directory");
    return std::optional<DriverFile>(std::move(found));
  }

  bool is_mount(const struct statx& status, const std::string& seen) const {
    if ((status.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0)
      return (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
    return std::any_of(request_.mounts.begin(), request_.mounts.end(),
                       [&](const Mount& mount) { return mount.point == seen; });
  }

  Result<std::optional<FileKind>> kind_of(int file, std::uint64_t bytes) const {
    if (bytes == 0)
      return std::optional(FileKind::kEmpty);
    TRY(const UniqueFd readable, proc_.reopen(file, O_RDONLY), "open");
    TRY(const ElfKind kind, elf_kind(readable.get()), "ELF header");
    if (kind == ElfKind::kNone)
      return std::optional<FileKind>{};
    return std::optional(kind == ElfKind::kNative ? FileKind::kNative : FileKind::kForeign);
  }

  std::vector<DriverFile> sorted() {
    std::sort(files_.begin(), files_.end(), [](const DriverFile& a, const DriverFile& b) {
      return std::pair(!a.mounted, std::string_view(a.path)) <
             std::pair(!b.mounted, std::string_view(b.path));
    });
    return std::move(files_);
  }

  const RootedFs& root_;
  const OwnProc& proc_;
  const DiscoveryRequest& request_;
  std::set<std::string> directories_;
  std::set<std::string> paths_;
  std::vector<DriverFile> files_;
  std::optional<Error> problem_;
  bool too_many_ = false;
};

}  // namespace

Result<std::vector<DriverFile>> discover(const RootedFs& root, const OwnProc& proc,
                                         const DiscoveryRequest& request) {
  return Search(root, proc, request).run();
}

LoaderConfig parse_loader_config(std::string_view text, std::string_view directory) {
  LoaderConfig config;
  for (std::string_view line : split(text, '\n')) {
    line = trim(line.substr(0, line.find('#')));
    constexpr std::string_view kInclude = "include";
    if (line.starts_with(kInclude) && line.size() > kInclude.size() &&
        (line[kInclude.size()] == ' ' || line[kInclude.size()] == '\t')) {
      std::string patterns(line.substr(kInclude.size()));
      std::replace(patterns.begin(), patterns.end(), '\t', ' ');
      for (const std::string_view pattern : split(patterns, ' ')) {
        if (pattern.empty())
          continue;
        config.includes.push_back(pattern.front() == '/'
                                      ? std::string(pattern)
                                      : std::string(directory) + "/" + std::string(pattern));
      }
    } else if (line.starts_with('/')) {
      config.directories.emplace_back(trim(line.substr(0, line.find('='))));
    }
  }
  return config;
}

std::vector<std::string> driver_paths_in_cache(std::string_view cache) {
  std::vector<std::string> paths;
  for (const LibraryName& row : kNames) {
    const std::string needle = "/" + std::string(row.stem);
    for (std::size_t at = cache.find(needle); at != std::string_view::npos;
         at = cache.find(needle, at + 1)) {
      // Each string ends with a zero byte; the first one follows binary data.
      std::size_t start = at;
      while (start > 0 && static_cast<unsigned char>(cache[start - 1]) >= ' ')
        --start;
      const std::string_view path = cache.substr(start, cache.find('\0', at) - start);
      if (path.starts_with('/') && path.size() < 4096 && paths.size() < kMaxDirectories)
        paths.emplace_back(path);
    }
  }
  return paths;
}

std::string path_below(std::string_view path, std::string_view root_path) {
  if (root_path == "/")
    return std::string(path);
  if (path == root_path)
    return "/";
  if (path.size() > root_path.size() && path.starts_with(root_path) &&
      path[root_path.size()] == '/')
    return std::string(path.substr(root_path.size()));
  return {};
}

}  // namespace vgpu::oci
