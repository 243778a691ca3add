#include "common/gpu/trust.h"

#include <sodium.h>
#include <sys/stat.h>

#include <cerrno>

#include "api/allocation.h"
#include "common/base/file.h"
#include "common/base/text.h"

namespace vgpu::gpu {
namespace {

constexpr std::size_t kKeyIdDigits = 16;
constexpr std::size_t kMaxKeyFileBytes = 256;

Result<std::string> load_key(const std::string& trust_directory, const std::string& kid) {
  TRY(const UniqueFd directory, open_directory(trust_directory), "open trusted keys");
  struct stat status {};
  if (::fstat(directory.get(), &status) != 0) {
    return fail(system_error("stat '" + trust_directory + "'", errno));
  }
  if (auto owned = check_root_owned(status, trust_directory); !owned)
    return fail(owned.error());
  auto text = read_file_at(directory.get(), kid + ".pub", kMaxKeyFileBytes, Owner::kRoot);
  if (!text) {
    if (text.error().code != Code::kNotFound)
      return fail(text.error());
    return fail(Code::kNotFound, "this node does not trust key '" + kid + "' (no '" +
                                     trust_directory + "/" + kid +
                                     ".pub'); if it should, put the key's file there");
  }
  auto key = from_base64(trim(*text));
  if (!key || key->size() != crypto_sign_PUBLICKEYBYTES || key_id(*key) != kid) {
    return fail(Code::kInvalidArgument,
                "'" + trust_directory + "/" + kid + ".pub' does not hold the key of its name");
  }
  return *key;
}

}  // namespace

std::string key_id(std::string_view public_key) {
  return to_hex(sha256(public_key)).substr(0, kKeyIdDigits);
}

Status verify_signature(const std::string& trust_directory, std::string_view text,
                        std::string_view signature) {
  if (signature.size() < kKeyIdDigits + 1 || signature[kKeyIdDigits] != '.') {
    return fail(Code::kPermission, "the signature is not of the form '<key id>.<base64>'");
  }
  const std::string kid(signature.substr(0, kKeyIdDigits));
  const auto bytes = from_base64(signature.substr(kKeyIdDigits + 1));
  if (kid.find_first_not_of("0123456789abcdef") != std::string::npos || !bytes ||
      bytes->size() != crypto_sign_BYTES) {
    return fail(Code::kPermission, "the signature is not of the form '<key id>.<base64>'");
  }
  TRY(const std::string key, load_key(trust_directory, kid), "verify signature");
  const std::string message = std::string(api::kSignatureDomain) + std::string(text);
  // Verification needs no sodium_init: it draws no random numbers and has one implementation.
  if (crypto_sign_verify_detached(reinterpret_cast<const unsigned char*>(bytes->data()),
                                  reinterpret_cast<const unsigned char*>(message.data()),
                                  message.size(),
                                  reinterpret_cast<const unsigned char*>(key.data())) != 0) {
    return fail(Code::kPermission,
                "the signature does not belong to the allocation: it was changed after key '" +
                    kid + "' signed it, or forged");
  }
  return {};
}

}  // namespace vgpu::gpu
