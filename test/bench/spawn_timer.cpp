// Starts programs and times them for a benchmark written in a slower language.
//
// Input, one line per program: its arguments, separated by the unit separator (0x1f); the first is
// an absolute path. Output, one line each: "<ns to the stamp> <ns to the exit> <exit status>", both
// counted from just before execve in the child. The stamp is what bench_stamp wrote; -1 when the
// program ended without one.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr int kStampDescriptor = 200;
constexpr char kSeparator = '\x1f';

std::int64_t nanoseconds(const timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

std::int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return nanoseconds(time);
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> parts(1);
  for (const char c : line) {
    if (c == kSeparator) {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  return parts;
}

struct Timing {
  std::int64_t to_stamp = -1;
  std::int64_t to_exit = -1;
  int status = -1;
};

// The child shares our memory until it executes (vfork), so it can leave the time of its last
// instruction before execve.
Timing start_and_wait(std::vector<std::string>& arguments, const std::array<int, 2>& stamp,
                      int nothing) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments)
    argv.push_back(argument.data());
  argv.push_back(nullptr);

  volatile std::int64_t started = 0;
  // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork): the shared memory is the purpose
  const pid_t pid = vfork();
  if (pid < 0)
    return {};
  if (pid == 0) {
    dup2(nothing, STDIN_FILENO);  // NOLINT(clang-analyzer-unix.Vfork): a system call, no more
    started = now();
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
  }
  Timing timing{.to_exit = now() - started,
                .status = WIFEXITED(status) ? WEXITSTATUS(status) : 256};
  timespec written{};
  if (read(stamp[0], &written, sizeof written) == static_cast<ssize_t>(sizeof written))
    timing.to_stamp = nanoseconds(written) - started;
  return timing;
}

}  // namespace

int main() {
  std::array<int, 2> stamp{};
  if (pipe2(stamp.data(), O_NONBLOCK) != 0 ||
      dup2(stamp[1], kStampDescriptor) != kStampDescriptor) {
    std::perror("spawn_timer: pipe");
    return 1;
  }
  fcntl(stamp[0], F_SETFD, FD_CLOEXEC);
  fcntl(stamp[1], F_SETFD, FD_CLOEXEC);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> arguments = split(line);
    const Timing timing = start_and_wait(arguments, stamp, nothing);
    std::cout << timing.to_stamp << ' ' << timing.to_exit << ' ' << timing.status << std::endl;
  }
  return 0;
}
