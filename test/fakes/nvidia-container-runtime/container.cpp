#include "test/fakes/nvidia-container-runtime/container.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

namespace vgpu::fakes {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0)
      close(fd_);
  }
  int get() const { return fd_; }
  std::string proc_path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

Result<Descriptor> open_in(const std::string& root, const std::string& path, int flags) {
  const Descriptor directory(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0)
    return fail(system_error("open '" + root + "'", errno));
  open_how how = {};
  how.flags = static_cast<unsigned>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const auto fd =
      static_cast<int>(syscall(SYS_openat2, directory.get(), path.c_str(), &how, sizeof(how)));
  if (fd < 0)
    return fail(system_error("open '" + path + "' in the container", errno));
  return Descriptor(fd);
}

// The directory `path` lies in, made where missing.
Result<Descriptor> open_parent_in(const std::string& root, const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::filesystem::path walked = "/";
  for (const std::filesystem::path& component : parent.relative_path()) {
    TRY(const Descriptor above, open_in(root, walked, O_PATH | O_DIRECTORY), "walk");
    walked /= component;
    if (exists_in(root, walked))
      continue;
    if (mkdirat(above.get(), component.c_str(), 0755) != 0 && errno != EEXIST)
      return fail(system_error("mkdir '" + walked.string() + "'", errno));
  }
  return open_in(root, parent, O_PATH | O_DIRECTORY);
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return fail(system_error("open '" + path + "'", errno));
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

Result<Json> read_spec(const std::string& path) {
  TRY(const std::string text, read_file(path), "read spec");
  Json spec = Json::parse(text, nullptr, false);
  if (spec.is_discarded())
    return fail(Code::kInvalidArgument, "parse '" + path + "': it is no JSON");
  return spec;
}

Result<Container> read_container() {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const Json state = Json::parse(text, nullptr, false);
  if (state.is_discarded() || !state.contains("bundle"))
    return fail(Code::kInvalidArgument, "container state on standard input names no bundle");
  const std::string bundle = state["bundle"];
  Container container;
  container.pid = state.value("pid", 0);
  TRY(container.spec, read_spec(bundle + "/config.json"), "load container");
  const std::filesystem::path root = container.spec["root"]["path"].get<std::string>();
  container.root = root.is_absolute() ? root : std::filesystem::path(bundle) / root;
  return container;
}

bool exists_in(const std::string& root, const std::string& path) {
  return open_in(root, path, O_PATH).has_value();
}

Status make_file_in(const std::string& root, const std::string& path) {
  if (exists_in(root, path))
    return {};
  TRY(const Descriptor parent, open_parent_in(root, path), "make mount point");
  const std::string name = std::filesystem::path(path).filename();
  const Descriptor file(
      openat(parent.get(), name.c_str(), O_CREAT | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (file.get() < 0)
    return fail(system_error("create '" + path + "'", errno));
  return {};
}

Status bind_into(const std::string& root, const std::string& source, const std::string& path,
                 unsigned long flags) {
  TRY_STATUS(make_file_in(root, path), "mount '" + source + "'");
  {
    TRY(const Descriptor target, open_in(root, path, O_PATH), "mount");
    if (mount(source.c_str(), target.proc_path().c_str(), nullptr, MS_BIND, nullptr) != 0)
      return fail(system_error("mount '" + source + "'", errno));
  }
  TRY(const Descriptor mounted, open_in(root, path, O_PATH), "remount");
  if (mount(nullptr, mounted.proc_path().c_str(), nullptr, MS_BIND | MS_REMOUNT | flags, nullptr))
    return fail(system_error("remount '" + path + "'", errno));
  return {};
}

Status link_in(const std::string& root, const std::string& path, const std::string& target) {
  TRY(const Descriptor parent, open_parent_in(root, path), "make link");
  const std::string name = std::filesystem::path(path).filename();
  const std::string temporary = name + "." + std::to_string(getpid());
  if (symlinkat(target.c_str(), parent.get(), temporary.c_str()) != 0)
    return fail(system_error("symlink '" + path + "'", errno));
  if (renameat(parent.get(), temporary.c_str(), parent.get(), name.c_str()) != 0) {
    const int error_number = errno;
    unlinkat(parent.get(), temporary.c_str(), 0);
    return fail(system_error("rename over '" + path + "'", error_number));
  }
  return {};
}

Status update_loader_cache(const std::string& root, const std::string& folder) {
  if (!exists_in(root, "/etc/ld.so.conf"))
    return {};
  if (exists_in(root, "/etc/ld.so.conf.d")) {
    TRY_STATUS(make_file_in(root, "/etc/ld.so.conf.d/00-nvcr-stand-in.conf"), "update cache");
    TRY(const Descriptor file,
        open_in(root, "/etc/ld.so.conf.d/00-nvcr-stand-in.conf", O_WRONLY | O_TRUNC),
        "update cache");
    if (dprintf(file.get(), "%s\n", folder.c_str()) < 0)
      return fail(system_error("write ld.so.conf.d", errno));
  }
  const pid_t child = fork();
  if (child == 0) {
    execl("/sbin/ldconfig", "ldconfig", "-r", root.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0)
    return fail(Code::kUnavailable, "ldconfig on the container's root failed");
  return {};
}

}  // namespace vgpu::fakes
