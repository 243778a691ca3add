#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

// Errors are values that carry a sentence. The failing call states the fact; each caller adds what it was doing;
// one place (main) prints. Our own code throws nothing.
namespace vgpu {

enum class Code {
  kInvalidArgument,  // the input is wrong: asking again will not help
  kNotFound,
  kExhausted,    // there is not enough of something
  kUnavailable,  // something outside is not there now: asking again may help
  kPermission,   // not allowed: signature, owner, policy
  kInternal,
};

struct Error {
  Code code;
  std::string message;  // lower case, no period, names in single quotes; see docs on message form

  // "read OCI spec: open 'config.json': Permission denied": the purpose goes in front.
  Error within(std::string_view purpose) const {
    return Error{code, std::string(purpose) + ": " + message};
  }
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(Code code, std::string message) {
  return tl::make_unexpected(Error{code, std::move(message)});
}
inline tl::unexpected<Error> fail(Error error) {
  return tl::make_unexpected(std::move(error));
}

// An errno as an Error: "<what>: <strerror>". Takes the number so that no call in between can change it.
Error system_error(std::string_view what, int error_number);

}  // namespace vgpu

#define VGPU_CONCAT_INNER(a, b) a##b
#define VGPU_CONCAT(a, b) VGPU_CONCAT_INNER(a, b)

// TRY(auto value, expression, "what I was doing"): declares value, or returns the error with the purpose in front.
#define TRY(declaration, expression, purpose) \
  TRY_IMPL(VGPU_CONCAT(try_result_, __LINE__), declaration, expression, purpose)
#define TRY_IMPL(result, declaration, expression, purpose) \
  auto result = (expression);                              \
  if (!(result))                                           \
    return ::vgpu::fail((result).error().within(purpose)); \
  declaration = std::move(*(result))

// TRY_STATUS(expression, "what I was doing"): the same for a Status.
#define TRY_STATUS(expression, purpose)                        \
  do {                                                         \
    if (auto try_status = (expression); !try_status)           \
      return ::vgpu::fail(try_status.error().within(purpose)); \
  } while (false)
