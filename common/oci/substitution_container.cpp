#include <fcntl.h>
#include <linux/prctl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/text.h"
#include "common/oci/substitution.h"
#include "common/oci/substitution_privileges.h"

namespace vgpu::oci {
namespace {

constexpr std::chrono::seconds kTimeLimit{10};
constexpr std::size_t kMaxReport = 4096;
constexpr std::size_t kMaxCgroupBytes = std::size_t{64} << 10U;

// A container's first process, by descriptors that cannot come to mean another one when the pid is
// used again.
struct Target {
  UniqueFd proc;  // /proc/<pid>
  UniqueFd mount_namespace;
  UniqueFd root;
};

Result<Target> open_target(pid_t pid) {
  Target target;
  const std::string path = "/proc/" + std::to_string(pid);
  target.proc.reset(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!target.proc)
    return fail(system_error("open '" + path + "'", errno));
  target.mount_namespace.reset(::openat(target.proc.get(), "ns/mnt", O_RDONLY | O_CLOEXEC));
  if (!target.mount_namespace)
    return fail(system_error("open '" + path + "/ns/mnt'", errno));
  target.root.reset(::openat(target.proc.get(), "root", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!target.root)
    return fail(system_error("open '" + path + "/root'", errno));
  return target;
}

Result<std::string> read_cgroups(int proc) {
  const UniqueFd file(::openat(proc, "cgroup", O_RDONLY | O_CLOEXEC));
  if (!file)
    return fail(system_error("open 'cgroup'", errno));
  return read_all(file.get(), kMaxCgroupBytes);
}

// The directory that the container's own cgroup ends with: "slice:prefix:name" is how the systemd
// driver writes it.
std::string cgroup_leaf(std::string_view cgroups_path) {
  const std::vector<std::string_view> parts = split(cgroups_path, ':');
  if (parts.size() == 3)
    return std::string(parts[1]) + (parts[1].empty() ? "" : "-") + std::string(parts[2]) + ".scope";
  while (cgroups_path.ends_with('/'))
    cgroups_path.remove_suffix(1);
  return std::string(cgroups_path.substr(cgroups_path.rfind('/') + 1));
}

bool names_component(std::string_view cgroups, std::string_view leaf) {
  for (const std::string_view line : split(cgroups, '\n'))
    for (const std::string_view part : split(line, '/'))
      if (part == leaf)
        return true;
  return false;
}

// Whether the process lies in the container's cgroup. One that lies in our own was never moved (a
// runtime told to use no cgroups): then the private directory alone decides.
Status check_cgroup(const Target& target, const ContainerState& state) {
  const std::string leaf = cgroup_leaf(state.cgroups_path);
  if (leaf.empty())
    return {};
  TRY(const std::string theirs, read_cgroups(target.proc.get()), "read its cgroup");
  if (names_component(theirs, leaf))
    return {};
  const UniqueFd self(::open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC));
  TRY(const std::string ours, read_cgroups(self.get()), "read own cgroup");
  if (theirs == ours)
    return {};
  return fail(Code::kPermission, "the process is not in the container's cgroup '" +
                                     state.cgroups_path + "'; its pid was used again");
}

Status check_namespace(const Target& target) {
  struct stat theirs {};
  struct stat ours {};
  if (::fstat(target.mount_namespace.get(), &theirs) != 0 ||
      ::stat("/proc/self/ns/mnt", &ours) != 0)
    return fail(system_error("compare mount namespaces", errno));
  if (theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino)
    return fail(
        Code::kPermission,
        "the process has the host's mount namespace; a container with a card needs its own");
  return {};
}

Status enter(int mount_namespace, int root) {
  if (::setns(mount_namespace, CLONE_NEWNS) != 0)
    return fail(system_error("enter mount namespace", errno));
  // The namespace's root is the container's, unless the runtime was told not to pivot.
  if (root >= 0 && (::fchdir(root) != 0 || ::chroot(".") != 0))
    return fail(system_error("enter the container's root", errno));
  return {};
}

bool all_present(const SubstitutionPlan& plan) {
  return std::all_of(plan.covers.begin(), plan.covers.end(),
                     [](const SubstitutionPlan::Cover& cover) { return cover.present; });
}

Status substitute_entering(Target target, const ContainerState& state, const StandIns& stand_ins) {
  TRY(const OwnProc proc, OwnProc::open(), "own /proc");
  const UniqueFd host(::open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
  if (!host)
    return fail(system_error("open '/proc/self/ns/mnt'", errno));
  SubstitutionRequest request;
  request.private_directory = state.private_directory;
  request.device_minors = state.device_minors;
  request.library_path = state.library_path;
  const int root_fd = target.root.get();
  const RootedFs root(std::move(target.root));
  Mounter mounter(proc, request.mount_calls);

  TRY_STATUS(enter(target.mount_namespace.get(), root_fd), "enter");
  TRY(const SubstitutionPlan plan, plan_substitution(stand_ins, root, proc, request), "look");
  // Mounts of the stand-ins can be made only where they lie.
  TRY_STATUS(enter(host.get(), -1), "return");
  TRY(const std::vector<UniqueFd> clones, clone_stand_ins(plan, mounter), "prepare");
  if (clones.empty() && !all_present(plan))
    return fail(Code::kUnavailable,
                "the kernel cannot carry mounts into a container; Linux 5.2 or newer is needed");
  TRY_STATUS(enter(target.mount_namespace.get(), root_fd), "enter");
  TRY_STATUS(apply_substitution(plan, clones, root, mounter), "mount");
  return {};
}

// Never returns to the caller's code: the status goes through the pipe, one byte of code and the
// sentence.
[[noreturn]] void run_child(int report, Target target, const ContainerState& state,
                            const StandIns& stand_ins) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_DUMPABLE, 0);
  // A root and working directory shared with another thread, were it a sanitizer's, keep a process
  // from entering a mount namespace.
  Status status;
  if (::unshare(CLONE_FS) != 0)
    status = fail(system_error("unshare root directory", errno));
  if (status)
    status = keep_capabilities(kSubstitutionCapabilities);
  if (status)
    status = keep_substitution_calls();
  if (status)
    status = substitute_entering(std::move(target), state, stand_ins);
  std::string text(1, status ? '\0' : static_cast<char>(1 + static_cast<int>(status.error().code)));
  if (!status)
    text += status.error().message.substr(0, kMaxReport - 1);
  const bool written =
      ::write(report, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::_exit(status && written ? 0 : 1);
}

// What the child reported; nothing at the end of the time.
std::optional<std::string> read_report(int report) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeLimit;
  std::string text;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0)
      return std::nullopt;
    pollfd ready{report, POLLIN, 0};
    const int count = ::poll(&ready, 1, static_cast<int>(left.count()));
    if (count <= 0)
      continue;
    std::array<char, kMaxReport> buffer{};
    const ssize_t length = ::read(report, buffer.data(), buffer.size());
    if (length < 0 && errno == EINTR)
      continue;
    if (length <= 0)
      return text;
    text.append(buffer.data(), static_cast<std::size_t>(length));
  }
}

