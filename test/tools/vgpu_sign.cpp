// Keys and signatures for the rigs, in the formats of api/allocation.h. Not installed.
//   vgpu-sign keygen DIR            makes DIR/key (private) and DIR/<kid>.pub, prints the kid
//   vgpu-sign sign --key FILE       signs standard input, prints the signature
#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "api/allocation.h"
#include "common/base/file.h"
#include "common/base/text.h"
#include "common/gpu/trust.h"

namespace vgpu {
namespace {

const unsigned char* bytes_of(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Status keygen(const std::string& directory_path) {
  std::string public_key(crypto_sign_PUBLICKEYBYTES, '\0');
  std::string secret_key(crypto_sign_SECRETKEYBYTES, '\0');
  crypto_sign_keypair(reinterpret_cast<unsigned char*>(public_key.data()),
                      reinterpret_cast<unsigned char*>(secret_key.data()));
  const std::string kid = gpu::key_id(public_key);
  TRY_STATUS(make_directory(directory_path, 0755), "keygen");
  TRY(const UniqueFd directory, open_directory(directory_path), "keygen");
  TRY_STATUS(write_file_at(directory.get(), "key", to_base64(secret_key) + "\n", 0600), "keygen");
  TRY_STATUS(write_file_at(directory.get(), kid + ".pub", to_base64(public_key) + "\n", 0644),
             "keygen");
  std::puts(kid.c_str());
  return {};
}

std::string read_standard_input() {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n <= 0)
      return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

Status sign(const std::string& key_file) {
  TRY(const std::string encoded, read_file(key_file, 4096, Owner::kAnyone), "read key");
  const auto secret_key = from_base64(trim(encoded));
  if (!secret_key || secret_key->size() != crypto_sign_SECRETKEYBYTES) {
    return fail(Code::kInvalidArgument, "'" + key_file + "' holds no key of 'vgpu-sign keygen'");
  }
  std::string public_key(crypto_sign_PUBLICKEYBYTES, '\0');
  crypto_sign_ed25519_sk_to_pk(reinterpret_cast<unsigned char*>(public_key.data()),
                               bytes_of(*secret_key));
  const std::string message = std::string(api::kSignatureDomain) + read_standard_input();
  std::string signature(crypto_sign_BYTES, '\0');
  crypto_sign_detached(reinterpret_cast<unsigned char*>(signature.data()), nullptr,
                       bytes_of(message), message.size(), bytes_of(*secret_key));
  std::puts((gpu::key_id(public_key) + "." + to_base64(signature)).c_str());
  return {};
}

Status run(const std::vector<std::string>& arguments) {
  if (sodium_init() < 0)
    return fail(Code::kInternal, "libsodium does not start");
  if (arguments.size() == 2 && arguments[0] == "keygen")
    return keygen(arguments[1]);
  if (arguments.size() == 3 && arguments[0] == "sign" && arguments[1] == "--key") {
    return sign(arguments[2]);
  }
  return fail(Code::kInvalidArgument, "usage: vgpu-sign keygen DIR | sign --key FILE < TEXT");
}

}  // namespace
}  // namespace vgpu

int main(int argc, char** argv) {
  const auto done = vgpu::run(std::vector<std::string>(argv + 1, argv + argc));
  if (done)
    return 0;
  std::fprintf(stderr, "vgpu-sign: %s\n", done.error().message.c_str());
  return 1;
}
