#include <gtest/gtest.h>

#include "limiter/account.h"
#include "limiter/hook.h"
#include "test/unit/limiter/fake_driver.h"
#include "test/unit/limiter/files.h"

namespace vgpu::limiter {
namespace {

constexpr char kCard[] = "00000000-0000-0000-0000-000000000000";

// One process, one account: the files stay for all tests, and each test leaves them empty.
class Hooks : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    host = new TestHostPage;
    usage = new TestUsageFile;
    account().use_files(host->path(), usage->path());
    ASSERT_TRUE(bind(find_in_fake_driver));
  }
  static void TearDownTestSuite() {
    account().pointers.clear();
    delete host;
    delete usage;
  }
  void SetUp() override {
    fake_driver() = FakeDriver{};
    host->write({{kCard, 1000 * kMiB}});
  }
  void TearDown() override { EXPECT_EQ(usage->used(), 0U); }

  static CUcontext context() {
    CUcontext made = nullptr;
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&made, 0), CUDA_SUCCESS);
    return made;
  }
  static void release() { EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS); }
  static CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuMemAlloc_v2(&pointer, bytes), CUDA_SUCCESS);
    return pointer;
  }

  static TestHostPage* host;
  static TestUsageFile* usage;
};

TestHostPage* Hooks::host = nullptr;
TestUsageFile* Hooks::usage = nullptr;

TEST_F(Hooks, RefuseAnAllocationBeyondTheLimitBeforeTheDriverIsAsked) {
  context();
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuMemAlloc_v2(&pointer, 681 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake_driver().allocations, 0);
  release();
}

TEST_F(Hooks, GrantWhatTheContextLeaves) {
  context();
  const CUdeviceptr pointer = allocate(680 * kMiB);
  EXPECT_EQ(usage->used(), 1000 * kMiB);
  EXPECT_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
  EXPECT_EQ(usage->used(), 320 * kMiB);
  release();
}

TEST_F(Hooks, ChargeWhatTheDriverTakesNotWhatIsAskedFor) {
  context();
  allocate(1);
  EXPECT_EQ(usage->used(), 320 * kMiB + 512);
  release();
}

