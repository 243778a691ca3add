#include "common/oci/mountinfo.h"

#include <gtest/gtest.h>

namespace vgpu::oci {
namespace {

TEST(Mountinfo, TakesIdRootPointAndType) {
  const auto mounts =
      parse_mountinfo("36 35 98:0 /a /b rw,nosuid master:1 shared:2 - ext4 /dev/x rw\n");
  ASSERT_TRUE(mounts && mounts->size() == 1);
  EXPECT_EQ((*mounts)[0].id, 36U);
  EXPECT_EQ((*mounts)[0].parent, 35U);
  EXPECT_EQ((*mounts)[0].root, "/a");
  EXPECT_EQ((*mounts)[0].point, "/b");
  EXPECT_EQ((*mounts)[0].type, "ext4");
}

TEST(Mountinfo, UndoesOctalEscapes) {
  const auto mounts = parse_mountinfo("1 2 0:1 / /a\\040b\\134c\\0 rw - tmpfs t rw\n");
  ASSERT_TRUE(mounts);
  EXPECT_EQ((*mounts)[0].point, "/a b\\c\\0");
}

TEST(Mountinfo, RefusesALineWithoutTheSeparator) {
  EXPECT_FALSE(parse_mountinfo("1 2 0:1 / /a rw x y z w\n"));
}

TEST(Mountinfo, RefusesAnIdThatIsNoNumber) {
  EXPECT_FALSE(parse_mountinfo("x 2 0:1 / /a rw - tmpfs t rw\n"));
}

TEST(Mountinfo, RefusesMoreMountsThanAnybodyHas) {
  std::string text;
  for (int i = 0; i < 32769; ++i)
    text += "1 2 0:1 / /a rw - tmpfs t rw\n";
  EXPECT_FALSE(parse_mountinfo(text));
}

}  // namespace
}  // namespace vgpu::oci
