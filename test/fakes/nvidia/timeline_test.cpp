#include <cstdint>

#include <gtest/gtest.h>

#include "test/fakes/nvidia/test_support.h"

namespace vgpu::sim::test {
namespace {

CUfunction function(const Library& cuda, const char* name) {
  CUmodule module = nullptr;
  CUfunction found = nullptr;
  EXPECT_EQ(CALL(cuda, cuModuleLoadData)(&module, "image"), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuda, cuModuleGetFunction)(&found, module, name), CUDA_SUCCESS);
  return found;
}

CUresult launch(const Library& cuda, CUfunction function, uint64_t parameter,
                CUstream stream = nullptr) {
  void* parameters[] = {&parameter};
  return CALL(cuda, cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

CUevent record(const Library& cuda, CUstream stream) {
  CUevent event = nullptr;
  EXPECT_EQ(CALL(cuda, cuEventCreate)(&event, 0), CUDA_SUCCESS);
  EXPECT_EQ(CALL(cuda, cuEventRecord)(event, stream), CUDA_SUCCESS);
  return event;
}

TEST(SimulatedKernel, RunsForItsDuration) {
  Node node;
  in_child([] {
    Library cuda;
    start(cuda);
    CUstream stream = nullptr;
    ASSERT_EQ(CALL(cuda, cuStreamCreate)(&stream, 0), CUDA_SUCCESS);
    CUfunction sleep = function(cuda, "sleep_us");
    CUevent before = record(cuda, stream);
    EXPECT_EQ(launch(cuda, sleep, 20000, stream), CUDA_SUCCESS);
    EXPECT_EQ(launch(cuda, sleep, 20000, stream), CUDA_SUCCESS);
    CUevent after = record(cuda, stream);
    EXPECT_EQ(CALL(cuda, cuEventSynchronize)(after), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuStreamQuery)(stream), CUDA_SUCCESS);
    float milliseconds = 0;
    EXPECT_EQ(CALL(cuda, cuEventElapsedTime)(&milliseconds, before, after), CUDA_SUCCESS);
    EXPECT_GE(milliseconds, 40.0F);
  });
}

TEST(SimulatedKernel, WaitsOnAWordAndHoldsWhatIsBehindIt) {
  Node node;
  in_child([] {
    Library cuda;
    start(cuda);
    uint32_t word = 0;
    EXPECT_EQ(launch(cuda, function(cuda, "wait_word"), reinterpret_cast<uint64_t>(&word)),
              CUDA_SUCCESS);
    EXPECT_EQ(launch(cuda, function(cuda, "sleep_us"), 1), CUDA_SUCCESS);
    CUevent after = record(cuda, nullptr);
    EXPECT_EQ(CALL(cuda, cuStreamQuery)(nullptr), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(CALL(cuda, cuEventQuery)(after), CUDA_ERROR_NOT_READY);
    __atomic_store_n(&word, 1U, __ATOMIC_RELEASE);
    EXPECT_EQ(CALL(cuda, cuCtxSynchronize)(), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuEventQuery)(after), CUDA_SUCCESS);
  });
}

TEST(SimulatedKernel, HoldsItsOwnStreamOnly) {
  Node node;
  in_child([] {
    Library cuda;
    start(cuda);
    CUstream other = nullptr;
    ASSERT_EQ(CALL(cuda, cuStreamCreate)(&other, 1), CUDA_SUCCESS);
    uint32_t word = 0;
    ASSERT_EQ(launch(cuda, function(cuda, "wait_word"), reinterpret_cast<uint64_t>(&word)),
              CUDA_SUCCESS);
    EXPECT_EQ(launch(cuda, function(cuda, "sleep_us"), 1, other), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuStreamSynchronize)(other), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuStreamQuery_ptsz)(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuStreamQuery)(nullptr), CUDA_ERROR_NOT_READY);
  });
}

TEST(SimulatedKernel, BlocksItsLaunchWhileTheQueueIsFull) {
  Node node("queue_depth = 2");
  in_child([] {
    Library cuda;
    start(cuda);
    CUfunction sleep = function(cuda, "sleep_us");
    uint64_t before = now_ns();
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(launch(cuda, sleep, 20000), CUDA_SUCCESS);
    EXPECT_GE(now_ns() - before, 20000000U);
  });
}

TEST(SimulatedKernel, SharesTheCardWithThoseOfOtherProcesses) {
  Node node;
  Child holder([](const std::function<void()>& ready) {
    Library cuda;
    start(cuda);
    EXPECT_EQ(launch(cuda, function(cuda, "sleep_us"), 50000), CUDA_SUCCESS);
    ready();
  });
  uint64_t busy_until = node.state().file().cards[0].busy_until;
  in_child([&] {
    Library cuda;
    start(cuda);
    EXPECT_EQ(launch(cuda, function(cuda, "sleep_us"), 1000), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuCtxSynchronize)(), CUDA_SUCCESS);
    EXPECT_GE(now_ns(), busy_until + 1000000);
  });
}

TEST(SimulatedKernel, IsRefusedWithoutItsParameterOrShape) {
  Node node;
  in_child([] {
    Library cuda;
    start(cuda);
    CUfunction sleep = function(cuda, "sleep_us");
    auto call = CALL(cuda, cuLaunchKernel);
    EXPECT_EQ(call(sleep, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(call(sleep, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(call(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
              CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(call(function(cuda, "other"), 9, 9, 9, 32, 32, 1, 0, nullptr, nullptr, nullptr),
              CUDA_SUCCESS);
  });
}

TEST(SimulatedEvent, HasNoTimeUnlessItIsRecorded) {
  Node node;
  in_child([] {
    Library cuda;
    start(cuda);
    CUevent recorded = record(cuda, nullptr);
    CUevent fresh = nullptr;
    ASSERT_EQ(CALL(cuda, cuEventCreate)(&fresh, 0), CUDA_SUCCESS);
    float milliseconds = 0;
    EXPECT_EQ(CALL(cuda, cuEventQuery)(fresh), CUDA_SUCCESS);
    EXPECT_EQ(CALL(cuda, cuEventElapsedTime)(&milliseconds, recorded, fresh),
              CUDA_ERROR_INVALID_HANDLE);
  });
}

}  // namespace
}  // namespace vgpu::sim::test
