#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "test/fakes/nvidia/test_support.h"

namespace vgpu::sim::test {
namespace {

CUdeviceptr allocate(const Library& cuda, uint64_t bytes) {
  CUdeviceptr pointer = 0;
  EXPECT_EQ(CALL(cuda, cuMemAlloc_v2)(&pointer, bytes), CUDA_SUCCESS);
  return pointer;
}

void hold(const std::function<void()>& ready, uint64_t bytes) {
  Library cuda;
  start(cuda);
  allocate(cuda, bytes);
  ready();
}

// Allocates and frees until it is killed.
void churn(const std::function<void()>& ready) {
  Library cuda;
  start(cuda);
  ready();
  for (;;)
    CALL(cuda, cuMemFree_v2)(allocate(cuda, kMiB));
}

TEST(SimulatedNode, ShowsOneProcesssMemoryToAllOthers) {
  Node node;
  Child holder([](const auto& ready) { hold(ready, 100 * kMiB); });
  in_child([] {
    Library cuda;
    start(cuda);
    size_t free_bytes = 0;
    size_t total = 0;
    EXPECT_EQ(CALL(cuda, cuMemGetInfo_v2)(&free_bytes, &total), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes, (1024 - 320 - 100 - 320) * kMiB);
  });
}

TEST(SimulatedNode, KeepsTheMemoryOfADeadProcessUntilTheDelayHasPassed) {
  Node node("free_delay_ms = 3600000");
  Child holder([](const auto& ready) { hold(ready, 100 * kMiB); });
  EXPECT_EQ(node.ledger()["processes"][0]["state"], "alive");
  holder.kill();
  EXPECT_TRUE(node.eventually(
      [](const auto& ledger) { return ledger["processes"][0]["state"] == "dead"; }));
  EXPECT_EQ(node.used(0), 420 * kMiB);
  node.state().file().options.free_delay_ms = 0;
  EXPECT_EQ(node.used(0), 0U);
}

TEST(SimulatedNode, FreesTheMemoryOfAKilledProcessByItself) {
  Node node;
  Child holder([](const auto& ready) { hold(ready, 100 * kMiB); });
  EXPECT_EQ(node.used(0), 420 * kMiB);
  holder.kill();
  EXPECT_TRUE(node.eventually([](const auto& ledger) { return ledger["cards"][0]["used"] == 0; }));
}

TEST(SimulatedNode, GivesTheMemoryOfTheDeadToWhoNeedsIt) {
  Node node("free_delay_ms = 0");
  Child holder([](const auto& ready) { hold(ready, 600 * kMiB); });
  holder.kill();
  in_child([] {
    Library cuda;
    start(cuda);
    allocate(cuda, 700 * kMiB);
  });
}

TEST(SimulatedNode, CountsPeaksPerGroupExactly) {
  Node node;
  auto user = [](const char* group) {
    set_environment("NVIDIA_SIM_GROUP", group);
    Library cuda;
    start(cuda);
    CALL(cuda, cuMemFree_v2)(allocate(cuda, 100 * kMiB));
    allocate(cuda, 10 * kMiB);
  };
  Child first([&](const auto& ready) { user("a"), ready(); });
  Child second([&](const auto& ready) { user("b"), ready(); });
  nlohmann::json ledger = node.ledger();
  EXPECT_EQ(ledger["groups"][0]["group"], "a");
  EXPECT_EQ(ledger["groups"][0]["used"][0], 330 * kMiB);
  EXPECT_EQ(ledger["groups"][0]["peak"][0], 420 * kMiB);
  EXPECT_EQ(ledger["groups"][1]["peak"][0], 420 * kMiB);
  EXPECT_EQ(ledger["cards"][0]["peak"], 750 * kMiB);
  node.state().reset_peaks();
  EXPECT_EQ(node.ledger()["groups"][0]["peak"][0], 330 * kMiB);
}

TEST(SimulatedNode, NeverGrantsMoreThanTheCardHasToProcessesThatRace) {
  Node node("context_mib = 1");
  auto* go = static_cast<volatile bool*>(
      mmap(nullptr, sizeof(bool), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<std::unique_ptr<Child>> racers;
  racers.reserve(8);
  for (int i = 0; i < 8; ++i)
    racers.push_back(std::make_unique<Child>([&](const auto& ready) {
      Library cuda;
      start(cuda);
      ready();
      while (!*go)
        sched_yield();
      CUdeviceptr pointer = 0;
      while (CALL(cuda, cuMemAlloc_v2)(&pointer, kMiB / 4) == CUDA_SUCCESS) {
      }
    }));
  *go = true;
  EXPECT_TRUE(node.eventually(
      [](const auto& ledger) { return ledger["cards"][0]["used"] == 1024 * kMiB; }));
  nlohmann::json ledger = node.ledger();
  EXPECT_EQ(ledger["cards"][0]["used"], 1024 * kMiB);
  EXPECT_EQ(ledger["cards"][0]["peak"], 1024 * kMiB);
  EXPECT_EQ(ledger["groups"][0]["peak"][0], 1024 * kMiB);
}

TEST(SimulatedNode, RecountsWhenTheOwnerOfTheLockIsKilled) {
  Node node;
  Child holder([](const auto& ready) { hold(ready, 100 * kMiB); });
  Child owner([&](const auto& ready) {
    auto* guard = new State::Guard(node.state());
    node.state().file().cards[0].used = 1;
    node.state().file().groups[0].used[0] = 2;
    ready();
    pause();
    delete guard;
  });
  owner.kill();
  nlohmann::json ledger = node.ledger();
  EXPECT_EQ(ledger["cards"][0]["used"], 420 * kMiB);
  EXPECT_EQ(ledger["groups"][0]["used"][0], 420 * kMiB);
  EXPECT_EQ(ledger["repaired"], 1);
}

TEST(SimulatedNode, SurvivesProcessesThatAreKilledAtAnyMoment) {
  Node node("free_delay_ms = 0\ncontext_mib = 1");
  Child bystander([](const auto& ready) { churn(ready); });
  for (int i = 0; i < 100; ++i) {
    Child victim([](const auto& ready) { churn(ready); });
    victim.kill();
    EXPECT_LE(node.used(0), 1024 * kMiB);
  }
  bystander.kill();
  EXPECT_TRUE(node.eventually([](const auto& ledger) { return ledger["cards"][0]["used"] == 0; }));
  EXPECT_TRUE(node.ledger()["processes"].empty());
}

TEST(SimulatedNode, NamesAProcessByItsPidInTheNamespaceOfWhoAsks) {
  if (missing("root", geteuid() == 0))
    GTEST_SKIP() << "a pid namespace needs root";
  Node node;
  Child holder([](const auto& ready) {
    // The namespace's first process, ended with its parent, holds the memory.
    ASSERT_EQ(unshare(CLONE_NEWPID), 0);
    int channel[2];
    ASSERT_EQ(pipe(channel), 0);
    if (fork() == 0) {
      hold([&] { EXPECT_EQ(write(channel[1], "r", 1), 1); }, kMiB);
      Library nvml("driver", "libnvidia-ml.so.1");
      pause();
    }
    char byte = 0;
    ASSERT_EQ(read(channel[0], &byte, 1), 1);
    ready();
  });
  nlohmann::json process = node.ledger()["processes"][0];
  EXPECT_EQ(process["pid_inside"], 1);
  EXPECT_GT(process["pid"], 1);
  std::string inside = "/proc/" + std::to_string(process["pid"].get<int>()) + "/status";
  EXPECT_EQ(access(inside.c_str(), F_OK), 0);
  kill(process["pid"].get<pid_t>(), SIGKILL);
}

// From inside a namespace the processes outside have no pid.
TEST(SimulatedNode, HidesProcessesThatHaveNoPidWhereTheAskerLives) {
  if (missing("root", geteuid() == 0))
    GTEST_SKIP() << "a pid namespace needs root";
  Node node;
  Child holder([](const auto& ready) { hold(ready, kMiB); });
  in_child([] {
    ASSERT_EQ(unshare(CLONE_NEWPID), 0);
    in_child([] {
      Library cuda;
      start(cuda);
      Library nvml("driver", "libnvidia-ml.so.1");
      nvmlDevice_t device = nullptr;
      nvmlProcessInfo_t infos[4];
      unsigned count = 4;
      ASSERT_EQ(CALL(nvml, nvmlInit_v2)(), NVML_SUCCESS);
      ASSERT_EQ(CALL(nvml, nvmlDeviceGetHandleByIndex_v2)(0, &device), NVML_SUCCESS);
      EXPECT_EQ(CALL(nvml, nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, infos),
                NVML_SUCCESS);
      ASSERT_EQ(count, 1U);
      EXPECT_EQ(infos[0].pid, 1U);
    });
  });
}

}  // namespace
}  // namespace vgpu::sim::test
