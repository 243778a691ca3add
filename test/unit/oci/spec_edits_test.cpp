#include "common/oci/spec_edits.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/oci/spec.h"

namespace vgpu::oci {
namespace {

using testing::HasSubstr;

constexpr const char* kCard = "GPU-00000000-1111-2222-3333-444455556666";

ContainerGrant grant_of_one_card() {
  ContainerGrant grant;
  grant.uuids = {kCard};
  grant.minors = {0};
  grant.capabilities = {"compute", "utility"};
  grant.key = "c1-0123abcd";
  grant.container_directory = "/run/vgpu/containers/c1-0123abcd";
  grant.private_directory = {24, 4711};
  grant.hook_path = "/usr/libexec/vgpu/vgpu-hook";
  return grant;
}

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// An empty process with the given members.
Json spec(const std::string& process = "", const std::string& others = "") {
  auto json =
      Json::parse(R"({"process":{)" + process + "}" + (others.empty() ? "" : ",") + others + "}");
  EXPECT_TRUE(json) << json.error().message;
  return std::move(*json);
}

Json edited(Json before, const ContainerGrant& grant) {
  auto after = edit_spec(std::move(before), grant);
  EXPECT_TRUE(after) << after.error().message;
  return after ? std::move(*after) : Json();
}

std::string refusal(Json before, const ContainerGrant& grant) {
  const auto after = edit_spec(std::move(before), grant);
  EXPECT_FALSE(after);
  return after ? "" : after.error().message;
}

struct Golden {
  std::string engine;
  std::string form;
};

class Edits : public testing::TestWithParam<Golden> {
 protected:
  static ContainerGrant grant() {
    ContainerGrant grant = grant_of_one_card();
    if (GetParam().form == "cdi")
      grant.selection = DeviceSelection::kCdi;
    if (GetParam().form == "run") {
      grant.substitute_by_hook = true;
      grant.library_directory = "/usr/lib/vgpu/1";
      grant.log = "/run/engine/log.json";
    }
    return grant;
  }
  static std::filesystem::path file(const std::string& form) {
    return std::filesystem::path(VGPU_GOLDEN_DIR) / (GetParam().engine + "." + form + ".json");
  }
  static Json before() { return std::move(*Json::parse(read(file("in")))); }
};

// VGPU_UPDATE_GOLDEN=1 writes what it finds: the difference is for review.
TEST_P(Edits, GiveTheGoldenSpecification) {
  const std::string after = edited(before(), grant()).text() + "\n";
  // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
  if (std::getenv("VGPU_UPDATE_GOLDEN") != nullptr)
    std::ofstream(file(GetParam().form)) << after;
  EXPECT_EQ(after, read(file(GetParam().form)));
}

TEST_P(Edits, ChangeNothingASecondTime) {
  const Json once = edited(before(), grant());
  EXPECT_EQ(edited(once, grant()).text(), once.text());
}

TEST_P(Edits, AreRecognised) {
  const ContainerGrant own = grant();
  EXPECT_FALSE(carries_our_edits(before(), own.key, own.container_directory));
  const Json after = edited(before(), own);
  EXPECT_TRUE(carries_our_edits(after, own.key, own.container_directory));
  EXPECT_FALSE(carries_our_edits(after, "c2-0123abcd", own.container_directory));
}

INSTANTIATE_TEST_SUITE_P(
    Engines, Edits,
    testing::Values(Golden{"containerd-1.6", "legacy"}, Golden{"containerd-1.6", "cdi"},
                    Golden{"containerd-1.6", "run"}, Golden{"crio", "legacy"},
                    Golden{"crio", "cdi"}, Golden{"docker", "legacy"}, Golden{"docker", "run"}),
    [](const auto& row) {
      return row.param.engine.substr(0, row.param.engine.find('-')) + "_" + row.param.form;
    });

TEST(DeviceSelection, ReplacesEveryRequestOfImageAndPod_BR168) {
  const Json after = edited(
      spec(
          R"("env":["NVIDIA_VISIBLE_DEVICES=all","NVIDIA_VISIBLE_DEVICES=0,1"])",
          R"("annotations":{"cdi.k8s.io/x":"nvidia.com/gpu=all","other":"kept"},)"
          R"("mounts":[{"destination":"/var/run/nvidia-container-devices/all","source":"/dev/null"}])"),
      grant_of_one_card());
  EXPECT_EQ(after.at({"process", "env"})->text(),
            R"(["NVIDIA_VISIBLE_DEVICES=)" + std::string(kCard) + R"(","NVIDIA_VISIBLE_DEVICES=)" +
                kCard + R"(","NVIDIA_DRIVER_CAPABILITIES=compute,utility"])");
  EXPECT_EQ(after.find("annotations")->text(), R"({"other":"kept"})");
  EXPECT_EQ(after.find("mounts")->items()->size(), 2U);
}