TEST_F(Hooks, RefuseSizesThatWouldWrap) {
  context();
  CUdeviceptr pointer = 0;
  std::size_t pitch = 0;
  EXPECT_EQ(cuMemAlloc_v2(&pointer, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAllocPitch_v2(&pointer, &pitch, SIZE_MAX / 2, 4, 4), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake_driver().allocations, 0);
  release();
}

TEST_F(Hooks, UndoTheChargeWhenTheDriverRefuses) {
  context();
  fake_driver().answer = CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuMemAlloc_v2(&pointer, kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(usage->used(), 320 * kMiB);
  release();
}

TEST_F(Hooks, ChargePitchedMemoryByThePitchThatTheDriverChose) {
  context();
  fake_driver().pitch = 2048;
  CUdeviceptr pointer = 0;
  std::size_t pitch = 0;
  ASSERT_EQ(cuMemAllocPitch_v2(&pointer, &pitch, 600, 1024, 4), CUDA_SUCCESS);
  EXPECT_EQ(usage->used(), 322 * kMiB);
  release();
}

TEST_F(Hooks, GiveMemoryBackWhoseRealSizeDoesNotFit) {
  context();
  fake_driver().pitch = 2048;
  CUdeviceptr pointer = 0;
  std::size_t pitch = 0;
  EXPECT_EQ(cuMemAllocPitch_v2(&pointer, &pitch, 512, std::size_t{680} * 2048, 4),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake_driver().frees, 1);
  EXPECT_EQ(usage->used(), 320 * kMiB);
  release();
}

TEST_F(Hooks, HandAPointerTheyDoNotKnowToTheDriver) {
  EXPECT_EQ(cuMemFree_v2(0xdead0000), CUDA_SUCCESS);
  EXPECT_EQ(fake_driver().frees, 1);
}

TEST_F(Hooks, KeepTheChargeOfMemoryThatTheDriverDidNotFree) {
  context();
  const CUdeviceptr pointer = allocate(kMiB);
  fake_driver().answer = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(cuMemFree_v2(pointer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(usage->used(), 321 * kMiB);
  release();
}

TEST_F(Hooks, ChargeAPrimaryContextOnce) {
  context();
  context();
  EXPECT_EQ(usage->used(), 320 * kMiB);
  release();
}

TEST_F(Hooks, ChargeEachCreatedContextAndDischargeItWithItsMemory) {
  CUcontext created = nullptr;
  context();
  ASSERT_EQ(cuCtxCreate_v2(&created, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(usage->used(), 640 * kMiB);
  ASSERT_EQ(cuCtxDestroy_v2(created), CUDA_SUCCESS);
  EXPECT_EQ(usage->used(), 320 * kMiB);
  release();
}

TEST_F(Hooks, RefuseAContextThatDoesNotFit) {
  host->write({{kCard, 300 * kMiB}});
  CUcontext created = nullptr;
  EXPECT_EQ(cuCtxCreate_v2(&created, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&created, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake_driver().contexts, 0);
}

TEST_F(Hooks, UndoTheChargeOfAContextThatTheDriverDidNotMake) {
  fake_driver().answer = CUDA_ERROR_INVALID_VALUE;
  CUcontext created = nullptr;
  EXPECT_EQ(cuCtxCreate_v2(&created, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&created, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(usage->used(), 0U);
}

TEST_F(Hooks, ChargeAContextMadeBehindTheirBackAtItsFirstMemory) {
  fake_driver().primary = true;
  const CUdeviceptr pointer = allocate(kMiB);
  EXPECT_EQ(usage->used(), 321 * kMiB);
  EXPECT_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
  release();
}

TEST_F(Hooks, PassStraightThroughWhenTheDriverCallsThem) {
  context();
  allocate(kMiB);
  EXPECT_EQ(fake_driver().seen_inside, std::uint64_t{16} << 30U);
  release();
}

TEST_F(Hooks, ShowTheShareOfTheCard) {
  context();
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  ASSERT_EQ(cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, 1000 * kMiB);
  EXPECT_EQ(free_bytes, 680 * kMiB);
  release();
}

TEST_F(Hooks, ShowNoMoreThanTheCardHas) {
  host->write({{kCard, std::uint64_t{64} << 30U}});
  context();
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  ASSERT_EQ(cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, std::uint64_t{16} << 30U);
  release();
}

TEST_F(Hooks, ShowWhatThirtyTwoBitsHoldInTheOldForm) {
  host->write({{kCard, std::uint64_t{8} << 30U}});
  context();
  unsigned free_bytes = 0;
  unsigned total = 0;
  ASSERT_EQ(cuMemGetInfo(&free_bytes, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, UINT32_MAX);
  EXPECT_EQ(free_bytes, UINT32_MAX);
  release();
}

TEST_F(Hooks, ShowTheSameThroughNvml) {
  context();
  nvmlMemory_t memory = {};
  ASSERT_EQ(nvmlDeviceGetMemoryInfo(nullptr, &memory), NVML_SUCCESS);
  EXPECT_EQ(memory.total, 1000 * kMiB);
  EXPECT_EQ(memory.used, 320 * kMiB);
  EXPECT_EQ(memory.free, 680 * kMiB);
  release();
}

TEST_F(Hooks, ShowNothingFreeWhenTheLimitHasShrunkBelowUse) {
  context();
  host->write({{kCard, 100 * kMiB}});
  std::size_t free_bytes = 1;
  std::size_t total = 0;
  nvmlMemory_t memory = {};
  ASSERT_EQ(cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
  ASSERT_EQ(nvmlDeviceGetMemoryInfo(nullptr, &memory), NVML_SUCCESS);
  EXPECT_EQ(free_bytes, 0U);
  EXPECT_EQ(memory.used, memory.total);
  EXPECT_EQ(memory.free, 0U);
  release();
}

TEST_F(Hooks, RefuseACardThatTheAllocationDoesNotName) {
  fake_driver().current = 3;
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuMemAlloc_v2(&pointer, 512), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake_driver().allocations, 0);
}

TEST_F(Hooks, RefuseNewMemoryWhileTheNodeHoldsItBack) {
  context();
  host->write({{kCard, 1000 * kMiB, 0, VGPU_DEVICE_HOLD}});
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuMemAlloc_v2(&pointer, 512), CUDA_ERROR_OUT_OF_MEMORY);
  host->write({{kCard, 1000 * kMiB}});
  EXPECT_EQ(cuMemAlloc_v2(&pointer, 512), CUDA_SUCCESS);
  release();
}

TEST_F(Hooks, SayThatAFunctionIsMissingInThisDriver) {
  CUcontext made = nullptr;
  EXPECT_EQ(cuCtxCreate_v4(&made, nullptr, 0, 0), CUDA_ERROR_NOT_FOUND);
}

TEST_F(Hooks, NeverTakeThemselvesForTheDriver) {
  EXPECT_FALSE(bind([](const char* name) -> void* {
    for (const HookRow* row = hooks_begin(); row != hooks_end(); ++row) {
      if (std::string(row->name) == name) {
        return row->hook;
      }
    }
    return nullptr;
  }));
}

}  // namespace
}  // namespace vgpu::limiter
