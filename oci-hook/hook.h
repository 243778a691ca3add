#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "oci-hook/arguments.h"

// The OCI hook. It runs as root, in create-container inside a container's namespaces with the
// host's files in view, so it trusts its arguments and nothing else: not the environment, the
// working directory, standard input or the image.
namespace vgpu::hook {

// Forgets the environment, closes every inherited descriptor but the standard three, cannot be
// traced or dumped, ends after 10 seconds. The first act of the program.
void isolate_process();

// Does what the arguments say. `start_directory` (O_PATH) is the working directory the hook was
// started in; `state` the text of standard input, used by create-container only to find the root
// file system, which is then recognised by the identity of the private directory in it.
Status run(const Arguments& arguments, UniqueFd start_directory, std::string_view state);

// Where the root file system of a container may be, best guess first: runc starts the hook there,
// crun names it. From the state text of the OCI hooks; hostile or broken text gives fewer guesses.
std::vector<std::string> root_candidates(std::string_view state);

// One line on standard error; and where the runtime throws that away, as crun does, one JSON line
// in the log file.
void report(const Error& error, const std::string& log);

}  // namespace vgpu::hook
