#include "limiter/second_opinion.h"

#include <cstring>

#include "limiter/text.h"

namespace vgpu::limiter {
namespace {

constexpr std::uint64_t kTick = 10 * sys::kMillisecond;  // /proc counts in hundredths of a second
constexpr int kFieldsToStartTime = 19;                   // from the state on

// State letter and start time from /proc/<pid>/stat; the command's name may hold anything, so read
// from its last ')'.
bool parse_stat(const char* text, char* state, std::uint64_t* ticks) {
  const char* end = nullptr;
  for (const char* p = text; *p != '\0'; ++p) {
    end = *p == ')' ? p : end;
  }
  if (end == nullptr || end[1] != ' ') {
    return false;
  }
  const char* p = end + 2;
  *state = *p;
  for (int field = 0; field < kFieldsToStartTime; ++field) {
    while (*p != ' ') {
      if (*p++ == '\0') {
        return false;
      }
    }
    ++p;
  }
  *ticks = 0;
  for (; *p >= '0' && *p <= '9'; ++p) {
    *ticks = *ticks * 10 + static_cast<std::uint64_t>(*p - '0');
  }
  return true;
}

// One line of maps: "start-end perms offset device inode path". The device is not compared: on some
// file systems it is not the one that stat gives.
bool line_names(const char* line, const sys::FileId& file) {
  int spaces = 0;
  while (spaces < 4) {
    if (*line == '\0') {
      return false;
    }
    spaces += *line++ == ' ' ? 1 : 0;
  }
  std::uint64_t inode = 0;
  for (; *line >= '0' && *line <= '9'; ++line) {
    inode = inode * 10 + static_cast<std::uint64_t>(*line - '0');
  }
  return inode == file.inode;
}

// True also when the maps may not be read: then the start time alone must do.
bool maps(std::uint32_t pid, const sys::FileId& file) {
  Text<64> path;
  path << "/proc/" << std::uint64_t{pid} << "/maps";
  const int fd = sys::open_file(path.c_str(), false);
  if (fd < 0) {
    return true;
  }
  char buffer[4096];
  char line[128];
  std::size_t length = 0;
  bool found = false;
  long count = 0;
  while (!found && (count = sys::read_file(fd, buffer, sizeof buffer)) > 0) {
    for (long i = 0; i < count && !found; ++i) {
      if (buffer[i] == '\n') {
        line[length] = '\0';
        found = line_names(line, file);
        length = 0;
      } else if (length + 1 < sizeof line) {
        line[length++] = buffer[i];
      }
    }
  }
  sys::close_file(fd);
  return found || count < 0;
}

}  // namespace

bool still_alive(std::uint32_t pid, std::uint64_t registered, const sys::FileId& file) {
  Text<64> path;
  path << "/proc/" << std::uint64_t{pid} << "/stat";
  const int fd = sys::open_file(path.c_str(), false);
  if (fd < 0) {
    return false;
  }
  char text[512];
  const long count = sys::read_file(fd, text, sizeof text - 1);
  sys::close_file(fd);
  if (count <= 0) {
    return false;
  }
  text[count] = '\0';
  char state = 'X';
  std::uint64_t ticks = 0;
  return parse_stat(text, &state, &ticks) && state != 'Z' && state != 'X' &&
         ticks <= registered / kTick && maps(pid, file);
}

}  // namespace vgpu::limiter
