#include "common/base/result.h"

#include <cerrno>
#include <system_error>

namespace vgpu {

Error system_error(std::string_view what, int error_number) {
  Code code = Code::kInternal;
  if (error_number == ENOENT || error_number == ENOTDIR || error_number == ESRCH) {
    code = Code::kNotFound;
  } else if (error_number == EACCES || error_number == EPERM) {
    code = Code::kPermission;
  } else if (error_number == ENOMEM || error_number == ENOSPC || error_number == EDQUOT) {
    code = Code::kExhausted;
  }
  return Error{code, std::string(what) + ": " + std::generic_category().message(error_number)};
}

}  // namespace vgpu
