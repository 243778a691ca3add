#include "common/oci/substitution_privileges.h"

#include <seccomp.h>
#include <sys/prctl.h>

#include <array>
#include <cerrno>
#include <memory>

namespace vgpu::oci {
namespace {

// Names, so that each architecture takes those it has.
constexpr std::array kAllowed = {
    // finding and reading
    "openat2", "openat", "close", "read", "pread64", "readlink", "readlinkat", "fstat",
    "newfstatat", "statx", "fstatfs", "getdents64", "fcntl", "lseek",
    // entering and mounting
    "setns", "fchdir", "chroot", "open_tree", "move_mount", "mount_setattr", "mount",
    // memory, the report and the end
    "brk", "mmap", "munmap", "mremap", "madvise", "write", "exit_group", "rt_sigreturn",
    // a failed check of the C library must end the process as it says
    "rt_sigprocmask", "gettid", "getpid", "tgkill", "futex"};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace

Status keep_capabilities(std::span<const cap_value_t> kept) {
  using Capabilities = std::unique_ptr<void, int (*)(void*)>;
  const Capabilities now(::cap_get_proc(), ::cap_free);
  const Capabilities next(::cap_init(), ::cap_free);
  if (!now || !next)
    return fail(system_error("read capabilities", errno));
  for (const cap_value_t capability : kept) {
    cap_flag_value_t held = CAP_CLEAR;
    if (::cap_get_flag(static_cast<cap_t>(now.get()), capability, CAP_PERMITTED, &held) != 0)
      return fail(system_error("read capabilities", errno));
    if (held == CAP_CLEAR)
      continue;
    for (const cap_flag_t set : {CAP_PERMITTED, CAP_EFFECTIVE})
      if (::cap_set_flag(static_cast<cap_t>(next.get()), set, 1, &capability, CAP_SET) != 0)
        return fail(system_error("choose capabilities", errno));
  }
  if (::cap_set_proc(static_cast<cap_t>(next.get())) != 0)
    return fail(system_error("give up capabilities", errno));
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return fail(system_error("give up new privileges", errno));
  return {};
}

Status keep_substitution_calls() {
  if (kSanitized)
    return {};
  const std::unique_ptr<void, void (*)(void*)> filter(::seccomp_init(SCMP_ACT_KILL_PROCESS),
                                                      ::seccomp_release);
  if (!filter)
    return fail(Code::kExhausted, "no memory for a system call filter");
  for (const char* name : kAllowed) {
    const int number = ::seccomp_syscall_resolve_name(name);
    if (number < 0)
      continue;
    if (const int error = ::seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, number, 0); error != 0)
      return fail(system_error("allow system call '" + std::string(name) + "'", -error));
  }
  if (const int error = ::seccomp_load(filter.get()); error != 0)
    return fail(system_error("filter system calls", -error));
  return {};
}

}  // namespace vgpu::oci
