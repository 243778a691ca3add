#include "common/oci/rooted_fs.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

namespace vgpu::oci {
namespace {

// As many as the kernel follows (MAXSYMLINKS).
constexpr int kMaxLinks = 40;
// openat2 answers EAGAIN when anything on the machine was renamed while it walked a "..".
constexpr int kMaxRetries = 64;

std::string quoted(std::string_view path) {
  return "open '" + std::string(path) + "'";
}

// A path that leads nowhere is not found, whatever the reason; a lack of descriptors or memory is
// not the path's fault and must not pass for it.
Error open_error(std::string_view path, int error_number) {
  Error error = system_error(quoted(path), error_number);
  if (error_number == ELOOP || error_number == ENAMETOOLONG)
    error.code = Code::kNotFound;
  if (error_number == EMFILE || error_number == ENFILE)
    error.code = Code::kExhausted;
  return error;
}

int kernel_open(int root, const char* path, int flags) {
  open_how how{};
  how.flags = static_cast<__u64>(flags);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  for (int attempt = 0;; ++attempt) {
    const long fd = ::syscall(SYS_openat2, root, path, &how, sizeof how);
    if (fd >= 0 || errno != EAGAIN || attempt == kMaxRetries)
      return static_cast<int>(fd);
  }
}

// The components still to be walked, last one first.
using Pending = std::vector<std::string>;

void push_components(Pending& pending, std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (!part.empty() && part != ".")
      parts.emplace_back(part);
    path = slash == std::string_view::npos ? std::string_view{} : path.substr(slash + 1);
  }
  pending.insert(pending.end(), parts.rbegin(), parts.rend());
}

Result<std::string> link_target(int fd) {
  std::array<char, PATH_MAX> target{};
  const ssize_t length = ::readlinkat(fd, "", target.data(), target.size());
  if (length < 0)
    return fail(system_error("read link", errno));
  return std::string(target.data(), static_cast<std::size_t>(length));
}

// One component at a time, no link ever followed by the kernel; ".." never leaves `walked`, whose
// first entry is the root.
Result<UniqueFd> open_by_hand(int root, std::string_view path, int flags) {
  std::vector<UniqueFd> walked;
  Pending pending;
  push_components(pending, path);
  int links = 0;
  while (!pending.empty()) {
    const std::string part = std::move(pending.back());
    pending.pop_back();
    if (part == "..") {
      if (!walked.empty())
        walked.pop_back();
      continue;
    }
    const int parent = walked.empty() ? root : walked.back().get();
    UniqueFd next(::openat(parent, part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (!next || ::fstat(next.get(), &status) != 0)
      return fail(open_error(path, errno));
    if (!S_ISLNK(status.st_mode)) {
      if (!pending.empty() && !S_ISDIR(status.st_mode))
        return fail(open_error(path, ENOTDIR));
      walked.push_back(std::move(next));
      continue;
    }
    if (pending.empty() && (flags & O_NOFOLLOW) != 0)
      return next;
    if (++links > kMaxLinks)
      return fail(open_error(path, ELOOP));
    TRY(const std::string target, link_target(next.get()), quoted(path));
    if (!target.empty() && target.front() == '/')
      walked.clear();
    push_components(pending, target);
  }
  if (walked.empty()) {
    UniqueFd top(::openat(root, ".", O_PATH | O_CLOEXEC | O_DIRECTORY));
    if (!top)
      return fail(open_error(path, errno));
    return top;
  }
  struct stat status {};
  if (::fstat(walked.back().get(), &status) != 0)
    return fail(open_error(path, errno));
  if ((flags & O_DIRECTORY) != 0 && !S_ISDIR(status.st_mode))
    return fail(open_error(path, ENOTDIR));
  return std::move(walked.back());
}

}  // namespace

Result<UniqueFd> RootedFs::open_path(std::string_view path, int flags) const {
  if (path.find('\0') != std::string_view::npos || path.size() >= PATH_MAX)
    return fail(open_error(path.substr(0, 64), ENAMETOOLONG));
  if (resolver_ == Resolver::kKernel) {
    const std::string text = path.empty() ? "/" : std::string(path);
    UniqueFd fd(kernel_open(root_.get(), text.c_str(), O_PATH | O_CLOEXEC | flags));
    if (fd)
      return fd;
    // EPERM is not an answer of openat2 with O_PATH: it is a filter that does not know the call.
    if (errno != ENOSYS && errno != EPERM)
      return fail(open_error(path, errno));
  }
  return open_by_hand(root_.get(), path, flags);
}

Result<RootedFs::Listing> RootedFs::list(int directory_fd, std::size_t max_entries) {
  const int fd = ::openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return fail(system_error("list directory", errno));
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::fdopendir(fd), ::closedir);
  if (!directory) {
    ::close(fd);
    return fail(system_error("list directory", ENOMEM));
  }
  Listing listing;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): each stream has one reader
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view name(static_cast<const char*>(entry->d_name));
    if (name == "." || name == "..")
      continue;
    if (listing.names.size() == max_entries) {
      listing.complete = false;
      break;
    }
    listing.names.emplace_back(name);
  }
  return listing;
}

