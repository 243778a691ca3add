#include "common/oci/substitution_privileges.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

namespace vgpu::oci {

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

}  // namespace vgpu::oci
