#include "common/oci/rooted_fs.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "test/unit/oci/scratch.h"

namespace vgpu::oci {
namespace {

using test::link;
using test::write;

// Both ways of resolving promise the same.
class RootedFsTest : public ::testing::TestWithParam<Resolver> {
 protected:
  RootedFsTest() {
    write(root() + "/opt/lib/file", "inside");
    write(scratch_.path() + "/secret", "outside");
  }
  std::string root() const { return scratch_.path() + "/root"; }
  RootedFs tree() const {
    return RootedFs(UniqueFd(::open(root().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)), GetParam());
  }
  std::string content(const std::string& path) const {
    const auto proc = OwnProc::open();
    const auto text = tree().read(*proc, path, 100);
    return text ? *text : "error " + std::to_string(static_cast<int>(text.error().code));
  }
  bool opens(const std::string& path, int flags = 0) const {
    return tree().open_path(path, flags).has_value();
  }
  test::Scratch scratch_;
};

TEST_P(RootedFsTest, OpensWhatLiesInside) {
  EXPECT_EQ(content("/opt/lib/file"), "inside");
}

TEST_P(RootedFsTest, TakesAPathWithoutALeadingSlashAndWithDots) {
  EXPECT_EQ(content("opt/./lib//../lib/file"), "inside");
}

TEST_P(RootedFsTest, FollowsAnAbsoluteLinkInside) {
  link(root() + "/usr/lib", "/opt/lib");
  EXPECT_EQ(content("/usr/lib/file"), "inside");
}

TEST_P(RootedFsTest, FollowsARelativeLinkAsLastComponent) {
  link(root() + "/usr/file", "../opt/lib/file");
  EXPECT_EQ(content("/usr/file"), "inside");
}

TEST_P(RootedFsTest, KeepsDotsBelowTheRoot) {
  link(root() + "/up", "../../../opt/lib/file");
  EXPECT_EQ(content("/up"), "inside");
  EXPECT_FALSE(opens("/../secret"));
}

TEST_P(RootedFsTest, DoesNotLeaveByALinkToTheHost) {
  link(root() + "/escape", scratch_.path() + "/secret");
  link(root() + "/climb", "../secret");
  EXPECT_FALSE(opens("/escape"));
  EXPECT_FALSE(opens("/climb"));
}

TEST_P(RootedFsTest, EndsAtALoopOfLinks) {
  link(root() + "/a", "b");
  link(root() + "/b", "a");
  EXPECT_FALSE(opens("/a"));
}

TEST_P(RootedFsTest, OpensTheLinkItselfWhenAskedTo) {
  link(root() + "/dangling", "/nowhere");
  EXPECT_FALSE(opens("/dangling"));
  EXPECT_TRUE(opens("/dangling", O_NOFOLLOW));
}

TEST_P(RootedFsTest, TakesAFileForADirectoryNowhere) {
  EXPECT_FALSE(opens("/opt/lib/file/x"));
  EXPECT_FALSE(opens("/opt/lib/file", O_DIRECTORY));
  EXPECT_TRUE(opens("/opt/lib", O_DIRECTORY));
  EXPECT_TRUE(opens("/", O_DIRECTORY));
}

TEST_P(RootedFsTest, ReadsRegularFilesOfBoundedSizeOnly) {
  ASSERT_EQ(::mkfifo((root() + "/pipe").c_str(), 0600), 0);
  write(root() + "/long", std::string(101, 'x'));
  EXPECT_EQ(content("/pipe"), "error 0");
  EXPECT_EQ(content("/long"), "error 2");
}

TEST_P(RootedFsTest, ListsAtMostAsManyNamesAsAsked) {
  write(root() + "/many/a", "");
  write(root() + "/many/b", "");
  write(root() + "/many/c", "");
  const auto directory = tree().open_path("/many", O_DIRECTORY);
  EXPECT_EQ(RootedFs::list(directory->get(), 2)->names.size(), 2U);
  EXPECT_FALSE(RootedFs::list(directory->get(), 2)->complete);
  EXPECT_TRUE(RootedFs::list(directory->get(), 3)->complete);
}

INSTANTIATE_TEST_SUITE_P(Resolvers, RootedFsTest,
                         ::testing::Values(Resolver::kKernel, Resolver::kByHand));

}  // namespace
}  // namespace vgpu::oci