Result<std::string> RootedFs::read(const OwnProc& proc, std::string_view path,
                                   std::size_t max_bytes) const {
  TRY(const UniqueFd file, open_path(path), "read");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    return fail(system_error(quoted(path), errno));
  if (!S_ISREG(status.st_mode))
    return fail(Code::kInvalidArgument, quoted(path) + ": not a regular file");
  TRY(const UniqueFd readable, proc.reopen(file.get(), O_RDONLY), quoted(path));
  TRY(std::string text, read_all(readable.get(), max_bytes), quoted(path));
  return text;
}

Result<OwnProc> OwnProc::open() {
  OwnProc proc;
  proc.self_.reset(::open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!proc.self_)
    return fail(system_error("open '/proc/self'", errno));
  proc.descriptors_.reset(::openat(proc.self_.get(), "fd", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!proc.descriptors_)
    return fail(system_error("open '/proc/self/fd'", errno));
  return proc;
}

Result<UniqueFd> OwnProc::reopen(int fd, int flags) const {
  UniqueFd result(
      ::openat(descriptors_.get(), std::to_string(fd).c_str(), flags | O_CLOEXEC | O_NOCTTY));
  if (!result)
    return fail(system_error("open again", errno));
  return result;
}

Result<std::string> OwnProc::path_of(int fd) const {
  std::array<char, PATH_MAX> target{};
  const ssize_t length =
      ::readlinkat(descriptors_.get(), std::to_string(fd).c_str(), target.data(), target.size());
  if (length < 0)
    return fail(system_error("find path of descriptor", errno));
  std::string path(target.data(), static_cast<std::size_t>(length));
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.empty() || path.front() != '/' || path.ends_with(kDeleted))
    return fail(Code::kNotFound, "'" + path + "' is out of reach");
  return path;
}

Result<std::string> OwnProc::read(const char* name, std::size_t max_bytes) const {
  const UniqueFd file(::openat(self_.get(), name, O_RDONLY | O_CLOEXEC));
  if (!file)
    return fail(system_error("open '/proc/self/" + std::string(name) + "'", errno));
  TRY(std::string text, read_all(file.get(), max_bytes),
      "read '/proc/self/" + std::string(name) + "'");
  return text;
}

Result<std::string> read_all(int fd, std::size_t max_bytes) {
  std::string text;
  std::array<char, 16384> buffer{};
  while (true) {
    const ssize_t length = ::read(fd, buffer.data(), buffer.size());
    if (length < 0 && errno == EINTR)
      continue;
    if (length < 0)
      return fail(system_error("read", errno));
    if (length == 0)
      return text;
    if (text.size() + static_cast<std::size_t>(length) > max_bytes)
      return fail(Code::kExhausted, "longer than " + std::to_string(max_bytes) + " bytes");
    text.append(buffer.data(), static_cast<std::size_t>(length));
  }
}

}  // namespace vgpu::oci
