#include "common/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vgpu {
namespace {

TEST(Base64, ReadsBackWhatItWrote) {
  EXPECT_EQ(from_base64(to_base64("\x00\xff z")), "\x00\xff z");
}

TEST(Base64, AcceptsNothingButTheCanonicalSpelling) {
  EXPECT_EQ(to_base64("a"), "YQ==");
  for (const char* text : {"YQ", "YQ=", "YR==", "Y Q==", "YQ==\n", "YQ==YQ==", "_Q==", "="}) {
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
  }
}

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(to_hex(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Unsigned, IsDecimalDigitsOnly) {
  EXPECT_EQ(to_unsigned("0"), 0U);
  EXPECT_EQ(to_unsigned("18446744073709551615"), UINT64_MAX);
  for (const char* text : {"", "01", "-1", "+1", " 1", "1 ", "0x1", "18446744073709551616"}) {
    EXPECT_EQ(to_unsigned(text), std::nullopt) << text;
  }
}

TEST(Path, IsCleanedByTextAlone) {
  EXPECT_EQ(clean_path("/usr//lib/./x/../vgpu/"), "/usr/lib/vgpu");
  EXPECT_EQ(clean_path("usr/lib"), "/usr/lib");
  EXPECT_EQ(clean_path("/../../a"), "/a");
  EXPECT_EQ(clean_path(""), "/");
}

TEST(Path, LiesBelowADirectoryByComponents) {
  EXPECT_TRUE(is_at_or_below("/usr/lib/vgpu", "/usr/lib/vgpu"));
  EXPECT_TRUE(is_at_or_below("/usr/lib/x/../vgpu/y", "/usr/lib/vgpu"));
  EXPECT_FALSE(is_at_or_below("/usr/lib/vgpu2", "/usr/lib/vgpu"));
  EXPECT_FALSE(is_at_or_below("/usr/lib", "/usr/lib/vgpu"));
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_THAT(split("a,,b,", ','), testing::ElementsAre("a", "", "b", ""));
  EXPECT_TRUE(split("", ',').empty());
}

}  // namespace
}  // namespace vgpu
