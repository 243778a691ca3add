#include "common/gpu/node.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/file.h"
#include "common/gpu/record.h"

namespace vgpu::gpu {
namespace {

using testing::HasSubstr;

class HostFile : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0)
      GTEST_SKIP() << "these files must belong to root";
    std::string pattern = testing::TempDir() + "vgpu-node-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string put(const std::string& name, std::string_view text, mode_t mode = 0644) const {
    const auto fd = open_directory(directory_);
    EXPECT_TRUE(write_file_at(fd->get(), name, text, mode));
    return directory_ + "/" + name;
  }

  std::string directory_;
};

using Node = HostFile;
using RecordFile = HostFile;

constexpr const char* kNode =
    R"({"v":1,"name":"node-a","runtime":"/usr/sbin/runc","toolkitMode":"cdi",)"
    R"("gpus":[{"uuid":"GPU-00000000-1111-2222-3333-444455556666","minor":3,"contextBytes":335544320}]})";

TEST_F(Node, TellsCardsAndMode) {
  const auto node = load_node(put("node", kNode));
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_EQ(node->name, "node-a");
  EXPECT_EQ(node->runtime, "/usr/sbin/runc");
  EXPECT_EQ(node->toolkit_mode, ToolkitMode::kCdi);
  EXPECT_EQ(node->find("GPU-00000000-1111-2222-3333-444455556666")->minor, 3U);
  EXPECT_EQ(node->cards.at(0).context, 320_MiB);
}

TEST_F(Node, IsNotBelievedWhenOthersMayWriteIt) {
  EXPECT_EQ(load_node(put("node", kNode, 0666)).error().code, Code::kPermission);
}

TEST_F(Node, NamesItsFileWhenItIsWrong) {
  for (
      const char* text :
      {"", "[]", R"({"v":2,"name":"a","gpus":[]})", R"({"v":1,"gpus":[]})",
       R"({"v":1,"name":"a","gpus":{}})", R"({"v":1,"name":"a","gpus":[{"uuid":"x","minor":0}]})",
       R"({"v":1,"name":"a","toolkitMode":"csv","gpus":[]})",
       R"({"v":1,"name":"a","gpus":[{"uuid":"GPU-00000000-1111-2222-3333-444455556666","minor":255}]})"}) {
    const auto node = load_node(put("node", text));
    ASSERT_FALSE(node) << text;
    EXPECT_THAT(node.error().message, HasSubstr(directory_ + "/node"));
  }
}

TEST_F(RecordFile, HoldsAllocationSignatureAndGeneration) {
  put("uid-1", R"({"v":1,"gen":4,"allocation":"{\"v\":1}","signature":"kid.sig"})");
  const auto record = load_record(directory_, "uid-1");
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(record->generation, 4U);
  EXPECT_EQ(record->allocation, R"({"v":1})");
  EXPECT_EQ(record->signature, "kid.sig");
}

TEST_F(RecordFile, IsNotLookedForOutsideItsDirectory) {
  put("node", kNode);
  EXPECT_EQ(load_record(directory_ + "/pods", "../node").error().code, Code::kInvalidArgument);
}

TEST_F(RecordFile, IsNotFoundWhereThereIsNone) {
  EXPECT_EQ(load_record(directory_, "uid-2").error().code, Code::kNotFound);
}

TEST_F(RecordFile, IsRefusedWhenItIsNotWholeOrNotRoots) {
  put("uid-1", R"({"v":1,"gen":4,"allocation":"x"})");
  EXPECT_FALSE(load_record(directory_, "uid-1"));
  put("uid-1", R"({"v":1,"gen":4,"allocation":"x","signature":"y"})", 0602);
  EXPECT_EQ(load_record(directory_, "uid-1").error().code, Code::kPermission);
}

}  // namespace
}  // namespace vgpu::gpu
