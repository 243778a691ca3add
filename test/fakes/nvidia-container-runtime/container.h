#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "test/fakes/nvidia-container-runtime/spec_schema.h"

namespace vgpu::fakes {

// What a hook learns about its container: the state on standard input, and the spec in the bundle
// it names.
struct Container {  // NOLINT(bugprone-exception-escape): the JSON library's constructor may run out
                    // of memory
  pid_t pid = 0;
  Json spec;
  std::string root;  // absolute path of the root file system, as the host sees it
};

Result<Container> read_container();

Result<std::string> read_file(const std::string& path);
Result<Json> read_spec(const std::string& path);

// Paths below are resolved inside `root` and never leave it, whatever links the image has.
Status make_file_in(const std::string& root, const std::string& path);
Status bind_into(const std::string& root, const std::string& source, const std::string& path,
                 unsigned long flags);
// Makes the link by renaming a new one over `path`. A mount on `path` is an error (EBUSY).
Status link_in(const std::string& root, const std::string& path, const std::string& target);
bool exists_in(const std::string& root, const std::string& path);

// Runs the node's ldconfig on the container's root, if the image has an ld.so.conf.
Status update_loader_cache(const std::string& root, const std::string& folder);

}  // namespace vgpu::fakes
