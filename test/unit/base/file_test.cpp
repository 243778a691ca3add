#include "common/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vgpu {
namespace {

using testing::HasSubstr;

class File : public testing::Test {
 protected:
  File() {
    std::string pattern = testing::TempDir() + "vgpu-file-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~File() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string put(const std::string& name, std::string_view content) const {
    std::ofstream(path(name)) << content;
    return path(name);
  }

  std::string directory_;
};

TEST_F(File, IsReadWhole) {
  EXPECT_EQ(read_file(put("a", "hello"), 5, Owner::kAnyone), "hello");
}

TEST_F(File, IsRefusedOneByteBeyondTheLimit) {
  const auto text = read_file(put("a", "hello!"), 5, Owner::kAnyone);
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("larger than 5 bytes"));
}

TEST_F(File, ThatGrowsWhileItIsReadIsBoundedToo) {
  // /proc files have size 0 whatever they hold.
  EXPECT_FALSE(read_file("/proc/self/maps", 16, Owner::kAnyone));
  EXPECT_TRUE(read_file("/proc/self/maps", 1U << 20U, Owner::kAnyone));
}

TEST_F(File, IsNotReadThroughALink) {
  put("a", "hello");
  std::filesystem::create_symlink("a", path("link"));
  EXPECT_FALSE(read_file(path("link"), 5, Owner::kAnyone));
}

TEST_F(File, ThatIsAFifoIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_file(path("fifo"), 5, Owner::kAnyone).error().code, Code::kInvalidArgument);
}

TEST_F(File, ThatIsMissingIsNotFound) {
  EXPECT_EQ(read_file(path("none"), 5, Owner::kAnyone).error().code, Code::kNotFound);
}

TEST_F(File, ThatOthersMayWriteIsNotRoots) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "only root can own a file as root";
  put("a", "x");
  for (const mode_t mode : {0666U, 0622U, 0620U, 0602U}) {
    ::chmod(path("a").c_str(), mode);
    EXPECT_EQ(read_file(path("a"), 5, Owner::kRoot).error().code, Code::kPermission) << mode;
  }
  ::chmod(path("a").c_str(), 0644);
  EXPECT_TRUE(read_file(path("a"), 5, Owner::kRoot));
  ASSERT_EQ(::chown(path("a").c_str(), 1000, 0), 0);
  EXPECT_THAT(read_file(path("a"), 5, Owner::kRoot).error().message,
              HasSubstr("belongs to user 1000"));
}

TEST_F(File, IsReplacedInOneStepWithItsMode) {
  put("a", "old");
  put(temporary_name("a"), "left by a killed writer");
  const auto directory = open_directory(directory_);
  ASSERT_TRUE(write_file_at(directory->get(), "a", "new", 0640));
  struct stat status {};
  ::stat(path("a").c_str(), &status);
  EXPECT_EQ(status.st_mode & 07777U, 0640U);
  EXPECT_EQ(read_file(path("a"), 5, Owner::kAnyone), "new");
  EXPECT_FALSE(std::filesystem::exists(path(temporary_name("a"))));
}

TEST_F(File, DirectoryGetsItsModeWhateverTheUmask) {
  const mode_t before = ::umask(0077);
  EXPECT_TRUE(make_directory(path("d"), 0711));
  EXPECT_TRUE(make_directory(path("d"), 0711));
  ::umask(before);
  struct stat status {};
  ::stat(path("d").c_str(), &status);
  EXPECT_EQ(status.st_mode & 07777U, 0711U);
}

TEST_F(File, DirectoryThatIsALinkIsRefused) {
  std::filesystem::create_directory(path("d"));
  std::filesystem::create_directory_symlink("d", path("link"));
  EXPECT_FALSE(make_directory(path("link"), 0711));
  EXPECT_FALSE(open_directory(path("link")));
}

}  // namespace
}  // namespace vgpu
