#include "runtime-wrapper/next_runtime.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/text.h"
#include "common/gpu/node.h"

namespace vgpu::runtime {
namespace {

constexpr std::string_view kDirectories[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                             "/usr/bin",        "/sbin",          "/bin"};
constexpr const char* kSelf = "/proc/self/exe";
constexpr std::string_view kStagePrefix = "VGPU_RUNTIME_STAGE=";

bool same_bytes(const std::string& path, const char* other) {
  const UniqueFd left(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  const UniqueFd right(::open(other, O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!left || !right)
    return false;
  char a[16384];
  char b[16384];
  while (true) {
    const ssize_t n = ::read(left.get(), a, sizeof a);
    if (n != ::read(right.get(), b, sizeof b))
      return false;
    if (n <= 0)
      return n == 0;
    if (std::memcmp(a, b, static_cast<std::size_t>(n)) != 0)
      return false;
  }
}

bool is_ourselves(const std::string& path, const struct stat& found) {
  struct stat self {};
  if (::stat(kSelf, &self) != 0)
    return false;
  if (found.st_dev == self.st_dev && found.st_ino == self.st_ino)
    return true;
  return found.st_size == self.st_size && same_bytes(path, kSelf);
}

bool is_usable(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(path.c_str(), X_OK) == 0 && !is_ourselves(path, status);
}

bool is_elf(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  char magic[4] = {};
  return file && ::read(file.get(), magic, sizeof magic) == sizeof magic &&
         std::memcmp(magic, "\177ELF", sizeof magic) == 0;
}

std::vector<std::string> low_level_candidates(const Context& context) {
  if (context.config && !context.config->low_level_runtimes.empty()) {
    return context.config->low_level_runtimes;
  }
  std::vector<std::string> candidates;
  const auto node = gpu::load_node(context.paths.node());
  if (node && !node->runtime.empty())
    candidates.push_back(node->runtime);
  candidates.emplace_back("runc");
  candidates.emplace_back("crun");
  return candidates;
}

}  // namespace

Result<std::string> find_program(const std::vector<std::string>& candidates) {
  for (const std::string& candidate : candidates) {
    if (candidate.starts_with('/')) {
      if (is_usable(candidate))
        return candidate;
      continue;
    }
    if (candidate.find('/') != std::string::npos)
      continue;
    for (const std::string_view directory : kDirectories) {
      std::string path = std::string(directory) + "/" + candidate;
      if (is_usable(path))
        return path;
    }
  }
  return fail(Code::kNotFound, "no executable among '" + join(candidates, "', '") + "'");
}

Result<NextRuntime> low_level_runtime(const Context& context) {
  auto path = find_program(low_level_candidates(context));
  if (!path) {
    return fail(path.error().within("find the low-level runtime").code,
                path.error().message + "; installing runc or crun, or 'low_level_runtimes' in '" +
                    context.paths.config + "', helps");
  }
  return NextRuntime{*path, false};
}

Result<NextRuntime> nvidia_runtime(const Config& config) {
  auto path = find_program(config.nvidia_runtimes);
  if (!path) {
    return fail(Code::kNotFound, "NVIDIA's runtime is not installed (" + path.error().message +
                                     "); installing nvidia-container-toolkit, or "
                                     "'nvidia_runtimes' in the configuration, helps");
  }
  return NextRuntime{*path, true};
}

bool nvidia_starts(const Context& context, const std::string& low_level) {
  const auto theirs = find_program(nvidia_low_level_runtimes(context.paths.nvidia_config));
  struct stat left {};
  struct stat right {};
  return theirs && ::stat(theirs->c_str(), &left) == 0 && ::stat(low_level.c_str(), &right) == 0 &&
         left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

std::string runtime_root(const Context& context, const std::string& low_level) {
  if (context.arguments.root && !context.arguments.root->empty())
    return *context.arguments.root;
  return "/run/" + low_level.substr(low_level.rfind('/') + 1);
}

std::optional<std::string> stage_in_environment() {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(kStagePrefix))
      return std::string(text.substr(kStagePrefix.size()));
  }
  return std::nullopt;
}

Error execute(const NextRuntime& next, int stage, char** argv) {
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with(kStagePrefix))
      environment.push_back(*entry);
  }
  std::string count = std::string(kStagePrefix) + std::to_string(stage + 1);
  // A script may lead back to us, so it keeps the count; a program that is not us cannot.
  if (next.nvidia || !is_elf(next.path))
    environment.push_back(count.data());
  environment.push_back(nullptr);
  ::execve(next.path.c_str(), argv, environment.data());
  return system_error("execute '" + next.path + "'", errno);
}

}  // namespace vgpu::runtime
