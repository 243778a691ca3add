#include "common/gpu/trust.h"

#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/allocation.h"
#include "common/base/file.h"
#include "common/base/text.h"

namespace vgpu::gpu {
namespace {

using testing::HasSubstr;

class Key {
 public:
  Key() : public_(crypto_sign_PUBLICKEYBYTES, '\0'), secret_(crypto_sign_SECRETKEYBYTES, '\0') {
    crypto_sign_keypair(reinterpret_cast<unsigned char*>(public_.data()),
                        reinterpret_cast<unsigned char*>(secret_.data()));
  }
  std::string id() const { return key_id(public_); }
  std::string sign(const std::string& text, std::string_view domain = api::kSignatureDomain) const {
    const std::string message = std::string(domain) + text;
    std::string signature(crypto_sign_BYTES, '\0');
    crypto_sign_detached(reinterpret_cast<unsigned char*>(signature.data()), nullptr,
                         reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                         reinterpret_cast<const unsigned char*>(secret_.data()));
    return id() + "." + to_base64(signature);
  }
  void trust_in(const std::string& directory, const std::string& as = "") const {
    const auto fd = open_directory(directory);
    ASSERT_TRUE(write_file_at(fd->get(), (as.empty() ? id() : as) + ".pub",
                              to_base64(public_) + "\n", 0644));
  }

 private:
  std::string public_;
  std::string secret_;
};

class Trust : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0)
      GTEST_SKIP() << "keys must belong to root";
    std::string pattern = testing::TempDir() + "vgpu-trust-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    ::chmod(directory_.c_str(), 0755);
    key_.trust_in(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  Key key_;
  std::string directory_;
};

TEST_F(Trust, HoldsForTheTextThatWasSigned) {
  EXPECT_TRUE(verify_signature(directory_, "text", key_.sign("text")));
}

TEST_F(Trust, DoesNotHoldForAnotherText) {
  const auto verified = verify_signature(directory_, "text ", key_.sign("text"));
  EXPECT_EQ(verified.error().code, Code::kPermission);
}

TEST_F(Trust, DoesNotHoldForASignatureMadeForAnotherPurpose) {
  EXPECT_FALSE(verify_signature(directory_, "text", key_.sign("text", "")));
}

TEST_F(Trust, DoesNotReachToAnotherKey) {
  const auto verified = verify_signature(directory_, "text", Key().sign("text"));
  EXPECT_EQ(verified.error().code, Code::kNotFound);
  EXPECT_THAT(verified.error().message, HasSubstr("does not trust key"));
}

TEST_F(Trust, DoesNotTakeAKeyUnderAnothersName) {
  const Key other;
  key_.trust_in(directory_, other.id());
  EXPECT_FALSE(verify_signature(directory_, "text", other.sign("text")));
}

TEST_F(Trust, RefusesSignaturesOfAnotherForm) {
  const std::string good = key_.sign("text");
  for (const std::string& form : {std::string(), std::string("."), good.substr(1), good + "=",
                                  good + "\n", "../../../../" + good, good.substr(0, 40),
                                  std::string(16, 'a') + ".", "A" + good.substr(1)}) {
    EXPECT_FALSE(verify_signature(directory_, "text", form)) << form;
  }
}

TEST_F(Trust, EndsWhereOthersMayWrite) {
  const std::string file = directory_ + "/" + key_.id() + ".pub";
  ::chmod(file.c_str(), 0664);
  EXPECT_FALSE(verify_signature(directory_, "text", key_.sign("text")));
  ::chmod(file.c_str(), 0644);
  ::chmod(directory_.c_str(), 0777);
  EXPECT_FALSE(verify_signature(directory_, "text", key_.sign("text")));
}

}  // namespace
}  // namespace vgpu::gpu
