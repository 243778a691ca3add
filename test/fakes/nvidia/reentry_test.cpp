#include <gtest/gtest.h>

#include "test/fakes/nvidia/test_support.h"

namespace vgpu::sim::test {

bool entered = false;

namespace {

// As the real library does: a library in front of it is entered again by its internal calls. This
// program exports the function that nvmlDeviceGetMemoryInfo calls, and the loader looks in the
// program first.
TEST(SimulatedNvml, CallsItsOwnExportsByName) {
  Node node;
  in_child([] {
    Library nvml("driver", "libnvidia-ml.so.1");
    nvmlDevice_t device = nullptr;
    ASSERT_EQ(CALL(nvml, nvmlInit)(), NVML_SUCCESS);
    ASSERT_EQ(CALL(nvml, nvmlDeviceGetHandleByIndex)(0, &device), NVML_SUCCESS);
    nvmlMemory_t memory{};
    EXPECT_EQ(CALL(nvml, nvmlDeviceGetMemoryInfo)(device, &memory), NVML_ERROR_TIMEOUT);
    EXPECT_TRUE(entered);
  });
}

}  // namespace
}  // namespace vgpu::sim::test

extern "C" __attribute__((visibility("default"))) nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(
    nvmlDevice_t /*device*/, nvmlMemory_v2_t* /*memory*/) {
  vgpu::sim::test::entered = true;
  return NVML_ERROR_TIMEOUT;
}
