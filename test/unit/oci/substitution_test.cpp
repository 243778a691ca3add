#include "common/oci/substitution.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <tuple>

#include <gmock/gmock.h>

#include "test/unit/oci/scratch.h"

namespace vgpu::oci {
namespace {

using test::library_bytes;
using test::write;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Kernel {
  Resolver resolver = Resolver::kKernel;
  MountCalls calls;
  const char* name = "new";
};

// A container's root, prepared by hand in a mount namespace of its own, and the limiter's files
// beside it.
class World {
 public:
  World() {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", scratch_.path().c_str(), "tmpfs", 0, nullptr) != 0)
      ADD_FAILURE() << "no private file system: " << std::generic_category().message(errno);
    for (const char* kind : {"cuda", "nvml"}) {
      for (int n = 0; n < 8; ++n) {
        const std::string number = std::to_string(n);
        write(path("/limiter/libvgpu-" + std::string(kind) + "." + number + ".so"),
              library_bytes(kind + number));
        write(path("/private/driver/" + std::string(kind) + "." + number), "");
      }
    }
    write(path("/limiter/empty"), "");
    write(path("/private/usage"), "");
    make_directory("/usr/lib/vgpu");
    make_directory("/dev");
    bind("/private", "/root/usr/lib/vgpu");
    bind("/private/usage", "/root/usr/lib/vgpu/usage");
    struct stat status {};
    EXPECT_EQ(::stat(path("/private").c_str(), &status), 0);
    request_.private_directory = {status.st_dev, status.st_ino};
    request_.root_path = path("/root");
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() { ::umount2(scratch_.path().c_str(), MNT_DETACH); }

  std::string path(const std::string& below) const { return scratch_.path() + below; }
  std::string inside(const std::string& below) const { return path("/root" + below); }
  void make_directory(const std::string& below) const {
    std::filesystem::create_directories(inside(below));
  }
  void library(const std::string& below, const std::string& content) const {
    write(inside(below), library_bytes(content));
  }
  void bind(const std::string& from, const std::string& to) const {
    EXPECT_EQ(::mount(path(from).c_str(), path(to).c_str(), nullptr, MS_BIND, nullptr), 0)
        << from << " on " << to << ": " << std::generic_category().message(errno);
  }
  // The way the toolkit brings a driver file in: bound over an empty file.
  void driver(const std::string& below, const std::string& content) const {
    const std::string source = "/host/" + std::filesystem::path(below).filename().string();
    if (!std::filesystem::exists(path(source)))
      write(path(source), library_bytes(content));
    write(inside(below), "");
    bind(source, "/root" + below);
  }
  void card(unsigned minor) const {
    EXPECT_EQ(::mknod(inside("/dev/nvidia" + std::to_string(minor)).c_str(), S_IFCHR | 0666,
                      makedev(195, minor)),
              0);
  }

  Result<SubstitutionReport> substitute(std::size_t step_limit = SIZE_MAX) {
    TRY(const StandIns stand_ins, open_stand_ins(path("/limiter")), "test");
    request_.step_limit = step_limit;
    const UniqueFd root(::open(inside("").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    auto report = oci::substitute(stand_ins, root.get(), request_);
    EXPECT_EQ(::chdir("/"), 0);
    return report;
  }
  std::string message() {
    const auto report = substitute();
    return report ? "done" : report.error().message;
  }
  // What a file says after its header: which library it is.
  std::string tail(const std::string& below) const {
    std::ifstream file(inside(below), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str().size() > 64 ? text.str().substr(64) : "empty";
  }
  std::string slot(const std::string& name) const { return tail("/usr/lib/vgpu/driver/" + name); }

  // All mounts of files below the root: where, of what, how.
  std::vector<std::string> mounts() const {
    std::vector<std::string> result;
    std::ifstream file("/proc/self/mountinfo");
    for (std::string line; std::getline(file, line);) {
      std::istringstream fields(line);
      std::string id;
      std::string parent;
      std::string device;
      std::string root;
      std::string point;
      std::string options;
      std::string optional;
      fields >> id >> parent >> device >> root >> point >> options >> optional;
      if (point.starts_with(inside("/")) && point != inside("/usr/lib/vgpu") &&
          point != inside("/usr/lib/vgpu/usage"))
        result.push_back(point.substr(inside("").size())
                             .append(" < " + root)
                             .append(" " + options.substr(0, 16))
                             .append(" " + optional));
    }
    std::sort(result.begin(), result.end());
    return result;
  }

  SubstitutionRequest request_;

 private:
  test::Scratch scratch_;
};

class SubstitutionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() == 0)
      world_ = std::make_unique<World>();
    else if (test::is_required("root"))
      FAIL() << "root is required and this is not root";
    else
      GTEST_SKIP() << "needs root: it makes mounts";
  }
  World& world() { return *world_; }

 private:
  std::unique_ptr<World> world_;
};

constexpr const char* kCuda = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.1";
constexpr const char* kNvml = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.1";

// The situation most containers are in, with a compatibility copy, a second path to the same file
// and 32-bit libraries.
void prepare_usual(World& world) {
  world.driver(kCuda, "real-cuda");
  world.driver(kNvml, "real-nvml");
  test::link(world.inside("/usr/lib/x86_64-linux-gnu/libcuda.so.1"), "libcuda.so.580.1");
  world.library("/usr/local/cuda-13/compat/libcuda.so.600.1", "compat");
  std::filesystem::create_hard_link(world.inside("/usr/local/cuda-13/compat/libcuda.so.600.1"),
                                    world.inside("/usr/lib/libcuda.so.1"));
  write(world.inside("/usr/lib32/libcuda.so.1"), library_bytes("old", 1, 3));
}

TEST_F(SubstitutionTest, PutsVariantNOverThePathAndTheDriverIntoSlotN) {
  world().driver(kCuda, "real-cuda");
  world().driver(kNvml, "real-nvml");
  const auto report = world().substitute();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(world().tail(kCuda), "cuda0");
  EXPECT_EQ(world().slot("cuda.0"), "real-cuda");
  EXPECT_EQ(world().tail(kNvml), "nvml0");
  EXPECT_EQ(world().slot("nvml.0"), "real-nvml");
}

TEST_F(SubstitutionTest, GivesEachDifferentCopyItsOwnSlotAndEqualOnesTheSame) {
  prepare_usual(world());
  ASSERT_EQ(world().message(), "done");
  EXPECT_EQ(world().tail("/usr/lib/x86_64-linux-gnu/libcuda.so.1"), "cuda0");
  EXPECT_EQ(world().tail("/usr/local/cuda-13/compat/libcuda.so.600.1"), "cuda1");
  EXPECT_EQ(world().tail("/usr/lib/libcuda.so.1"), "cuda1");
  EXPECT_EQ(world().slot("cuda.1"), "compat");
  EXPECT_EQ(world().slot("cuda.2"), "empty");
}

TEST_F(SubstitutionTest, CoversALibraryOfAnotherArchitectureWithAnEmptyFile) {
  prepare_usual(world());
  const auto report = world().substitute();
  EXPECT_THAT(report->covered, ElementsAre("/usr/lib32/libcuda.so.1"));
  EXPECT_EQ(world().tail("/usr/lib32/libcuda.so.1"), "empty");
}

TEST_F(SubstitutionTest, UncoversAnEmptyFileWhenOursIsTakenAway) {
  world().driver(kCuda, "real-cuda");
  ASSERT_EQ(world().message(), "done");
  ASSERT_EQ(::umount(world().inside(kCuda).c_str()), 0);
  EXPECT_EQ(world().tail(kCuda), "empty");
}

TEST_F(SubstitutionTest, SharesTheSlotBetweenTwoMountsOfOneFile) {
  world().driver(kCuda, "real-cuda");
  world().driver("/opt/driver/libcuda.so.580.1", "real-cuda");
  ASSERT_EQ(world().message(), "done");
  EXPECT_EQ(world().tail(kCuda), "cuda0");
  EXPECT_EQ(world().tail("/opt/driver/libcuda.so.580.1"), "cuda0");
  EXPECT_EQ(world().slot("cuda.1"), "empty");
}

TEST_F(SubstitutionTest, CoversTheFilesOfADirectoryAtEachPlaceItIsMounted) {
  write(world().path("/host/lib/libcuda.so.1"), library_bytes("real"));
  world().make_directory("/opt/a/lib64");
  world().make_directory("/opt/b");
  world().bind("/host/lib", "/root/opt/a/lib64");
  world().bind("/host/lib", "/root/opt/b");
  ASSERT_EQ(world().message(), "done");
  EXPECT_EQ(world().tail("/opt/a/lib64/libcuda.so.1"), "cuda0");
  EXPECT_EQ(world().tail("/opt/b/libcuda.so.1"), "cuda0");
}

TEST_F(SubstitutionTest, MakesEveryMountReadOnlyNosuidNodevAndPrivate) {
  ASSERT_EQ(::mount(nullptr, world().path("").c_str(), nullptr, MS_SHARED, nullptr), 0);
  world().driver(kCuda, "real-cuda");
  ASSERT_EQ(world().message(), "done");
  const auto mounts = world().mounts();
  ASSERT_EQ(mounts.size(),
            3U);  // the driver's own mount stays: it lies in a shared tree and cannot be moved
  EXPECT_EQ(std::count_if(mounts.begin(), mounts.end(),
                          [](const std::string& mount) {
                            return mount.find("ro,nosuid,nodev") != std::string::npos &&
                                   mount.ends_with(" -");
                          }),
            2);
}

TEST_F(SubstitutionTest, LeavesTheDriverAloneWhenAnotherDirectoryLiesInOurPlace) {
  world().driver(kCuda, "real-cuda");
  write(world().path("/other/driver/cuda.0"), "");
  world().bind("/other", "/root/usr/lib/vgpu");
  EXPECT_THAT(world().message(), HasSubstr("another directory lies there"));
  EXPECT_EQ(world().tail(kCuda), "real-cuda");
}

TEST_F(SubstitutionTest, RefusesAForeignMountBelowOurDirectory) {
  world().driver(kCuda, "real-cuda");
  write(world().path("/other/file"), "x");
  world().bind("/other/file", "/root/usr/lib/vgpu/usage");
  EXPECT_THAT(world().message(), HasSubstr("a foreign mount lies at '/usr/lib/vgpu/usage'"));
}

TEST_F(SubstitutionTest, RefusesASlotThatHoldsTheLimiter) {
  world().driver(kCuda, "real-cuda");
  world().bind("/limiter/libvgpu-cuda.0.so", "/root/usr/lib/vgpu/driver/cuda.0");
  EXPECT_THAT(world().message(), HasSubstr("holds something else than a driver library"));
}

TEST_F(SubstitutionTest, RefusesALimiterWithoutADriverBehindIt) {
  world().driver(kCuda, "real-cuda");
  world().bind("/limiter/libvgpu-cuda.3.so", "/root" + std::string(kCuda));
  EXPECT_THAT(world().message(), HasSubstr("its slot 'cuda.3' holds no driver"));
}

TEST_F(SubstitutionTest, RefusesANinthCopy) {
  for (int i = 0; i < 9; ++i)
    world().library("/usr/local/cuda-" + std::to_string(i) + "/compat/libcuda.so.1",
                    "copy" + std::to_string(i));
  EXPECT_THAT(world().message(), HasSubstr("more than 8 different copies of libcuda"));
}

TEST_F(SubstitutionTest, ServesEightCopies) {
  for (int i = 0; i < 8; ++i)
    world().library("/usr/local/cuda-" + std::to_string(i) + "/compat/libcuda.so.1",
                    "copy" + std::to_string(i));
  ASSERT_EQ(world().message(), "done");
  EXPECT_EQ(world().slot("cuda.7"), "copy7");
  EXPECT_EQ(world().tail("/usr/local/cuda-7/compat/libcuda.so.1"), "cuda7");
}

TEST_F(SubstitutionTest, RefusesACardWithoutADriver) {
  world().card(0);
  world().request_.device_minors = {0};
  EXPECT_THAT(world().message(), HasSubstr("no libcuda for this machine"));
}

TEST_F(SubstitutionTest, TakesAContainerWithNeitherCardNorDriver) {
  EXPECT_EQ(world().message(), "done");
  EXPECT_THAT(world().mounts(), IsEmpty());
}

TEST_F(SubstitutionTest, RefusesACardOutsideTheAllocation) {
  world().driver(kCuda, "real-cuda");
  world().card(0);
  world().card(1);
  world().request_.device_minors = {0};
  EXPECT_THAT(world().message(), HasSubstr("'/dev/nvidia1' is not of the pod's allocation"));
}

TEST_F(SubstitutionTest, FindsACardUnderAnyName) {
  world().driver(kCuda, "real-cuda");
  ASSERT_EQ(::mknod(world().inside("/dev/tty").c_str(), S_IFCHR, makedev(195, 3)), 0);
  EXPECT_THAT(world().message(), HasSubstr("'/dev/tty' is not of the pod's allocation"));
}

TEST_F(SubstitutionTest, DoesNotTakeControlNodesForCards) {
  world().driver(kCuda, "real-cuda");
  world().card(255);
  world().card(254);
  EXPECT_EQ(world().message(), "done");
}

TEST_F(SubstitutionTest, RefusesALimiterThatOthersMayWrite) {
  world().driver(kCuda, "real-cuda");
  ASSERT_EQ(::chmod(world().path("/limiter/libvgpu-cuda.0.so").c_str(), 0666), 0);
  EXPECT_THAT(world().message(), HasSubstr("'libvgpu-cuda.0.so'"));
}

TEST_F(SubstitutionTest, IgnoresEmptyFilesOfAnEarlierContainer) {
  world().driver(kCuda, "real-cuda");
  write(world().inside("/usr/lib/x86_64-linux-gnu/libcuda.so.550.1"), "");
  const auto report = world().substitute();
  ASSERT_TRUE(report);
  EXPECT_THAT(report->substituted,
              ElementsAre(SubstitutionReport::Entry{kCuda, Library::kCuda, 0}));
}

// Every kernel, and a crash after each change.
class SubstitutionOnKernels : public SubstitutionTest,
                              public ::testing::WithParamInterface<Kernel> {
 protected:
  static void use(World& world) {
    world.request_.resolver = GetParam().resolver;
    world.request_.mount_calls = GetParam().calls;
    prepare_usual(world);
  }
};

TEST_P(SubstitutionOnKernels, EndsTheSame) {
  use(world());
  ASSERT_EQ(world().message(), "done");
  EXPECT_THAT(
      world().mounts(),
      ElementsAre(
          HasSubstr("/usr/lib/libcuda.so.1 < /limiter/libvgpu-cuda.1.so ro,nosuid,nodev"),
          HasSubstr("/usr/lib/vgpu/driver/cuda.0 < /host/libcuda.so.580.1 ro,nosuid,nodev"),
          HasSubstr("/usr/lib/vgpu/driver/cuda.1 < "),
          HasSubstr("/usr/lib/vgpu/driver/nvml.0 < /host/libnvidia-ml.so.580.1 ro,nosuid,nodev"),
          HasSubstr("libcuda.so.580.1 < /limiter/libvgpu-cuda.0.so ro,nosuid,nodev"),
          HasSubstr("libnvidia-ml.so.580.1 < /limiter/libvgpu-nvml.0.so"),
          HasSubstr("/usr/lib32/libcuda.so.1 < /limiter/empty ro,nosuid,nodev"),
          HasSubstr("libcuda.so.600.1 < /limiter/libvgpu-cuda.1.so")));
}

TEST_P(SubstitutionOnKernels, ASecondRunChangesNothing) {
  use(world());
  const auto first = world().substitute();
  const auto mounts = world().mounts();
  const auto second = world().substitute();
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(world().mounts(), mounts);
  EXPECT_THAT(second->substituted, ::testing::UnorderedElementsAreArray(first->substituted));
}

// In a user namespace of its own all mounts that were there before are locked in place, and so are
// their flags.
std::string substitute_in_user_namespace(World& world) {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
    return "unshare: " + std::generic_category().message(errno);
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 0 1";
  std::ofstream("/proc/self/gid_map") << "0 0 1";
  const std::string message = world.message();
  const UniqueFd file(::open(world.inside(kCuda).c_str(), O_PATH | O_CLOEXEC));
  if (message == "done" && !is_hardened(file.get()))
    return "not read-only, nosuid and nodev";
  return message + " " + world.tail(kCuda) + " " + world.slot("cuda.0");
}

TEST_P(SubstitutionOnKernels, WorksWhereMountsAndTheirFlagsAreLocked) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a process with two threads cannot enter a user namespace, and the thread "
                  "sanitizer is the second";
#endif
  use(world());
  ASSERT_EQ(::mount(nullptr, world().inside(kCuda).c_str(), nullptr,
                    MS_REMOUNT | MS_BIND | MS_NOEXEC | MS_NOATIME, nullptr),
            0);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string result = substitute_in_user_namespace(world());
    ::_exit(::write(writer.get(), result.data(), result.size()) > 0 ? 0 : 1);
  }
  writer.reset();
  EXPECT_EQ(read_all(reader.get(), 4096).value(), "done cuda0 real-cuda");
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

// The number of changes of an undisturbed run.
std::size_t crash_and_repeat(std::size_t limit, const Kernel& kernel,
                             const std::vector<std::string>& expected) {
  World world;
  world.request_.resolver = kernel.resolver;
  world.request_.mount_calls = kernel.calls;
  prepare_usual(world);
  const bool crashed = !world.substitute(limit);
  EXPECT_EQ(world.message(), "done") << "after a crash at change " << limit;
  EXPECT_EQ(world.mounts(), expected) << "after a crash at change " << limit;
  return crashed ? limit + 1 : 0;
}

TEST_P(SubstitutionOnKernels, CompletesWhatACrashAtAnyPointLeft) {
  use(world());
  ASSERT_EQ(world().message(), "done");
  const auto expected = world().mounts();
  std::size_t limit = 0;
  while (const std::size_t next = crash_and_repeat(limit, GetParam(), expected))
    limit = next;
  EXPECT_GE(limit, 8U);
}

INSTANTIATE_TEST_SUITE_P(Kernels, SubstitutionOnKernels,
                         ::testing::Values(Kernel{Resolver::kKernel, {true, true}, "current"},
                                           Kernel{Resolver::kKernel, {true, false}, "before5_12"},
                                           Kernel{Resolver::kByHand, {true, false}, "before5_6"},
                                           Kernel{Resolver::kByHand, {false, false}, "before5_2"}),
                         [](const auto& kernel) { return std::string(kernel.param.name); });

}  // namespace
}  // namespace vgpu::oci
