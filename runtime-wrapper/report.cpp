#include "runtime-wrapper/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <ctime>

#include "common/base/fd.h"
#include "common/base/json.h"

namespace vgpu::runtime {
namespace {

std::string rfc3339(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, size};
}

bool write_line(int fd, const std::string& line) {
  return ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

}  // namespace

std::string error_line(const Error& error, bool json, std::chrono::system_clock::time_point time) {
  const std::string message = "vgpu: " + error.message;
  if (json) {
    Json line = Json::object();
    line.set("level", Json("error"));
    line.set("msg", Json(message));
    line.set("time", Json(rfc3339(time)));
    return line.text() + "\n";
  }
  return "time=\"" + rfc3339(time) + "\" level=error msg=" + Json(message).text() + "\n";
}

void report(const Arguments& arguments, const Error& error, const Clock& clock) {
  const std::string line = error_line(error, arguments.log_json, clock.wall());
  if (arguments.log && !arguments.log->empty()) {
    const UniqueFd log(
        ::open(arguments.log->c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644));
    if (log && write_line(log.get(), line))
      return;
  }
  if (!write_line(STDERR_FILENO, line))
    return;  // nobody is left to tell
}

}  // namespace vgpu::runtime
