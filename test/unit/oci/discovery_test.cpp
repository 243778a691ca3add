#include "common/oci/discovery.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>

#include "test/unit/oci/scratch.h"

namespace vgpu::oci {
namespace {

using test::library_bytes;
using test::link;
using test::write;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DiscoveryTest : public ::testing::Test {
 protected:
  DiscoveryTest() { std::filesystem::create_directories(root()); }
  std::string root() const { return scratch_.path() + "/root"; }
  void library(const std::string& path) const { write(root() + path, library_bytes(path)); }

  Result<std::vector<DriverFile>> find() const {
    const RootedFs tree(UniqueFd(::open(root().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)));
    const auto proc = OwnProc::open();
    DiscoveryRequest request = request_;
    request.root_path = std::filesystem::canonical(root());
    for (Mount& mount : request.mounts)
      mount.point = request.root_path + mount.point;
    return discover(tree, *proc, request);
  }
  std::vector<std::string> paths() const {
    std::vector<std::string> result;
    const auto files = find();
    for (const DriverFile& file : files.value())
      result.push_back(file.path);
    return result;
  }
  test::Scratch scratch_;
  DiscoveryRequest request_;
};

TEST_F(DiscoveryTest, FindsBothLibrariesOnceThroughAllTheirLinks) {
  library("/usr/lib/x86_64-linux-gnu/libcuda.so.580.1");
  link(root() + "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so.580.1");
  link(root() + "/usr/lib/x86_64-linux-gnu/libcuda.so", "libcuda.so.1");
  library("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.1");
  link(root() + "/lib", "usr/lib");
  EXPECT_THAT(paths(), ElementsAre("/usr/lib/x86_64-linux-gnu/libcuda.so.580.1",
                                   "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.1"));
}

TEST_F(DiscoveryTest, IsNotInterestedInOtherLibraries) {
  library("/usr/lib/libcudart.so.12");
  library("/usr/lib/libcudadebugger.so.1");
  library("/usr/lib/libnvidia-ptxjitcompiler.so.1");
  EXPECT_THAT(paths(), IsEmpty());
}

TEST_F(DiscoveryTest, NamesTheRealPlaceBehindALinkedDirectory) {
  library("/opt/lib/libcuda.so.1");
  link(root() + "/usr/lib", "/opt/lib");
  EXPECT_THAT(paths(), ElementsAre("/opt/lib/libcuda.so.1"));
}

TEST_F(DiscoveryTest, FindsNothingThroughALinkOutOfTheRoot) {
  write(scratch_.path() + "/host/libcuda.so.1", library_bytes("host"));
  link(root() + "/usr/lib", "../../host");
  link(root() + "/lib64", scratch_.path() + "/host");
  EXPECT_THAT(paths(), IsEmpty());
}

TEST_F(DiscoveryTest, SurvivesLoopsOfLinks) {
  link(root() + "/usr/lib", "lib");
  link(root() + "/lib64/libcuda.so.1", "libcuda.so.1");
  EXPECT_THAT(paths(), IsEmpty());
}

TEST_F(DiscoveryTest, FollowsTheLoadersConfiguration) {
  library("/a/libcuda.so.1");
  library("/b/libcuda.so.1");
  library("/c/libcuda.so.1");
  write(root() + "/etc/ld.so.conf", "# no\ninclude ld.so.conf.d/*.conf\n\t/a  # yes\n");
  write(root() + "/etc/ld.so.conf.d/x.conf", "/b\ninclude /etc/more\n");
  write(root() + "/etc/more", "/c\ninclude /etc/ld.so.conf\n");
  write(root() + "/etc/ld.so.conf.d/x.txt", "/d\n");
  library("/d/libcuda.so.1");
  EXPECT_THAT(paths(), ElementsAre("/a/libcuda.so.1", "/b/libcuda.so.1", "/c/libcuda.so.1"));
}

TEST_F(DiscoveryTest, ReadsTheLoadersCache) {
  library("/forgotten/libcuda.so.1");
  write(root() + "/etc/ld.so.cache",
        std::string("glibc-ld.so.cache1.1\1\2\0/forgotten/libcuda.so.1\0libcuda.so.1\0", 59));
  EXPECT_THAT(paths(), ElementsAre("/forgotten/libcuda.so.1"));
}

TEST_F(DiscoveryTest, FollowsTheProgramsLibraryPath) {
  library("/x/libcuda.so.1");
  library("/y/libcuda.so.1");
  request_.library_path = "/x:relative::/y;/z";
  EXPECT_THAT(paths(), ElementsAre("/x/libcuda.so.1", "/y/libcuda.so.1"));
}

TEST_F(DiscoveryTest, FindsForwardCompatibilityPackages) {
  library("/usr/local/cuda-12.9/compat/libcuda.so.575.1");
  library("/usr/local/cuda-13.0/compat/libcuda.so.580.1");
  link(root() + "/usr/local/cuda", "cuda-13.0");
  EXPECT_THAT(paths(), ElementsAre("/usr/local/cuda-12.9/compat/libcuda.so.575.1",
                                   "/usr/local/cuda-13.0/compat/libcuda.so.580.1"));
}

TEST_F(DiscoveryTest, FindsVariantsForNewerProcessors) {
  library("/usr/lib/glibc-hwcaps/x86-64-v3/libcuda.so.1");
  EXPECT_THAT(paths(), ElementsAre("/usr/lib/glibc-hwcaps/x86-64-v3/libcuda.so.1"));
}

TEST_F(DiscoveryTest, LooksIntoMountedDirectoriesAndPutsMountsFirst) {
  library("/data/lib64/libcuda.so.1");
  library("/weird/libcuda.so.550");
  library("/sys/lib/libcuda.so.1");
  request_.mounts = {{1, 0, "/", "/data", "ext4"},
                     {2, 0, "/x", "/weird/libcuda.so.550", "ext4"},
                     {3, 0, "/", "/sys", "sysfs"}};
  EXPECT_THAT(paths(), ElementsAre("/data/lib64/libcuda.so.1", "/weird/libcuda.so.550"));
}

TEST_F(DiscoveryTest, SkipsOurOwnDirectoryStubsAndWhatIsNoLibrary) {
  library("/usr/lib/vgpu/driver/libcuda.so.1");
  library("/usr/local/cuda/lib64/stubs/libcuda.so");
  write(root() + "/usr/lib/libcuda.so", "INPUT(libcuda.so.1)");
  std::filesystem::create_directories(root() + "/usr/lib/libcuda.so.2");
  request_.library_path = "/usr/lib/vgpu/driver:/usr/local/cuda/lib64/stubs";
  EXPECT_THAT(paths(), IsEmpty());
}

TEST_F(DiscoveryTest, TellsEmptyAndForeignFilesFromDrivers) {
  write(root() + "/usr/lib/libcuda.so.1", "");
  write(root() + "/usr/lib32/libcuda.so.1", library_bytes("", 1, 3));
  library("/usr/lib64/libcuda.so.1");
  const auto files = find();
  ASSERT_EQ(files->size(), 3U);
  EXPECT_EQ((*files)[0].kind, FileKind::kEmpty);
  EXPECT_EQ((*files)[1].kind, FileKind::kForeign);
  EXPECT_EQ((*files)[2].kind, FileKind::kNative);
}

TEST_F(DiscoveryTest, GivesHardLinksTheSameIdentity) {
  library("/usr/lib/libcuda.so.1");
  std::filesystem::create_directories(root() + "/usr/lib64");
  std::filesystem::create_hard_link(root() + "/usr/lib/libcuda.so.1",
                                    root() + "/usr/lib64/libcuda.so.1");
  const auto files = find();
  ASSERT_EQ(files->size(), 2U);
  EXPECT_EQ((*files)[0].identity, (*files)[1].identity);
}

TEST_F(DiscoveryTest, RefusesAContainerThatNamesDirectoriesWithoutEnd) {
  for (int i = 0; i < 1100; ++i) {
    std::filesystem::create_directories(root() + "/d/" + std::to_string(i));
    request_.library_path += "/d/" + std::to_string(i) + ":";
  }
  const auto files = find();
  ASSERT_FALSE(files);
  EXPECT_THAT(files.error().message, ::testing::HasSubstr("more than 1024 directories"));
}

TEST_F(DiscoveryTest, RefusesAContainerWithDriverNamesWithoutEnd) {
  for (int i = 0; i < 250; ++i)
    write(root() + "/usr/lib/libcuda.so." + std::to_string(i), "");
  const auto files = find();
  ASSERT_FALSE(files);
  EXPECT_THAT(files.error().message, ::testing::HasSubstr("more than 200 files with names"));
}

TEST_F(DiscoveryTest, DoesNotTakeALackOfDescriptorsForAMissingFile) {
  for (int i = 0; i < 50; ++i)
    library("/usr/lib/libcuda.so." + std::to_string(i));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{40, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto files = find();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(files);
}

TEST_F(DiscoveryTest, RefusesAConfigurationTooLongToRead) {
  write(root() + "/etc/ld.so.conf", std::string(70000, '#'));
  EXPECT_FALSE(find());
}

TEST_F(DiscoveryTest, RefusesPatternsThatMatchWithoutEnd) {
  for (int i = 0; i < 40; ++i)
    std::filesystem::create_directories(root() + "/a/" + std::to_string(i));
  for (int i = 0; i < 40; ++i)
    link(root() + "/a/1/" + std::to_string(i), "/a");
  write(root() + "/etc/ld.so.conf", "include /a/*/*/*/*/*/*/*/*\n");
  EXPECT_FALSE(find());
}

TEST(LoaderConfig, KnowsCommentsIncludesAndOldSuffixes) {
  const LoaderConfig config = parse_loader_config(
      "/a=libc6\n  /b # x\ninclude x/*.conf\t/y\nhwcap 1 n\nincluded\n", "/etc");
  EXPECT_THAT(config.directories, ElementsAre("/a", "/b"));
  EXPECT_THAT(config.includes, ElementsAre("/etc/x/*.conf", "/y"));
}

TEST(PathBelow, IsEmptyOutside) {
  EXPECT_EQ(path_below("/r/a", "/r"), "/a");
  EXPECT_EQ(path_below("/r", "/r"), "/");
  EXPECT_EQ(path_below("/ra", "/r"), "");
  EXPECT_EQ(path_below("/x", "/"), "/x");
}

}  // namespace
}  // namespace vgpu::oci