TEST(DeviceSelection, LeavesCardsThatAreAlreadyThereToTheEngine) {
  const Json after = edited(
      spec("", R"("linux":{"devices":[{"path":"/dev/nvidia0","type":"c","major":195,"minor":0}]})"),
      grant_of_one_card());
  EXPECT_EQ(environment(after, "NVIDIA_VISIBLE_DEVICES"), "void");
  EXPECT_EQ(after.find("annotations"), nullptr);
}

TEST(DeviceSelection, RefusesCardsThatAreNotAllocated) {
  EXPECT_THAT(
      refusal(spec("", R"("linux":{"devices":[{"path":"/dev/nvidia0"},{"path":"/dev/nvidia1"}]})"),
              grant_of_one_card()),
      HasSubstr("'/dev/nvidia0', '/dev/nvidia1', which are not the allocated cards"));
}

TEST(DeviceEnvironment, LosesWhatSelectsMoreThanCards) {
  const Json after = edited(
      spec(
          R"("env":["NVIDIA_GPU_MEMORY_LIMIT_0=1","NVIDIA_IMEX_CHANNELS=0",)"
          R"("NVIDIA_MIG_MONITOR_DEVICES=all","NVIDIA_GDS=enabled","NVIDIA_REQUIRE_CUDA=cuda>=12"])"),
      grant_of_one_card());
  EXPECT_EQ(after.at({"process", "env"})->items()->front(), Json("NVIDIA_REQUIRE_CUDA=cuda>=12"));
}

class Capabilities : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(Capabilities, AreClampedToTheAllocations) {
  const Json after =
      edited(spec(R"("env":["NVIDIA_DRIVER_CAPABILITIES=)" + GetParam().first + R"("])"),
             grant_of_one_card());
  EXPECT_EQ(environment(after, "NVIDIA_DRIVER_CAPABILITIES"), GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(Texts, Capabilities,
                         testing::Values(std::pair{"all", "compute,utility"},
                                         std::pair{"utility", "utility"},
                                         std::pair{"compute,graphics", "compute"},
                                         std::pair{"", "compute,utility"},
                                         std::pair{"graphics", "compute,utility"},
                                         std::pair{" compute , video", "compute"}));

TEST(GraphicsCapability, NeedsTheAdministrator) {
  ContainerGrant grant = grant_of_one_card();
  grant.capabilities.emplace_back("graphics");
  EXPECT_THAT(refusal(spec(), grant), HasSubstr("'graphics = true'"));
  grant.graphics_allowed = true;
  EXPECT_EQ(environment(edited(spec(), grant), "NVIDIA_DRIVER_CAPABILITIES"),
            "compute,utility,graphics");
}

class ForeignMount : public testing::TestWithParam<std::string> {};

TEST_P(ForeignMount, AtOrBelowOurDirectoryIsRefused) {
  EXPECT_THAT(refusal(spec("", R"("mounts":[{"destination":")" + GetParam() + R"("}])"),
                      grant_of_one_card()),
              HasSubstr("another mountPath helps"));
}

INSTANTIATE_TEST_SUITE_P(Paths, ForeignMount,
                         testing::Values("/usr/lib/vgpu", "/usr/lib/vgpu/",
                                         "/usr//lib/./vgpu/driver/cuda.0",
                                         "/usr/lib/x/../vgpu/host", "usr/lib/vgpu",
                                         "/../usr/lib/vgpu"));

TEST(Hook, IsAppendedWithAFixedEnvironment_BR133) {
  const Json after = edited(
      spec(
          "",
          R"("hooks":{"poststop":[{"path":"/first"}],"prestart":[{"path":"/proc/1/exe","args":["x"]}]})"),
      grant_of_one_card());
  const Json::Array& poststop = *after.at({"hooks", "poststop"})->items();
  ASSERT_EQ(poststop.size(), 2U);
  EXPECT_EQ(poststop[0].text(), R"({"path":"/first"})");
  EXPECT_EQ(poststop[1].find("env")->text(), R"(["PATH=/usr/sbin:/usr/bin:/sbin:/bin"])");
  EXPECT_EQ(after.at({"hooks", "createContainer"}), nullptr);
}

TEST(EditingCore, RefusesASpecificationWithoutAProcess) {
  EXPECT_THAT(refusal(Json::object(), grant_of_one_card()), HasSubstr("no 'process'"));
}

TEST(EditingCore, RefusesListsThatAreNone) {
  EXPECT_THAT(refusal(spec("", R"("mounts":{})"), grant_of_one_card()),
              HasSubstr("'mounts' is not a list"));
  EXPECT_THAT(refusal(spec("", R"("hooks":[])"), grant_of_one_card()),
              HasSubstr("'hooks' is not an object"));
}

}  // namespace
}  // namespace vgpu::oci
