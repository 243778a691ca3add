#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "runtime-wrapper/arguments.h"

namespace vgpu::runtime {

// One line where the engine looks for a runtime's errors: appended to --log in --log-format, else
// standard error. Never standard output, which is the container's or the engine's. If the log
// cannot be written, standard error.
void report(const Arguments& arguments, const Error& error, const Clock& clock);

// The line itself, with its newline.
std::string error_line(const Error& error, bool json, std::chrono::system_clock::time_point time);

}  // namespace vgpu::runtime
