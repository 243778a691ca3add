#include "runtime-wrapper/wish.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/oci/spec.h"
#include "runtime-wrapper/report.h"

namespace vgpu::runtime {
namespace {

constexpr std::string_view kUid = "0b9b1b5e-1111-4222-8333-444455556666";

std::string cri(const std::string& more = "", const std::string& type = "container") {
  return R"("annotations":{"io.kubernetes.cri.container-type":")" + type +
         R"(","io.kubernetes.cri.container-name":"main","io.kubernetes.cri.sandbox-name":"train",)"
         R"("io.kubernetes.cri.sandbox-namespace":"team","io.kubernetes.cri.sandbox-uid":")" +
         std::string(kUid) + "\"" + (more.empty() ? "" : "," + more) + "}";
}

std::string allocation_naming(const std::string& container) {
  return R"("vgpu.io/allocation":"{\"v\":1,\"gen\":1,\"pod\":\")" + std::string(kUid) +
         R"(\",\"node\":\"n\",\"containers\":{\")" + container +
         R"(\":{\"gpus\":[{\"uuid\":\"GPU-00000000-1111-2222-3333-444455556666\",\"memory\":1,\"cores\":0}]}}}")";
}

Json spec(const std::string& members) {
  auto json = Json::parse("{" + members + "}");
  EXPECT_TRUE(json) << json.error().message;
  return std::move(*json);
}

Paths no_records() {
  Paths paths;
  paths.run = "/nonexistent";
  return paths;
}

struct Case {
  std::string what;
  std::string members;
  bool wished;
};

class WishOf : public testing::TestWithParam<Case> {};

TEST_P(WishOf, IsWhatTheTableSays) {
  const Json s = spec(GetParam().members);
  EXPECT_EQ(static_cast<bool>(find_wish(s, identify_pod(s), no_records())), GetParam().wished);
}

INSTANTIATE_TEST_SUITE_P(
    Table, WishOf,
    testing::Values(
        Case{"Nothing", cri(), false},
        Case{"ImageAsksForAll", cri() + R"(,"process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]})",
             false},
        Case{"AllocationNamesIt", cri(allocation_naming("main")), true},
        Case{"AllocationNamesAnother", cri(allocation_naming("other")), false},
        Case{"AllocationCannotBeRead", cri(R"("vgpu.io/allocation":"{")"), true},
        Case{"Requested", cri() + R"(,"process":{"env":["VGPU_REQUESTED=1"]})", true},
        Case{"DeviceNode", cri() + R"(,"linux":{"devices":[{"path":"/dev/nvidia0"}]})", true},
        Case{
            "ControlNodeOnly",
            cri() +
                R"(,"linux":{"devices":[{"path":"/dev/nvidiactl","type":"c","major":195,"minor":255}]})",
            false},
        Case{
            "PrivilegedWithEveryNode",
            cri() +
                R"(,"linux":{"devices":[{"path":"/dev/nvidia0"}],"resources":{"devices":[{"allow":true,"access":"rwm"}]}})",
            false},
        Case{"ToolkitHook",
             cri() + R"(,"hooks":{"prestart":[{"path":"/usr/bin/nvidia-container-runtime-hook"}]})",
             true},
        Case{"CdiHook",
             cri() + R"(,"hooks":{"createContainer":[{"path":"/usr/bin/nvidia-cdi-hook"}]})", true},
        Case{"DriverMount", cri() + R"(,"mounts":[{"destination":"/usr/lib64/libcuda.so.1"}])",
             true},
        Case{"Sandbox", cri(allocation_naming("main"), "sandbox"), false},
        Case{"SandboxWithDevices",
             cri("", "sandbox") + R"(,"linux":{"devices":[{"path":"/dev/nvidia0"}]})", true}),
    [](const auto& row) { return row.param.what; });

TEST(Pod, IsNamedByContainerd) {
  const Json s = spec(cri() + R"(,"linux":{"cgroupsPath":"/kubepods/burstable/pod)" +
                      std::string(kUid) + R"(/c1"})");
  const PodIdentity pod = identify_pod(s);
  EXPECT_EQ(pod.uid, kUid);
  EXPECT_EQ(pod.full_name(), "team/train");
  EXPECT_EQ(pod.container, "main");
  EXPECT_EQ(pod.conflict, "");
}

TEST(Pod, IsNamedByCrioInItsOwnKeysOnly) {
  const Json s = spec(
      R"("annotations":{"io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.cri.sandbox-namespace":"vgpu-system",)"
      R"("io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri-o.Labels":"{\"io.kubernetes.pod.namespace\":\"team\",)"
      R"(\"io.kubernetes.pod.name\":\"train\",\"io.kubernetes.container.name\":\"main\",\"io.kubernetes.pod.uid\":\"u-1\"}"})");
  const PodIdentity pod = identify_pod(s);
  EXPECT_EQ(pod.full_name(), "team/train");
  EXPECT_EQ(pod.container, "main");
  EXPECT_EQ(pod.uid, "u-1");
  EXPECT_FALSE(pod.sandbox);
}

TEST(Pod, WhoseUidsDifferIsInConflict) {
  const Json s = spec(
      cri() + R"(,"linux":{"cgroupsPath":"/kubepods/pod0b9b1b5e-9999-4222-8333-444455556666/c1"})");
  EXPECT_NE(identify_pod(s).conflict, "");
}

TEST(PodUid, IsFoundInEveryFormOfCgroup) {
  const std::string uid(kUid);
  const std::string escaped = "0b9b1b5e_1111_4222_8333_444455556666";
  EXPECT_EQ(pod_uid_of_cgroup("/kubepods/burstable/pod" + uid + "/c1"), uid);
  EXPECT_EQ(pod_uid_of_cgroup("kubepods-burstable-pod" + escaped + ".slice:cri-containerd:c1"),
            uid);
  EXPECT_EQ(pod_uid_of_cgroup("/kubepods.slice/kubepods-pod" + escaped + ".slice/c1"), uid);
  EXPECT_EQ(pod_uid_of_cgroup("/pod" + std::string(36, 'a') + "/kubepods/pod" + uid + "/c1"), uid);
  for (const char* path :
       {"", "/docker/c1", "/pods/c1", "/kubepods/pod/c1", "/kubepods/pod../c1"}) {
    EXPECT_EQ(pod_uid_of_cgroup(path), "") << path;
  }
}

TEST(ErrorLine, IsOneJsonObject) {
  EXPECT_EQ(error_line({Code::kInternal, "say \"no\"\n"}, true, {}),
            "{\"level\":\"error\",\"msg\":\"vgpu: say "
            "\\\"no\\\"\\u000a\",\"time\":\"1970-01-01T00:00:00Z\"}\n");
}

TEST(ErrorLine, IsTheRuntimesTextOtherwise) {
  EXPECT_EQ(error_line({Code::kInternal, "no"}, false, {}),
            "time=\"1970-01-01T00:00:00Z\" level=error msg=\"vgpu: no\"\n");
}

}  // namespace
}  // namespace vgpu::runtime
