#include "common/base/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace vgpu {
namespace {

std::string quoted(std::string_view verb, std::string_view name) {
  return std::string(verb) + " '" + std::string(name) + "'";
}

Result<std::string> read_all(int fd, const std::string& name, std::size_t expected,
                             std::size_t max_bytes) {
  std::string content;
  content.resize(expected + 1);  // one more, so that the end of the file is seen without growing
  std::size_t used = 0;
  while (true) {
    if (used == content.size())
      content.resize(content.size() * 2);
    const ssize_t n = ::read(fd, content.data() + used, content.size() - used);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return fail(system_error(quoted("read", name), errno));
    if (n == 0)
      break;
    used += static_cast<std::size_t>(n);
    if (used > max_bytes) {
      return fail(Code::kInvalidArgument,
                  "'" + name + "' is larger than " + std::to_string(max_bytes) + " bytes");
    }
  }
  content.resize(used);
  return content;
}

Status write_all(int fd, const std::string& name, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return fail(system_error(quoted("write", name), errno));
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace

Status check_root_owned(const struct stat& status, std::string_view what) {
  if (status.st_uid != 0) {
    return fail(Code::kPermission, "'" + std::string(what) + "' belongs to user " +
                                       std::to_string(status.st_uid) + ", not to root");
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(Code::kPermission,
                "'" + std::string(what) + "' can be written by others than root; chmod go-w helps");
  }
  return {};
}

Result<std::string> read_file_at(int directory, const std::string& name, std::size_t max_bytes,
                                 Owner owner) {
  // O_NONBLOCK: a FIFO in the place of the file must not hold us up.
  const UniqueFd fd(
      ::openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!fd)
    return fail(system_error(quoted("open", name), errno));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0)
    return fail(system_error(quoted("stat", name), errno));
  if (!S_ISREG(status.st_mode)) {
    return fail(Code::kInvalidArgument, "'" + name + "' is not a regular file");
  }
  if (owner == Owner::kRoot) {
    if (auto checked = check_root_owned(status, name); !checked)
      return fail(checked.error());
  }
  if (static_cast<std::size_t>(status.st_size) > max_bytes) {
    return fail(Code::kInvalidArgument,
                "'" + name + "' is larger than " + std::to_string(max_bytes) + " bytes");
  }
  return read_all(fd.get(), name, static_cast<std::size_t>(status.st_size), max_bytes);
}

Result<std::string> read_file(const std::string& path, std::size_t max_bytes, Owner owner) {
  return read_file_at(AT_FDCWD, path, max_bytes, owner);
}

std::string temporary_name(std::string_view name) {
  return "." + std::string(name) + ".vgpu-new";
}

Status write_file_at(int directory, const std::string& name, std::string_view content,
                     mode_t mode) {
  const std::string temporary = temporary_name(name);
  if (::unlinkat(directory, temporary.c_str(), 0) != 0 && errno != ENOENT) {
    return fail(system_error(quoted("unlink", temporary), errno));
  }
  const UniqueFd fd(::openat(directory, temporary.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd)
    return fail(system_error(quoted("create", temporary), errno));
  if (auto written = write_all(fd.get(), temporary, content); !written)
    return written;
  if (::fchmod(fd.get(), mode) != 0)
    return fail(system_error(quoted("chmod", temporary), errno));
  if (::renameat(directory, temporary.c_str(), directory, name.c_str()) != 0) {
    return fail(system_error(quoted("rename to", name), errno));
  }
  return {};
}

Result<UniqueFd> open_directory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd)
    return fail(system_error(quoted("open directory", path), errno));
  return fd;
}

Status make_directory(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) {
    return fail(system_error(quoted("create directory", path), errno));
  }
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd)
    return fail(system_error(quoted("open directory", path), errno));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0)
    return fail(system_error(quoted("stat", path), errno));
  if (status.st_uid != ::geteuid()) {
    return fail(Code::kPermission,
                "'" + path + "' belongs to user " + std::to_string(status.st_uid) + ", not to us");
  }
  if ((status.st_mode & 07777U) != mode && ::fchmod(fd.get(), mode) != 0) {
    return fail(system_error(quoted("chmod", path), errno));
  }
  return {};
}

}  // namespace vgpu
