#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <vector>

#include <gtest/gtest.h>

#include "test/fakes/nvidia/test_support.h"

namespace vgpu::sim::test {
namespace {

uint64_t free_mib(const Library& cuda) {
  size_t free_bytes = 0;
  size_t total = 0;
  EXPECT_EQ(CALL(cuda, cuMemGetInfo_v2)(&free_bytes, &total), CUDA_SUCCESS);
  return free_bytes / kMiB;
}

CUresult allocate(const Library& cuda, uint64_t bytes, CUdeviceptr* pointer = nullptr) {
  CUdeviceptr unused = 0;
  return CALL(cuda, cuMemAlloc_v2)(pointer == nullptr ? &unused : pointer, bytes);
}

TEST(SimulatedDriver, RefusesEveryCallBeforeCuInit) {
  Node node;
  in_child([] {
    Library cuda;
    int count = 0;
    EXPECT_EQ(CALL(cuda, cuDeviceGetCount)(&count), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(allocate(cuda, 1), CUDA_ERROR_NOT_INITIALIZED);
  });
}

TEST(SimulatedDriver, FindsNoDeviceWithoutAStateFile) {
  in_child([] {
    set_environment("NVIDIA_SIM_STATE", "/nonexistent");
    Library cuda;
    EXPECT_EQ(CALL(cuda, cuInit)(0), CUDA_ERROR_NO_DEVICE);
    Library nvml("driver", "libnvidia-ml.so.1");
    EXPECT_EQ(CALL(nvml, nvmlInit_v2)(), NVML_ERROR_DRIVER_NOT_LOADED);
  });
}

TEST(SimulatedDriver, ShowsTheCardsOfTheScenario) {
  Node node;
  in_child([] {
    Library cuda;
    ASSERT_EQ(CALL(cuda, cuInit)(0), CUDA_SUCCESS);
    int count = 0;
    EXPECT_EQ(CALL(cuda, cuDeviceGetCount)(&count), CUDA_SUCCESS);
    EXPECT_EQ(count, 2);
    size_t total = 0;
    EXPECT_EQ(CALL(cuda, cuDeviceTotalMem_v2)(&total, 1), CUDA_SUCCESS);
    EXPECT_EQ(total, 1024 * kMiB);
    CUuuid uuid{};
    EXPECT_EQ(CALL(cuda, cuDeviceGetUuid_v2)(&uuid, 1), CUDA_SUCCESS);
    EXPECT_EQ(uuid.bytes[0], 0x55);
    EXPECT_EQ(static_cast<unsigned char>(uuid.bytes[15]), 0x99);
    EXPECT_EQ(CALL(cuda, cuDeviceGetName)(nullptr, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(CALL(cuda, cuDeviceTotalMem_v2)(&total, 2), CUDA_ERROR_INVALID_DEVICE);
  });
}

// A card is visible where its device node exists and may be opened, even with no kernel driver
// behind it.
TEST(SimulatedDriver, ShowsOnlyTheCardsWhoseDeviceNodesItCanOpen) {
  if (missing("root", geteuid() == 0))
    GTEST_SKIP() << "device nodes need root";
  Node node;
  node.state().file().options.check_nodes = 1;
  auto in_private_dev = [](const std::function<void()>& body) {
    in_child([&] {
      ASSERT_EQ(unshare(CLONE_NEWNS), 0);
      ASSERT_EQ(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
      ASSERT_EQ(mount("tmpfs", "/dev", "tmpfs", 0, nullptr), 0);
      body();
    });
  };
  in_private_dev([] {
    Library cuda;
    EXPECT_EQ(CALL(cuda, cuInit)(0), CUDA_ERROR_NO_DEVICE);
  });
  in_private_dev([] {
    ASSERT_EQ(mknod("/dev/nvidia1", S_IFCHR | 0666, makedev(195, 1)), 0);
    Library cuda;
    ASSERT_EQ(CALL(cuda, cuInit)(0), CUDA_SUCCESS);
    int count = 0;
    EXPECT_EQ(CALL(cuda, cuDeviceGetCount)(&count), CUDA_SUCCESS);
    EXPECT_EQ(count, 1);
    CUuuid uuid{};
    EXPECT_EQ(CALL(cuda, cuDeviceGetUuid)(&uuid, 0), CUDA_SUCCESS);
    EXPECT_EQ(uuid.bytes[0], 0x55);
  });
}

TEST(SimulatedDriver, HonoursCudaVisibleDevices) {
  Node node;
  in_child([] {
    set_environment("CUDA_VISIBLE_DEVICES", "GPU-5555,0,7,1");
    Library cuda;
    ASSERT_EQ(CALL(cuda, cuInit)(0), CUDA_SUCCESS);
    int count = 0;
    EXPECT_EQ(CALL(cuda, cuDeviceGetCount)(&count), CUDA_SUCCESS);
    EXPECT_EQ(count, 2);
    CUuuid uuid{};
    EXPECT_EQ(CALL(cuda, cuDeviceGetUuid)(&uuid, 0), CUDA_SUCCESS);
    EXPECT_EQ(uuid.bytes[0], 0x55);
  });
}

TEST(SimulatedDriver, IsNotUsableInAForkedChild) {
  Node node;
  in_child([] {
    Library cuda;
    start(cuda);
    in_child([&] {
      EXPECT_EQ(CALL(cuda, cuInit)(0), CUDA_ERROR_NOT_INITIALIZED);
      EXPECT_EQ(allocate(cuda, 1), CUDA_ERROR_NOT_INITIALIZED);
    });
    EXPECT_EQ(allocate(cuda, 1), CUDA_SUCCESS);
  });
}

TEST(SimulatedContext, TakesItsMemoryAndGivesItBack) {
  Node node;
  in_child([&] {
    Library cuda;
    CUcontext context = start(cuda);
    EXPECT_EQ(free_mib(cuda), 704U);
    EXPECT_EQ(CALL(cuda, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuCtxDestroy_v2)(context), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(node.used(0), 0U);
    EXPECT_EQ(allocate(cuda, 1), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST(SimulatedContext, IsRefusedWhereItHasNoRoom) {
  Node node;
  in_child([] {
    Library cuda;
    CUcontext context = start(cuda);
    ASSERT_EQ(allocate(cuda, 400 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuCtxCreate_v2)(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(CALL(cuda, cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(CALL(cuda, cuDevicePrimaryCtxRetain)(&context, 1), CUDA_SUCCESS);
  });
}

TEST(SimulatedContext, FreesWhatLivesInItWhenDestroyed) {
  Node node;
  in_child([&] {
    Library cuda;
    CUcontext context = start(cuda);
    CUmodule module = nullptr;
    ASSERT_EQ(allocate(cuda, 100 * kMiB), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuda, cuModuleLoadData)(&module, "image"), CUDA_SUCCESS);
    EXPECT_EQ(node.used(0), 440 * kMiB);
    EXPECT_EQ(CALL(cuda, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    EXPECT_EQ(node.used(0), 0U);
    EXPECT_EQ(CALL(cuda, cuModuleUnload)(module), CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST(SimulatedContext, IsPrimaryWhileSomebodyUsesIt) {
  Node node;
  in_child([&] {
    Library cuda;
    ASSERT_EQ(CALL(cuda, cuInit)(0), CUDA_SUCCESS);
    CUcontext first = nullptr;
    CUcontext second = nullptr;
    EXPECT_EQ(CALL(cuda, cuDevicePrimaryCtxRetain)(&first, 0), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuDevicePrimaryCtxRetain)(&second, 0), CUDA_SUCCESS);
    EXPECT_EQ(first, second);
    EXPECT_EQ(node.used(0), 320 * kMiB);
    EXPECT_EQ(CALL(cuda, cuCtxDestroy_v2)(first), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(CALL(cuda, cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
    EXPECT_EQ(node.used(0), 320 * kMiB);
    EXPECT_EQ(CALL(cuda, cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
    EXPECT_EQ(node.used(0), 0U);
    EXPECT_EQ(CALL(cuda, cuDevicePrimaryCtxRelease_v2)(0), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST(SimulatedContext, StopsBeingUsableWhenItsPrimaryIsReset) {
  Node node;
  in_child([&] {
    Library cuda;
    ASSERT_EQ(CALL(cuda, cuInit)(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    ASSERT_EQ(CALL(cuda, cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(CALL(cuda, cuCtxSetCurrent)(context), CUDA_SUCCESS);
    ASSERT_EQ(allocate(cuda, kMiB), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuDevicePrimaryCtxReset_v2)(0), CUDA_SUCCESS);
    EXPECT_EQ(node.used(0), 0U);
    EXPECT_EQ(allocate(cuda, kMiB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  });
}

TEST(SimulatedContext, StackIsPushedAndPopped) {
  Node node("context_mib = 1");
  in_child([] {
    Library cuda;
    CUcontext first = start(cuda, 0);
    CUcontext second = start(cuda, 1);
    CUdevice device = -1;
    CUcontext popped = nullptr;
    EXPECT_EQ(CALL(cuda, cuCtxGetDevice)(&device), CUDA_SUCCESS);
    EXPECT_EQ(device, 1);
    EXPECT_EQ(CALL(cuda, cuCtxPopCurrent_v2)(&popped), CUDA_SUCCESS);
    EXPECT_EQ(popped, second);
    EXPECT_EQ(CALL(cuda, cuCtxGetCurrent)(&popped), CUDA_SUCCESS);
    EXPECT_EQ(popped, first);
    EXPECT_EQ(CALL(cuda, cuCtxPopCurrent_v2)(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuCtxPopCurrent_v2)(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST(SimulatedMemory, IsGrantedToTheLastByteAndNoFurther) {
  Node node;
  in_child([] {
    Library cuda;
    start(cuda);
    EXPECT_EQ(allocate(cuda, 704 * kMiB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(allocate(cuda, 704 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(free_mib(cuda), 0U);
    EXPECT_EQ(allocate(cuda, 1), CUDA_ERROR_OUT_OF_MEMORY);
  });
}

TEST(SimulatedMemory, ComesInPiecesOf512Bytes) {
  Node node;
  in_child([&] {
    Library cuda;
    start(cuda);
    CUdeviceptr pointer = 0;
    ASSERT_EQ(allocate(cuda, 1, &pointer), CUDA_SUCCESS);
    EXPECT_EQ(pointer % 512, 0U);
    EXPECT_EQ(node.used(0), 320 * kMiB + 512);
    EXPECT_EQ(CALL(cuda, cuMemFree_v2)(pointer), CUDA_SUCCESS);
    EXPECT_EQ(node.used(0), 320 * kMiB);
  });
}

TEST(SimulatedMemory, SharesBlocksWhereTheScenarioHasThem) {
  Node node("block_kib = 2048");
  in_child([&] {
    Library cuda;
    start(cuda);
    CUdeviceptr small[2] = {};
    ASSERT_EQ(allocate(cuda, 1, &small[0]), CUDA_SUCCESS);
    ASSERT_EQ(allocate(cuda, 1, &small[1]), CUDA_SUCCESS);
    EXPECT_EQ(node.used(0), 322 * kMiB);
    ASSERT_EQ(allocate(cuda, 2 * kMiB + 1), CUDA_SUCCESS);
    EXPECT_EQ(node.used(0), 326 * kMiB);
    EXPECT_EQ(CALL(cuda, cuMemFree_v2)(small[0]), CUDA_SUCCESS);
    EXPECT_EQ(node.used(0), 326 * kMiB);
    EXPECT_EQ(CALL(cuda, cuMemFree_v2)(small[1]), CUDA_SUCCESS);
    EXPECT_EQ(node.used(0), 324 * kMiB);
  });
}

TEST(SimulatedMemory, RefusesWhatMakesNoSense) {
  Node node;
  in_child([] {
    Library cuda;
    start(cuda);
    CUdeviceptr pointer = 0;
    ASSERT_EQ(allocate(cuda, 4096, &pointer), CUDA_SUCCESS);
    EXPECT_EQ(allocate(cuda, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(CALL(cuda, cuMemAlloc_v2)(nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(allocate(cuda, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(CALL(cuda, cuMemFree_v2)(pointer + 512), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(CALL(cuda, cuMemFree_v2)(pointer), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuMemFree_v2)(pointer), CUDA_ERROR_INVALID_VALUE);
    char byte = 0;
    EXPECT_EQ(CALL(cuda, cuMemcpyHtoD_v2)(pointer, &byte, 1), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(SimulatedMemory, HasAPitchOf512Bytes) {
  Node node;
  in_child([&] {
    Library cuda;
    start(cuda);
    CUdeviceptr pointer = 0;
    size_t pitch = 0;
    EXPECT_EQ(CALL(cuda, cuMemAllocPitch_v2)(&pointer, &pitch, 513, 2048, 4), CUDA_SUCCESS);
    EXPECT_EQ(pitch, 1024U);
    EXPECT_EQ(node.used(0), 322 * kMiB);
    EXPECT_EQ(CALL(cuda, cuMemAllocPitch_v2)(&pointer, &pitch, 1, 1, 5), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(SimulatedMemory, KeepsBytesThatAreCopiedToIt) {
  Node node;
  in_child([] {
    Library cuda;
    start(cuda);
    CUdeviceptr from = 0;
    CUdeviceptr to = 0;
    ASSERT_EQ(allocate(cuda, 5 * kMiB, &from), CUDA_SUCCESS);
    ASSERT_EQ(allocate(cuda, 5 * kMiB, &to), CUDA_SUCCESS);
    std::vector<char> sent(5 * kMiB, 'v');
    std::vector<char> received(5 * kMiB);
    EXPECT_EQ(CALL(cuda, cuMemcpyHtoD_v2)(from, sent.data(), sent.size()), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuMemsetD8_v2)(from + 7, 'x', 1), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuMemcpyDtoD_v2)(to, from, sent.size()), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuMemcpyDtoH_v2)(received.data(), to, received.size()), CUDA_SUCCESS);
    sent[7] = 'x';
    EXPECT_EQ(received, sent);
    EXPECT_EQ(CALL(cuda, cuMemcpyDtoH_v2)(received.data(), to + 1, received.size()),
              CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(SimulatedRule, FailsACallAfterThoseThatMaySucceed) {
  Node node("fail = [{function = 'cuMemAlloc_v2', result = 999, after = 2}]");
  in_child([] {
    Library cuda;
    start(cuda);
    EXPECT_EQ(allocate(cuda, 1), CUDA_SUCCESS);
    EXPECT_EQ(allocate(cuda, 1), CUDA_SUCCESS);
    EXPECT_EQ(allocate(cuda, 1), CUDA_ERROR_UNKNOWN);
  });
}

TEST(SimulatedRule, SlowsACallDown) {
  Node node("slow = [{function = 'cuMemAlloc_v2', microseconds = 3000}]");
  in_child([] {
    Library cuda;
    start(cuda);
    uint64_t before = now_ns();
    EXPECT_EQ(allocate(cuda, 1), CUDA_SUCCESS);
    EXPECT_GE(now_ns() - before, 3000000U);
  });
}

}  // namespace
}  // namespace vgpu::sim::test
