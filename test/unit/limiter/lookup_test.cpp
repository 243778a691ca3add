#include "limiter/cuda/lookup.h"

#include <gtest/gtest.h>

#include "limiter/hook.h"
#include "test/unit/limiter/fake_driver.h"

namespace vgpu::limiter {
namespace {

constexpr cuuint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

std::string meant(const char* name, int version, cuuint64_t flags = 0) {
  const char* symbol = symbol_meant(name, version, flags);
  return symbol == nullptr ? "" : symbol;
}

template <typename T>
void* address(T* function) {
  return reinterpret_cast<void*>(function);
}

TEST(SymbolMeant, IsTheNewestThatIsNotNewerThanTheCaller) {
  EXPECT_EQ(meant("cuCtxCreate", 3010), "cuCtxCreate");
  EXPECT_EQ(meant("cuCtxCreate", 11030), "cuCtxCreate_v2");
  EXPECT_EQ(meant("cuCtxCreate", 11040), "cuCtxCreate_v3");
  EXPECT_EQ(meant("cuCtxCreate", 13000), "cuCtxCreate_v4");
}

TEST(SymbolMeant, IsNothingForACallerOlderThanTheFunction) {
  EXPECT_EQ(meant("cuGetProcAddress", 11020), "");
  EXPECT_EQ(meant("cuGetProcAddress", 11030), "cuGetProcAddress");
  EXPECT_EQ(meant("cuGetProcAddress", 12000), "cuGetProcAddress_v2");
}

TEST(SymbolMeant, PrefersThePerThreadFormWhereThereIsOne) {
  EXPECT_EQ(meant("cuMemFreeAsync", 12000), "cuMemFreeAsync");
  EXPECT_EQ(meant("cuMemFreeAsync", 12000, kPerThread), "cuMemFreeAsync_ptsz");
  EXPECT_EQ(meant("cuMemAlloc", 12000, kPerThread), "cuMemAlloc_v2");
}

TEST(SymbolMeant, IsNothingForNamesThatConcernNoLimit) {
  EXPECT_EQ(meant("cuCtxSynchronize", 12000), "");
  EXPECT_EQ(meant("cuMemAlloc_v2", 12000), "");
  EXPECT_EQ(meant("cudnnCreate", 12000), "");
  EXPECT_EQ(meant("", 0), "");
}

class Translation : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(bind(find_in_fake_driver)); }
  int elsewhere_ = 0;  // an entry point that the driver does not export
};

TEST_F(Translation, IsByAddress) {
  void* real = find_in_fake_driver("cuMemAlloc_v2");
  EXPECT_EQ(translated("cuMemAlloc", 12000, 0, real), address(cuMemAlloc_v2));
  EXPECT_EQ(translated("any name", 12000, 0, real), address(cuMemAlloc_v2));
}

TEST_F(Translation, IsByNameForAnEntryPointThatIsNotExported) {
  EXPECT_EQ(translated("cuMemAlloc", 12000, 0, &elsewhere_), address(cuMemAlloc_v2));
  EXPECT_EQ(translated("cuMemGetInfo", 3010, 0, &elsewhere_), address(cuMemGetInfo));
}

TEST_F(Translation, LeavesOtherFunctionsAlone) {
  EXPECT_EQ(translated("cuLaunchKernel", 12000, 0, &elsewhere_), &elsewhere_);
  EXPECT_EQ(translated("cuMemFreeAsync", 12000, 0, &elsewhere_), &elsewhere_);
}

TEST_F(Translation, LeavesAbsenceAlone) {
  EXPECT_EQ(translated("cuMemAlloc", 12000, 0, nullptr), nullptr);
}

TEST_F(Translation, LeavesOurHooksAlone) {
  EXPECT_EQ(translated("cuMemFree", 12000, 0, address(cuMemAlloc_v2)), address(cuMemAlloc_v2));
}

TEST_F(Translation, ReachesThroughTheHookedLookUp) {
  fake_driver().looked_up = find_in_fake_driver("cuMemFree_v2");
  void* found = nullptr;
  ASSERT_EQ(cuGetProcAddress_v2("cuMemFree", &found, 12000, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(found, address(cuMemFree_v2));
}

}  // namespace
}  // namespace vgpu::limiter
