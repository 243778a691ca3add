#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace vgpu::gpu {

// Success only if `signature` ("<kid>.<base64>") is one of a key in `trust_directory`
// (api::kTrustDirectory in production) over the text with its domain. The directory and the key's
// file must be root's and closed to other writers. kPermission for a signature that does not hold,
// kNotFound for a key this node does not trust.
Status verify_signature(const std::string& trust_directory, std::string_view text,
                        std::string_view signature);

// First 16 hex digits of SHA-256 over the 32 bytes.
std::string key_id(std::string_view public_key);

}  // namespace vgpu::gpu
