#include "oci-hook/arguments.h"

#include <array>
#include <limits>
#include <string_view>

#include "common/base/text.h"

namespace vgpu::hook {
namespace {

constexpr std::size_t kMaxMinors = 256;

Status parse_phase(const std::string& text, Arguments& out) {
  if (text == "create-container")
    out.phase = Phase::kCreateContainer;
  else if (text == "poststop")
    out.phase = Phase::kPoststop;
  else
    return fail(Code::kInvalidArgument, "neither 'create-container' nor 'poststop'");
  return {};
}

Status parse_key(const std::string& text, Arguments& out) {
  if (!oci::is_container_key(text))
    return fail(Code::kInvalidArgument, "not a container's key");
  out.key = text;
  return {};
}

Status parse_private(const std::string& text, Arguments& out) {
  const auto parts = split(text, ':');
  const auto device = parts.size() == 2 ? to_unsigned(parts[0]) : std::nullopt;
  const auto inode = parts.size() == 2 ? to_unsigned(parts[1]) : std::nullopt;
  if (!device || !inode || *inode == 0)
    return fail(Code::kInvalidArgument, "not of the form DEVICE:INODE");
  out.private_directory = {*device, *inode};
  return {};
}

Status parse_minors(const std::string& text, Arguments& out) {
  std::vector<std::uint32_t> minors;
  for (const std::string_view part : split(text, ',')) {
    const auto minor = to_unsigned(part);
    if (!minor || *minor >= kMaxMinors || minors.size() == kMaxMinors)
      return fail(Code::kInvalidArgument, "not a list of minor numbers below 256");
    minors.push_back(static_cast<std::uint32_t>(*minor));
  }
  out.device_minors = std::move(minors);
  return {};
}

Status parse_library_path(const std::string& text, Arguments& out) {
  out.library_path = text;
  return {};
}

template <std::string Arguments::*Member>
Status parse_path(const std::string& text, Arguments& out) {
  if (!text.starts_with('/'))
    return fail(Code::kInvalidArgument, "not an absolute path");
  out.*Member = text;
  return {};
}

struct Option {
  std::string_view name;
  Status (*parse)(const std::string&, Arguments&);
};
constexpr std::array<Option, 7> kOptions = {{
    {"--key", parse_key},
    {"--private", parse_private},
    {"--minors", parse_minors},
    {"--library-path", parse_library_path},
    {"--library-directory", parse_path<&Arguments::library_directory>},
    {"--run-directory", parse_path<&Arguments::run_directory>},
    {"--log", parse_path<&Arguments::log>},
}};

}  // namespace

Result<Arguments> parse_arguments(const std::vector<std::string>& arguments) {
  Arguments result;
  result.library_directory = VGPU_LIBRARY_DIR;
  result.run_directory = oci::kDefaultRunDirectory;
  if (arguments.empty())
    return fail(Code::kInvalidArgument, "no phase given: 'create-container' or 'poststop'");
  TRY_STATUS(parse_phase(arguments[0], result), "phase '" + arguments[0] + "'");
  for (std::size_t i = 1; i < arguments.size(); i += 2) {
    const Option* option = nullptr;
    for (const Option& row : kOptions)
      if (row.name == arguments[i])
        option = &row;
    if (option == nullptr || i + 1 == arguments.size())
      return fail(Code::kInvalidArgument,
                  "argument '" + arguments[i] + "' is unknown or has no value");
    TRY_STATUS(option->parse(arguments[i + 1], result), "argument '" + arguments[i] + "'");
  }
  if (result.key.empty())
    return fail(Code::kInvalidArgument, "argument '--key' is missing");
  if (result.phase == Phase::kCreateContainer && result.private_directory.inode == 0)
    return fail(Code::kInvalidArgument, "argument '--private' is missing");
  return result;
}

}  // namespace vgpu::hook
