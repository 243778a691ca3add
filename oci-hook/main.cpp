#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/oci/rooted_fs.h"
#include "oci-hook/arguments.h"
#include "oci-hook/hook.h"

namespace {

// The runtime writes the container's state here and dies of a broken pipe if it is not taken.
void drain_standard_input() {
  char buffer[4096];
  while (::read(STDIN_FILENO, buffer, sizeof buffer) > 0) {
  }
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__)
// The leak check looks for its own process in /proc, which here is the container's.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the sanitizer's name
extern "C" const char* __asan_default_options();
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the sanitizer's name
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}
#endif

int main(int argc, char** argv) {
  vgpu::hook::isolate_process();
  const auto arguments =
      vgpu::hook::parse_arguments(std::vector<std::string>(argv + 1, argv + argc));
  if (!arguments) {
    vgpu::hook::report(arguments.error(), "");
    return 1;
  }
  vgpu::UniqueFd start_directory(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::string state;
  if (arguments->phase == vgpu::hook::Phase::kCreateContainer)
    state = vgpu::oci::read_all(STDIN_FILENO, std::size_t{64} << 10U).value_or("");
  drain_standard_input();
  if (::chdir("/") != 0)
    return 1;
  const vgpu::Status done = vgpu::hook::run(*arguments, std::move(start_directory), state);
  if (!done) {
    vgpu::hook::report(done.error(), arguments->log);
    return 1;
  }
  return 0;
}
