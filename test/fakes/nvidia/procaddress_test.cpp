#include <dlfcn.h>

#include <gtest/gtest.h>

#include "test/fakes/nvidia/test_support.h"

namespace vgpu::sim::test {
namespace {

struct Answer {
  CUresult result;
  std::string symbol;  // whose address was answered, "" for null
  int status;
};

Answer ask(const Library& cuda, const char* name, int version, cuuint64_t flags = 0) {
  void* function = nullptr;
  int status = -1;
  CUresult result = CALL(cuda, cuGetProcAddress_v2)(
      name, &function, version, flags, reinterpret_cast<CUdriverProcAddressQueryResult*>(&status));
  Dl_info info{};
  bool known = function != nullptr && dladdr(function, &info) != 0 && info.dli_sname != nullptr;
  return {result, known ? info.dli_sname : "", status};
}

struct Row {
  const char* name;
  int version;
  cuuint64_t flags;
  const char* symbol;
  int status;
};

class Rules : public testing::TestWithParam<Row> {};

TEST_P(Rules, ChooseTheSymbol) {
  Node node;
  in_child([] {
    Library cuda;
    Answer answer = ask(cuda, GetParam().name, GetParam().version, GetParam().flags);
    EXPECT_EQ(answer.result, CUDA_SUCCESS);
    EXPECT_EQ(answer.symbol, GetParam().symbol);
    EXPECT_EQ(answer.status, GetParam().status);
  });
}

INSTANTIATE_TEST_SUITE_P(
    GetProcAddress, Rules,
    testing::Values(Row{"cuInit", 2000, 0, "cuInit", 0},                       //
                    Row{"cuMemAlloc", 3020, 0, "cuMemAlloc_v2", 0},            //
                    Row{"cuMemAlloc", 3010, 0, "cuMemAlloc", 0},               //
                    Row{"cuMemAlloc", 13000, 2, "cuMemAlloc_v2", 0},           // no per-thread form
                    Row{"cuGetProcAddress", 11030, 0, "cuGetProcAddress", 0},  //
                    Row{"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2", 0},                //
                    Row{"cuCtxCreate", 3020, 0, "cuCtxCreate_v2", 0},                           //
                    Row{"cuCtxCreate", 11040, 0, "cuCtxCreate_v3", 0},                          //
                    Row{"cuCtxCreate", 13000, 0, "cuCtxCreate_v4", 0},                          //
                    Row{"cuDevicePrimaryCtxRelease", 7000, 0, "cuDevicePrimaryCtxRelease", 0},  //
                    Row{"cuDevicePrimaryCtxRelease", 11000, 0, "cuDevicePrimaryCtxRelease_v2", 0},
                    Row{"cuLaunchKernel", 7000, 0, "cuLaunchKernel", 0},       //
                    Row{"cuLaunchKernel", 7000, 1, "cuLaunchKernel", 0},       //
                    Row{"cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz", 0},  //
                    Row{"cuLaunchKernel", 6050, 2, "cuLaunchKernel",
                        0},  // before its per-thread form
                    Row{"cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds", 0},  //
                    Row{"cuMemcpyHtoD", 13000, 0, "cuMemcpyHtoD_v2", 0},       //
                    Row{"cuMemAllocAsync", 11010, 0, "", 2},                   // too new
                    Row{"cuMemAllocAsync", 11020, 0, "cuMemAllocAsync", 0},    //
                    Row{"", 0, 0, "", 1},                                      //
                    Row{"cuNoSuchFunction", 13000, 0, "", 1},                  //
                    Row{"cuMemAlloc_v2", 13000, 0, "cuMemAlloc_v2", 0},        //
                    Row{"cuMemAlloc_v2_ptds", 13000, 0, "", 1},                // exact names only
                    Row{"cuMemAllo", 13000, 0, "", 1},                         //
                    Row{"cudnnCreate", 13000, 0, "", 1}));

TEST(GetProcAddress, RefusesVersionsAboveTheDriversAndUnknownFlags) {
  Node node;
  in_child([] {
    Library cuda;
    EXPECT_EQ(ask(cuda, "cuInit", 13010).result, CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(ask(cuda, "cuInit", 13000, 3).result, CUDA_ERROR_INVALID_VALUE);
    void* function = nullptr;
    EXPECT_EQ(CALL(cuda, cuGetProcAddress_v2)("cuInit", &function, 13000, 0, nullptr),
              CUDA_SUCCESS);
    EXPECT_NE(function, nullptr);
    EXPECT_EQ(CALL(cuda, cuGetProcAddress_v2)("cuInit", nullptr, 13000, 0, nullptr),
              CUDA_ERROR_INVALID_VALUE);
  });
}

void* looked_up(const Library& cuda, const char* name) {
  void* function = nullptr;
  EXPECT_EQ(CALL(cuda, cuGetProcAddress)(name, &function, 13000, 0), CUDA_SUCCESS);
  return function;
}

TEST(Flavour, AnswersTheExportedAddressAsTheRealOneDoes) {
  Node node;
  for (const char* flavour : {"driver", "driver-nosymbolic"})
    in_child([&] {
      Library cuda(flavour);
      EXPECT_EQ(looked_up(cuda, "cuMemAlloc"), cuda.symbol("cuMemAlloc_v2"));
    });
}

TEST(Flavour, AnswersAnEntryPointThatNoExportShares) {
  Node node;
  in_child([] {
    Library cuda("driver-private");
    void* function = looked_up(cuda, "cuMemAlloc");
    EXPECT_NE(function, cuda.symbol("cuMemAlloc_v2"));
    start(cuda);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(reinterpret_cast<decltype(&cuMemAlloc_v2)>(function)(&pointer, 1), CUDA_SUCCESS);
  });
}

TEST(Flavour, OfAnOldDriverExportsNothingThatCameLater) {
  Node node("cuda_version = 11020");
  in_child([] {
    Library cuda("driver-old");
    EXPECT_EQ(cuda.symbol("cuGetProcAddress"), nullptr);
    EXPECT_EQ(cuda.symbol("cuGetProcAddress_v2"), nullptr);
    EXPECT_NE(cuda.symbol("cuMemAllocAsync"), nullptr);
    start(cuda);
  });
}

TEST(Export, OfAFunctionWithoutCodeAnswersNotSupported) {
  Node node;
  in_child([] {
    Library cuda;
    void* function = cuda.symbol("cuTexRefGetArray");
    ASSERT_NE(function, nullptr);
    EXPECT_EQ(reinterpret_cast<int (*)()>(function)(), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_NE(cuda.symbol("cudbgReportDriverApiErrorFlags"), nullptr);
  });
}

}  // namespace
}  // namespace vgpu::sim::test
