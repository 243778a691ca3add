#include "common/oci/mountinfo.h"

#include <optional>

#include "common/base/text.h"

namespace vgpu::oci {
namespace {

constexpr std::size_t kMaxMounts = 32768;

bool is_octal(char c) {
  return c >= '0' && c <= '7';
}

// Space, tab, newline and backslash stand as \ooo.
std::string unescape(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      result.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                         (text[i + 3] - '0')));
      i += 3;
    } else {
      result.push_back(text[i]);
    }
  }
  return result;
}

// "36 35 98:0 /root /point options [optional...] - type source super-options"
std::optional<Mount> parse_line(std::string_view line) {
  const std::vector<std::string_view> fields = split(line, ' ');
  if (fields.size() < 9)
    return std::nullopt;
  std::size_t dash = 6;
  while (dash < fields.size() && fields[dash] != "-")
    ++dash;
  if (dash + 1 >= fields.size())
    return std::nullopt;
  const auto id = to_unsigned(fields[0]);
  const auto parent = to_unsigned(fields[1]);
  if (!id || !parent)
    return std::nullopt;
  return Mount{*id, *parent, unescape(fields[3]), unescape(fields[4]),
               std::string(fields[dash + 1])};
}

}  // namespace

Result<std::vector<Mount>> parse_mountinfo(std::string_view text) {
  std::vector<Mount> mounts;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty())
      continue;
    if (mounts.size() == kMaxMounts)
      return fail(Code::kInvalidArgument,
                  "the container has more than " + std::to_string(kMaxMounts) + " mounts");
    std::optional<Mount> mount = parse_line(line);
    if (!mount)
      return fail(Code::kInvalidArgument,
                  "cannot read mountinfo line " + std::to_string(mounts.size() + 1));
    mounts.push_back(std::move(*mount));
  }
  return mounts;
}

}  // namespace vgpu::oci
