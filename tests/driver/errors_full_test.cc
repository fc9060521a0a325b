// What is refused, and how: what needs memory of a device that has none left.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

const Answers kNoMemory = {CUDA_ERROR_OUT_OF_MEMORY};

class ErrorsFullTest : public ErrorsTest {
 protected:
  void SetUp() override {
    ErrorsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
    for (size_t bytes = size_t{16} << 30; bytes >= kPage; bytes /= 2) {
      CUdeviceptr pointer = 0;
      while (Cu().cuMemAlloc_v2(&pointer, bytes) == CUDA_SUCCESS) blocks_.push_back(pointer);
    }
  }
  void TearDown() override {
    for (const CUdeviceptr block : blocks_) TAKES(cuMemFree_v2, block);
    ErrorsTest::TearDown();
  }
  std::vector<CUdeviceptr> blocks_;
};

TEST_F(ErrorsFullTest, Contexts) {
  CUcontext context = nullptr;
  unsigned int flags = 0;
  int active = 0;
  REFUSES(kNoMemory, cuCtxCreate_v2, &context, 0, 0);
  REFUSES(kNoMemory, cuCtxCreate_v3, &context, nullptr, 0, 0, 0);
  TAKES(cuDevicePrimaryCtxGetState, 0, &flags, &active);
  if (active != 0) GTEST_SKIP() << "somebody else in this process has the primary context";
  REFUSES(kNoMemory, cuDevicePrimaryCtxRetain, &context, 0);
}

TEST_F(ErrorsFullTest, Arrays) {
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR plane = {4096, 4096, CU_AD_FORMAT_FLOAT, 1};
  const CUDA_ARRAY3D_DESCRIPTOR box = {256, 256, 256, CU_AD_FORMAT_FLOAT, 1, 0};
  REFUSES(kNoMemory, cuArrayCreate_v2, &array, &plane);
  REFUSES(kNoMemory, cuArray3DCreate_v2, &array, &box);
}

TEST_F(ErrorsFullTest, Modules) {
  constexpr char kLarge[] = PTX_HEAD ".visible .global .b8 large[67108864];\n";
  const std::string path = testing::TempDir() + "/tandem_large_" + std::to_string(getpid());
  std::ofstream(path) << kLarge;
  CUmodule module = nullptr;
  REFUSES(kNoMemory, cuModuleLoad, &module, path.c_str());
  REFUSES(kNoMemory, cuModuleLoadData, &module, kLarge);
  REFUSES(kNoMemory, cuModuleLoadDataEx, &module, kLarge, 0, nullptr, nullptr);
  REFUSES(kNoMemory, cuModuleLoadFatBinary, &module, kLarge);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace tandem::driver_test