Status reap(pid_t child, const std::optional<std::string>& report) {
  if (!report)
    ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!report)
    return fail(Code::kUnavailable,
                "not done after 10 seconds; look for a volume that does not "
                "answer, in LD_LIBRARY_PATH or among the container's mounts");
  if (report->size() == 1 && report->front() == '\0' && WIFEXITED(status) &&
      WEXITSTATUS(status) == 0)
    return {};
  if (report->size() < 2 || report->front() == '\0')
    return fail(Code::kInternal, "the process that does it died");
  return fail(static_cast<Code>(report->front() - 1), report->substr(1));
}

Status substitute_in_child(Target target, const ContainerState& state, const StandIns& stand_ins) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return fail(system_error("make pipe", errno));
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t child = ::fork();
  if (child < 0)
    return fail(system_error("fork", errno));
  if (child == 0)
    run_child(writer.get(), std::move(target), state, stand_ins);
  writer.reset();
  return reap(child, read_report(reader.get()));
}

}  // namespace

Status substitute_in_container(const ContainerState& state, pid_t pid,
                               const std::string& library_dir) {
  const std::string purpose = "put the limiter in the driver's place";
  TRY(Target target, open_target(pid), purpose);
  TRY_STATUS(check_cgroup(target, state), purpose);
  TRY_STATUS(check_namespace(target), purpose);
  TRY(const StandIns stand_ins, open_stand_ins(library_dir), purpose);
  TRY_STATUS(substitute_in_child(std::move(target), state, stand_ins), purpose);
  return {};
}

}  // namespace vgpu::oci
