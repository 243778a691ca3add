#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vgpu {

// Lower-case hexadecimal of the bytes.
std::string to_hex(std::string_view bytes);

// RFC 4648 §4 with padding, strictly: nothing but the one canonical spelling is accepted.
std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);

// The 32 bytes of SHA-256.
std::string sha256(std::string_view bytes);

// The parts between separators, empty ones included; an empty text has no parts.
std::vector<std::string_view> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::string_view trim(std::string_view text);

// Decimal digits only, no sign, no leading zero except "0", no overflow.
std::optional<std::uint64_t> to_unsigned(std::string_view text);

// An absolute path without empty, "." and ".." components, by text alone; "/a/../../b" is "/b".
// Relative paths are taken as below "/", as the runtimes take mount destinations.
std::string clean_path(std::string_view path);
// True if `path` is `directory` or lies below it; both are cleaned first.
bool is_at_or_below(std::string_view path, std::string_view directory);

}  // namespace vgpu
