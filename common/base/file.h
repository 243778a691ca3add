#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/result.h"

// Whole files, read and written with suspicion. A last component that is a symbolic link is never
// followed.
namespace vgpu {

enum class Owner {
  kAnyone,
  kRoot,  // owned by root and not writable by group or others, else kPermission
};

// The bytes of a regular file of at most `max_bytes`; kInvalidArgument if it is larger or not a
// regular file, kNotFound if it does not exist.
Result<std::string> read_file(const std::string& path, std::size_t max_bytes, Owner owner);
Result<std::string> read_file_at(int directory, const std::string& name, std::size_t max_bytes,
                                 Owner owner);

// Replaces `name` in `directory` in one step: a reader sees the old bytes or the new ones. The
// temporary file has a fixed name (temporary_name), so that a killed writer leaves at most one and
// the next writer takes it over.
Status write_file_at(int directory, const std::string& name, std::string_view content, mode_t mode);
std::string temporary_name(std::string_view name);

// An O_PATH | O_DIRECTORY descriptor; the last component must be a directory and no link.
Result<UniqueFd> open_directory(const std::string& path);

// Makes one directory with exactly `mode`, or sets the mode of an existing one owned by us.
Status make_directory(const std::string& path, mode_t mode);

// kPermission unless root owns it and nobody else may write to it. `what` names it in the message.
Status check_root_owned(const struct stat& status, std::string_view what);

}  // namespace vgpu
