#include <unistd.h>

#include <cstring>

#include <gtest/gtest.h>

#include "test/fakes/nvidia/test_support.h"

namespace vgpu::sim::test {

namespace {

struct Nvml : Library {
  Nvml() : Library("driver", "libnvidia-ml.so.1") {}

  nvmlDevice_t first() const {
    nvmlDevice_t device = nullptr;
    EXPECT_EQ(CALL(*this, nvmlInit_v2)(), NVML_SUCCESS);
    EXPECT_EQ(CALL(*this, nvmlDeviceGetHandleByIndex_v2)(0, &device), NVML_SUCCESS);
    return device;
  }
};

uint64_t used_mib(const Nvml& nvml, nvmlDevice_t device) {
  nvmlMemory_v2_t memory{};
  memory.version = NVML_MEMORY_V2;
  EXPECT_EQ(CALL(nvml, nvmlDeviceGetMemoryInfo_v2)(device, &memory), NVML_SUCCESS);
  return memory.used / kMiB;
}

TEST(SimulatedNvml, CountsItsInitializations) {
  Node node;
  in_child([] {
    Nvml nvml;
    unsigned count = 0;
    EXPECT_EQ(CALL(nvml, nvmlDeviceGetCount_v2)(&count), NVML_ERROR_UNINITIALIZED);
    EXPECT_EQ(CALL(nvml, nvmlInit)(), NVML_SUCCESS);
    EXPECT_EQ(CALL(nvml, nvmlInitWithFlags)(0), NVML_SUCCESS);
    EXPECT_EQ(CALL(nvml, nvmlShutdown)(), NVML_SUCCESS);
    EXPECT_EQ(CALL(nvml, nvmlDeviceGetCount)(&count), NVML_SUCCESS);
    EXPECT_EQ(count, 2U);
    EXPECT_EQ(CALL(nvml, nvmlShutdown)(), NVML_SUCCESS);
    EXPECT_EQ(CALL(nvml, nvmlShutdown)(), NVML_ERROR_UNINITIALIZED);
  });
}

TEST(SimulatedNvml, ShowsMemoryInBothVersions) {
  Node node;
  node.state().file().cards[0].reserved = 24 * kMiB;
  in_child([] {
    Nvml nvml;
    nvmlDevice_t device = nvml.first();
    Library cuda;
    start(cuda);
    nvmlMemory_t memory{};
    EXPECT_EQ(CALL(nvml, nvmlDeviceGetMemoryInfo)(device, &memory), NVML_SUCCESS);
    EXPECT_EQ(memory.total, 1024 * kMiB);
    EXPECT_EQ(memory.used, 344 * kMiB);
    EXPECT_EQ(memory.free, 680 * kMiB);
    nvmlMemory_v2_t wide{};
    EXPECT_EQ(CALL(nvml, nvmlDeviceGetMemoryInfo_v2)(device, &wide),
              NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    wide.version = NVML_MEMORY_V2;
    EXPECT_EQ(CALL(nvml, nvmlDeviceGetMemoryInfo_v2)(device, &wide), NVML_SUCCESS);
    EXPECT_EQ(wide.reserved, 24 * kMiB);
    EXPECT_EQ(wide.used, 320 * kMiB);
  });
}

TEST(SimulatedNvml, SaysHowMuchRoomATextOrListNeeds) {
  Node node;
  in_child([] {
    Nvml nvml;
    nvmlDevice_t device = nvml.first();
    Library cuda;
    start(cuda);
    char uuid[96];
    EXPECT_EQ(CALL(nvml, nvmlDeviceGetUUID)(device, uuid, 40), NVML_ERROR_INSUFFICIENT_SIZE);
    EXPECT_EQ(CALL(nvml, nvmlDeviceGetUUID)(device, uuid, 41), NVML_SUCCESS);
    unsigned count = 0;
    auto list = CALL(nvml, nvmlDeviceGetComputeRunningProcesses_v3);
    EXPECT_EQ(list(device, &count, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
    EXPECT_EQ(count, 1U);
    nvmlProcessInfo_t info{};
    EXPECT_EQ(list(device, &count, &info), NVML_SUCCESS);
    EXPECT_EQ(info.pid, static_cast<unsigned>(getpid()));
    EXPECT_EQ(info.usedGpuMemory, 320 * kMiB);
  });
}

TEST(SimulatedNvml, FindsADeviceByWhateverNamesIt) {
  Node node;
  in_child([] {
    Nvml nvml;
    nvmlDevice_t device = nvml.first();
    nvmlDevice_t found = nullptr;
    EXPECT_EQ(
        CALL(nvml, nvmlDeviceGetHandleByUUID)("GPU-00000000-1111-2222-3333-444444444444", &found),
        NVML_SUCCESS);
    EXPECT_EQ(found, device);
    EXPECT_EQ(CALL(nvml, nvmlDeviceGetHandleByPciBusId_v2)("0000:3b:00.0", &found), NVML_SUCCESS);
    EXPECT_EQ(found, device);
    EXPECT_EQ(CALL(nvml, nvmlDeviceGetHandleByUUID)("GPU-0", &found), NVML_ERROR_NOT_FOUND);
    EXPECT_EQ(CALL(nvml, nvmlDeviceGetHandleByIndex)(2, &found), NVML_ERROR_INVALID_ARGUMENT);
  });
}

TEST(SimulatedNvml, LagsBehindByWhatTheScenarioSays) {
  Node node("nvml_lag_ms = 3600000");
  in_child([&] {
    Nvml nvml;
    nvmlDevice_t device = nvml.first();
    EXPECT_EQ(used_mib(nvml, device), 0U);
    Library cuda;
    start(cuda);
    EXPECT_EQ(used_mib(nvml, device), 0U);
    node.state().file().options.nvml_lag_ms = 0;
    EXPECT_EQ(used_mib(nvml, device), 320U);
  });
}

}  // namespace
}  // namespace vgpu::sim::test
