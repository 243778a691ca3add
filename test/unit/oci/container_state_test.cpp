#include "common/oci/container_state.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vgpu::oci {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class State : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0)
      GTEST_SKIP() << "state must belong to root";
    std::string pattern = testing::TempDir() + "vgpu-state-XXXXXX";
    run_ = ::mkdtemp(pattern.data());
    state_.id = "c1";
    state_.runtime_root = "/run/runc";
    state_.key = *container_key(state_.id, state_.runtime_root);
    state_.bundle = "/bundle \"x\"";
    state_.pid_file = "/bundle/pid";
    state_.cgroups_path = "/kubepods/pod1/c1";
    state_.pod_uid = "uid";
    state_.pod_name = "team/train";
    state_.container_name = "main";
    state_.private_directory = {UINT64_MAX, 7};
    state_.library_path = "/a:/b";
    state_.device_minors = {3, 1};
    state_.user_namespace = true;
    state_.runtime = "/usr/bin/nvidia-container-runtime";
  }
  void TearDown() override {
    if (!run_.empty())
      fs::remove_all(run_);
  }
  void make_directory_of_container() const {
    const fs::path directory = container_directory(run_, state_.key);
    fs::create_directories(directory / "driver");
    std::ofstream(directory / "usage") << "x";
    std::ofstream(directory / "driver" / "cuda.0") << "";
  }

  std::string run_;
  ContainerState state_;
};

TEST(ContainerKey, IsTheIdAndTheRuntimesRoot) {
  EXPECT_EQ(*container_key("abc", "/run/runc"), "abc-58ff279f");
  EXPECT_NE(*container_key("abc", "/run/runc"), *container_key("abc", "/run/crun"));
  EXPECT_TRUE(is_container_key(*container_key(std::string(128, 'a'), "")));
}

TEST(ContainerKey, RefusesWhatCouldLeaveItsDirectory) {
  for (const char* id : {"", ".", "..", "../x", "a/b", "-a", "a b", "a\n", "\xc3\xa9"}) {
    EXPECT_FALSE(container_key(id, "/run/runc")) << id;
  }
  EXPECT_FALSE(container_key(std::string(129, 'a'), "/"));
  EXPECT_FALSE(is_container_key("../../etc-00000000"));
  EXPECT_FALSE(is_container_key("abc-0000000g"));
  EXPECT_FALSE(is_container_key("-00000000"));
}

TEST_F(State, IsReadBackAsItWasWritten) {
  ASSERT_TRUE(save(state_, run_));
  const auto loaded = load(run_, state_.key);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(*loaded, state_);
}

TEST_F(State, ChangesItsPhase) {
  ASSERT_TRUE(save(state_, run_));
  state_.phase = Phase::kSubstituted;
  ASSERT_TRUE(save(state_, run_));
  EXPECT_EQ(load(run_, state_.key)->phase, Phase::kSubstituted);
}

TEST_F(State, IsForRootAlone) {
  ASSERT_TRUE(save(state_, run_));
  struct stat status {};
  ::stat(state_path(run_, state_.key).c_str(), &status);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
  ::stat((run_ + "/state").c_str(), &status);
  EXPECT_EQ(status.st_mode & 07777U, 0700U);
}

TEST_F(State, IsNotFoundWhereThereIsNone) {
  EXPECT_EQ(load(run_, state_.key).error().code, Code::kNotFound);
}

TEST_F(State, IsRefusedWhenItIsNotWhatWasWritten) {
  ASSERT_TRUE(save(state_, run_));
  for (const char* text : {"", "{}", R"({"v":2})", "[1]"}) {
    std::ofstream(state_path(run_, state_.key)) << text;
    EXPECT_EQ(load(run_, state_.key).error().code, Code::kInvalidArgument) << text;
  }
}

TEST_F(State, IsRefusedUnderAnotherKey) {
  ASSERT_TRUE(save(state_, run_));
  const std::string other = *container_key("c2", "/run/runc");
  fs::rename(state_path(run_, state_.key), state_path(run_, other));
  EXPECT_THAT(load(run_, other).error().message, HasSubstr("is of 'c1-"));
}

TEST_F(State, GoesWithItsDirectory) {
  ASSERT_TRUE(save(state_, run_));
  make_directory_of_container();
  ASSERT_TRUE(remove_container(run_, state_.key));
  EXPECT_TRUE(fs::is_empty(run_ + "/state"));
  EXPECT_TRUE(fs::is_empty(run_ + "/containers"));
  EXPECT_TRUE(remove_container(run_, state_.key));
}

TEST_F(State, RemovesLinksWithoutFollowingThem) {
  make_directory_of_container();
  const fs::path outside = fs::path(run_) / "outside";
  fs::create_directory(outside);
  std::ofstream(outside / "kept") << "x";
  fs::create_directory_symlink(outside, container_directory(run_, state_.key) + "/link");
  ASSERT_TRUE(remove_container(run_, state_.key));
  EXPECT_TRUE(fs::exists(outside / "kept"));
}

TEST_F(State, RefusesToRemoveMoreThanItMade) {
  fs::create_directories(container_directory(run_, state_.key) + "/1/2/3/4/5/6");
  EXPECT_FALSE(remove_container(run_, state_.key));
}

}  // namespace
}  // namespace vgpu::oci
