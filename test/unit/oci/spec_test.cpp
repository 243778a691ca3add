#include "common/oci/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vgpu::oci {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Json spec(std::string_view text) {
  auto json = Json::parse(text);
  EXPECT_TRUE(json) << json.error().message;
  return std::move(*json);
}

TEST(Environment, GivesTheLastOfSeveral) {
  const Json s = spec(R"({"process":{"env":["A=1","AB=2","A=3=4","B"]}})");
  EXPECT_EQ(environment(s, "A"), "3=4");
  EXPECT_EQ(environment(s, "B"), "");
  EXPECT_EQ(environment(s, "C"), std::nullopt);
}

TEST(Environment, IsSetInEveryOccurrence) {
  Json s = spec(R"({"process":{"env":["A=1","B=2","A=3"]}})");
  set_environment(s, "A", "x");
  set_environment(s, "C", "y");
  EXPECT_EQ(s.text(), R"({"process":{"env":["A=x","B=2","A=x","C=y"]}})");
}

TEST(Environment, IsMadeWhereThereIsNone) {
  Json s = spec(R"({"process":{"env":null}})");
  set_environment(s, "A", "x");
  EXPECT_EQ(s.text(), R"({"process":{"env":["A=x"]}})");
}

TEST(Questions, TakeWhatHasTheWrongTypeForAbsent) {
  const Json s = spec(
      R"({"process":{"env":[1,null,{}]},"annotations":[],"mounts":{},"hooks":[],"linux":{"devices":"x",)"
      R"("cgroupsPath":7,"uidMappings":{},"resources":{"devices":[1,{"allow":"yes"}]}}})");
  EXPECT_EQ(environment(s, "A"), std::nullopt);
  EXPECT_EQ(annotation(s, "a"), std::nullopt);
  EXPECT_EQ(cgroups_path(s), "");
  EXPECT_FALSE(has_user_namespace(s));
  EXPECT_THAT(card_minors(s), IsEmpty());
  EXPECT_FALSE(opens_every_card(s));
  EXPECT_FALSE(has_driver_mount(s));
  EXPECT_FALSE(has_toolkit_hook(s));
}

TEST(Cards, AreFoundByPathAndByNumber) {
  const Json s = spec(R"({"linux":{"devices":[
      {"path":"/dev/nvidia3"},{"path":"/dev//nvidia3","type":"c","major":195,"minor":3},
      {"path":"/dev/renamed","type":"c","major":195,"minor":1},
      {"path":"/dev/nvidiactl","type":"c","major":195,"minor":255},
      {"path":"/dev/nvidia-modeset","type":"c","major":195,"minor":254},
      {"path":"/dev/nvidia-uvm","type":"c","major":510,"minor":0},
      {"path":"/dev/sda","type":"b","major":195,"minor":0}]}})");
  EXPECT_THAT(card_minors(s), ElementsAre(1, 3));
}

class DeviceRule : public testing::TestWithParam<std::pair<std::string, bool>> {};

TEST_P(DeviceRule, OpensEveryCardOrNot) {
  const Json s = spec(R"({"linux":{"resources":{"devices":[{"allow":false,"access":"rwm"},)" +
                      GetParam().first + "]}}}");
  EXPECT_EQ(opens_every_card(s), GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, DeviceRule,
    testing::Values(
        std::pair{R"({"allow":true,"access":"rwm"})", true},
        std::pair{R"({"allow":true,"type":"a","major":-1,"minor":-1,"access":"rwm"})", true},
        std::pair{R"({"allow":true,"type":"c","major":195,"access":"rw"})", true},
        std::pair{R"({"allow":true,"type":"c","major":195,"minor":null,"access":"r"})", true},
        std::pair{R"({"allow":true})", true},
        std::pair{R"({"allow":true,"type":"c","access":"m"})", false},
        std::pair{R"({"allow":true,"type":"b","access":"rwm"})", false},
        std::pair{R"({"allow":true,"type":"c","major":136,"access":"rwm"})", false},
        std::pair{R"({"allow":true,"type":"c","major":195,"minor":0,"access":"rw"})", false},
        std::pair{R"({"allow":false,"access":"rwm"})", false}));

TEST(DriverMount, IsFoundByItsFileName) {
  EXPECT_TRUE(has_driver_mount(
      spec(R"({"mounts":[{"destination":"/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04"}]})")));
  EXPECT_FALSE(has_driver_mount(spec(R"({"mounts":[{"destination":"/opt/libcudart.so.12"}]})")));
}

TEST(ToolkitHook, IsFoundInEveryPhase) {
  EXPECT_TRUE(has_toolkit_hook(
      spec(R"({"hooks":{"prestart":[{"path":"/usr/bin/nvidia-container-runtime-hook"}]}})")));
  EXPECT_TRUE(has_toolkit_hook(spec(
      R"({"hooks":{"createContainer":[{"path":"/x"},{"path":"/usr/bin/nvidia-cdi-hook"}]}})")));
  EXPECT_FALSE(has_toolkit_hook(spec(R"({"hooks":{"prestart":[{"path":"/proc/1/exe"}]}})")));
}

TEST(UserNamespace, IsSeenByMappingsOrByPath) {
  EXPECT_TRUE(has_user_namespace(spec(R"({"linux":{"uidMappings":[{"hostID":1}]}})")));
  EXPECT_TRUE(has_user_namespace(
      spec(R"({"linux":{"namespaces":[{"type":"user","path":"/proc/1/ns/user"}]}})")));
  EXPECT_FALSE(has_user_namespace(spec(R"({"linux":{"namespaces":[{"type":"mount"}]}})")));
}

}  // namespace
}  // namespace vgpu::oci
