// Modules, kernels, and what happens when they go wrong.
#include <cstring>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

class LaunchTest : public DriverTest {
 protected:
  // After a sticky error every later call of the context gives it, until the context is gone.
  void ExpectBroken(CUresult error) {
    CUdeviceptr pointer = 0;
    CUstream stream = nullptr;
    EXPECT_CU(error, Cu().cuCtxSynchronize());
    EXPECT_CU(error, Cu().cuMemAlloc_v2(&pointer, 16));
    EXPECT_CU(error, Cu().cuStreamSynchronize(nullptr));
    EXPECT_CU(error, Cu().cuStreamCreate(&stream, 0));
    uint32_t host = 0;
    EXPECT_CU(error, Cu().cuMemcpyDtoH_v2(&host, out_, sizeof(host)));
  }

  uint32_t ReadWord(CUdeviceptr pointer) {
    uint32_t word = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyDtoH_v2(&word, pointer, sizeof(word)));
    return word;
  }

  CUdeviceptr out_ = 0;
};

TEST_F(LaunchTest, AddsToEveryElement) {
  constexpr uint32_t kCount = 10007;
  constexpr size_t kBytes = size_t{kCount} * 4;
  out_ = Allocate(kBytes);
  ASSERT_CU(Cu().cuMemsetD32_v2(out_, 40, kCount));
  uint32_t value = 2, count = kCount;
  ASSERT_CU(Launch(Kernel("add"), (kCount + 255) / 256, 256, nullptr, {&out_, &value, &count}));
  const auto bytes = Read(out_, kBytes);
  for (size_t i = 0; i < kCount; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, &bytes[i * 4], 4);
    ASSERT_EQ(word, 42u) << i;
  }
}

TEST_F(LaunchTest, TakesParametersAsOneBuffer) {
  out_ = Allocate(4);
  struct {
    CUdeviceptr out;
    uint32_t value;
  } parameters = {out_, 77};
  size_t size = 12;
  void* extra[] = {reinterpret_cast<void*>(CU_LAUNCH_PARAM_BUFFER_POINTER_VALUE), &parameters,
                   reinterpret_cast<void*>(CU_LAUNCH_PARAM_BUFFER_SIZE_VALUE), &size,
                   reinterpret_cast<void*>(CU_LAUNCH_PARAM_END_VALUE)};
  ASSERT_CU(Cu().cuLaunchKernel(Kernel("store"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(ReadWord(out_), 77u);
}

TEST_F(LaunchTest, TakesNoParametersAsNoBuffer) {
  const CUfunction bump = Kernel("bump");
  size_t bytes = 0;
  void* extra[] = {reinterpret_cast<void*>(CU_LAUNCH_PARAM_BUFFER_POINTER_VALUE), nullptr,
                   reinterpret_cast<void*>(CU_LAUNCH_PARAM_BUFFER_SIZE_VALUE), &bytes,
                   reinterpret_cast<void*>(CU_LAUNCH_PARAM_END_VALUE)};
  CUdeviceptr counter = 0;
  EXPECT_CU(CUDA_SUCCESS, Cu().cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  ASSERT_CU(Cu().cuModuleGetGlobal_v2(&counter, &bytes, module_, "counter"));
  EXPECT_EQ(ReadWord(counter), 8u);
}

TEST_F(LaunchTest, ModulesHaveVariables) {
  CUfunction bump = Kernel("bump");
  CUdeviceptr counter = 0;
  size_t bytes = 0;
  ASSERT_CU(Cu().cuModuleGetGlobal_v2(&counter, &bytes, module_, "counter"));
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(ReadWord(counter), 7u);
  ASSERT_CU(Launch(bump, 1, 1, nullptr, {}));
  EXPECT_EQ(ReadWord(counter), 8u);
  ASSERT_CU(Cu().cuMemsetD32_v2(counter, 100, 1));
  ASSERT_CU(Launch(bump, 1, 1, nullptr, {}));
  EXPECT_EQ(ReadWord(counter), 101u);
  CUfunction none = nullptr;
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, Cu().cuModuleGetFunction(&none, module_, "nothing"));
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, Cu().cuModuleGetGlobal_v2(&counter, &bytes, module_, "nothing"));
  ASSERT_CU(Cu().cuModuleUnload(module_));
}

TEST_F(LaunchTest, ModulesHaveConstantsThatTheHostMaySet) {
  const char text[] = PTX_HEAD R"(
.visible .const .align 4 .u32 table[4] = {1, 2, 3, 4};
.visible .entry tell(.param .u64 out)
{
  .reg .b32 %r<2>; .reg .b64 %d<4>;
  ld.param.u64 %d0, [out]; cvta.to.global.u64 %d0, %d0;
  mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4;
  mov.u64 %d2, table; add.u64 %d2, %d2, %d1; ld.const.u32 %r1, [%d2];
  add.u64 %d3, %d0, %d1; st.global.u32 [%d3], %r1;
  ret;
}
)";
  ASSERT_CU(Cu().cuModuleLoadData(&module_, text));
  CUdeviceptr table = 0;
  size_t bytes = 0;
  ASSERT_CU(Cu().cuModuleGetGlobal_v2(&table, &bytes, module_, "table"));
  ASSERT_EQ(bytes, 16u);
  out_ = Allocate(16);
  for (const uint8_t last : {4, 9}) {
    if (last != 4) Write(table + 12, {last, 0, 0, 0});
    ASSERT_CU(Launch(Kernel("tell"), 1, 4, nullptr, {&out_}));
    EXPECT_EQ(Read(out_, 16),
              (std::vector<uint8_t>{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, last, 0, 0, 0}));
    EXPECT_EQ(Read(table, 16), Read(out_, 16));
  }
}

TEST_F(LaunchTest, ChecksTheShape) {
  const CUfunction store = Kernel("store");
  out_ = Allocate(4);
  uint32_t value = 1;
  void* parameters[] = {&out_, &value};
  const auto launch = [&](unsigned int grid, unsigned int x, unsigned int y, unsigned int z,
                          unsigned int shared) {
    return Cu().cuLaunchKernel(store, grid, 1, 1, x, y, z, shared, nullptr, parameters, nullptr);
  };
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, launch(0, 1, 1, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, launch(1, 0, 1, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, launch(1, 1025, 1, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, launch(1, 32, 32, 2, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, launch(1, 1, 1, 65, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, launch(1, 1, 1, 1, 64 << 10));
  EXPECT_CU(CUDA_SUCCESS, launch(1, 32, 32, 1, 48 << 10));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxSynchronize());
}

TEST_F(LaunchTest, AKernelMayRequireTheShapeOfItsBlocks) {
  const char text[] = PTX_HEAD
      ".visible .entry two() .reqntid 8, 4 { ret; }\n.visible .entry one() .reqntid 32 { ret; }\n"
      ".visible .entry most() .maxntid 8, 4 { ret; }\n";
  CUmodule module = nullptr;
  CUfunction two = nullptr, one = nullptr, most = nullptr;
  ASSERT_CU(Cu().cuModuleLoadData(&module, text));
  ASSERT_CU(Cu().cuModuleGetFunction(&two, module, "two"));
  ASSERT_CU(Cu().cuModuleGetFunction(&one, module, "one"));
  ASSERT_CU(Cu().cuModuleGetFunction(&most, module, "most"));
  const auto launch = [](CUfunction function, unsigned int x, unsigned int y) {
    return Cu().cuLaunchKernel(function, 1, 1, 1, x, y, 1, 0, nullptr, nullptr, nullptr);
  };
  EXPECT_CU(CUDA_SUCCESS, launch(two, 8, 4));
  EXPECT_NE(launch(two, 4, 8), CUDA_SUCCESS);
  EXPECT_NE(launch(two, 32, 1), CUDA_SUCCESS);
  EXPECT_NE(launch(two, 8, 1), CUDA_SUCCESS);
  EXPECT_CU(CUDA_SUCCESS, launch(one, 32, 1));
  EXPECT_NE(launch(one, 8, 4), CUDA_SUCCESS);
  EXPECT_NE(launch(one, 31, 1), CUDA_SUCCESS);
  EXPECT_CU(CUDA_SUCCESS, launch(most, 32, 1));
  EXPECT_CU(CUDA_SUCCESS, launch(most, 3, 3));
  EXPECT_NE(launch(most, 33, 1), CUDA_SUCCESS);
  if (OnSoftwareGpu()) {  // the reference does not say which of its errors these are
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, launch(two, 4, 8));
    EXPECT_CU(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, launch(most, 33, 1));
  }
  ASSERT_CU(Cu().cuCtxSynchronize());
}

TEST_F(LaunchTest, FunctionsHaveAttributes) {
  const CUfunction store = Kernel("store");
  int threads = 0, shared = -1;
  ASSERT_CU(Cu().cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, store));
  ASSERT_CU(Cu().cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, store));
  EXPECT_GT(threads, 0);
  EXPECT_LE(threads, 1024);
  EXPECT_EQ(shared, 0);
  int optin = 0;
  ASSERT_CU(
      Cu().cuDeviceGetAttribute(&optin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
  ASSERT_CU(Cu().cuFuncSetAttribute(store, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, optin));
  EXPECT_CU(
      CUDA_ERROR_INVALID_VALUE,
      Cu().cuFuncSetAttribute(store, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, optin + 1));
}

TEST_F(LaunchTest, ExplainsBadPtx) {
  CUmodule module = nullptr;
  char log[1024] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  const char bad[] = PTX_HEAD ".visible .entry k()\n{\n  frobnicate.u32 %r1, %r2;\n}\n";
  EXPECT_CU(CUDA_ERROR_INVALID_PTX, Cu().cuModuleLoadDataEx(&module, bad, 2, options, values));
  EXPECT_GT(std::strlen(log), 0u);
  EXPECT_CU(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            Cu().cuModuleLoadData(&module, ".version 99.0\n.target sm_50\n.address_size 64\n"));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuModuleLoadData(&module, nullptr));
  EXPECT_CU(CUDA_ERROR_FILE_NOT_FOUND, Cu().cuModuleLoad(&module, "/no/such/file.ptx"));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxSynchronize());  // nothing of it sticks
}

TEST_F(LaunchTest, LogsAreCutToTheirBuffers) {
  CUmodule module = nullptr;
  char log[8] = {};
  std::memset(log, 'x', sizeof(log));
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER};
  void* values[] = {reinterpret_cast<void*>(4), log};
  EXPECT_CU(CUDA_ERROR_INVALID_PTX,
            Cu().cuModuleLoadDataEx(&module, ".version 6.3\nnonsense", 2, options, values));
  EXPECT_EQ(std::string(log + 4, 4), "xxxx");
}

TEST_F(LaunchTest, IllegalAddressSticks) {
  out_ = Allocate(4);
  CUdeviceptr nowhere = 0x10;
  uint32_t value = 1;
  ASSERT_CU(Launch(Kernel("store"), 1, 1, nullptr, {&nowhere, &value}));
  ExpectBroken(CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(LaunchTest, MisalignedAddressSticks) {
  out_ = Allocate(64);
  CUdeviceptr odd = out_ + 2;
  uint32_t value = 1;
  ASSERT_CU(Launch(Kernel("store"), 1, 1, nullptr, {&odd, &value}));
  ExpectBroken(CUDA_ERROR_MISALIGNED_ADDRESS);
}

TEST_F(LaunchTest, WritingToAParameterSticks) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "what a card does then is undefined";
  const char text[] =
      ".version 7.7\n.target sm_70\n.address_size 64\n"
      ".visible .entry change(.param .align 8 .b8 own[8])\n{\n  .reg .b64 %d;\n  .reg .b32 %r;\n"
      "  mov.b64 %d, own; cvta.param.u64 %d, %d; mov.u32 %r, 1; st.u32 [%d], %r;\n  ret;\n}\n";
  out_ = Allocate(4);
  uint64_t own = 0;
  ASSERT_CU(Cu().cuModuleLoadData(&module_, text));
  ASSERT_CU(Launch(Kernel("change"), 1, 1, nullptr, {&own}));
  ExpectBroken(CUDA_ERROR_INVALID_ADDRESS_SPACE);
}

TEST_F(LaunchTest, TrapSticksAndOtherContextsLive) {
  out_ = Allocate(4);
  CUcontext second = nullptr;
  ASSERT_CU(Launch(Kernel("trap"), 1, 1, nullptr, {}));
  ExpectBroken(CUDA_ERROR_LAUNCH_FAILED);
  // On a card a fault may take the process's other contexts along; a new process is unhurt. Here
  // it is enough that the broken context can be left.
  ASSERT_CU(Cu().cuCtxDestroy_v2(context_));
  context_ = nullptr;
  if (Cu().cuCtxCreate_v2(&second, 0, 0) != CUDA_SUCCESS) {
    GTEST_SKIP() << "this driver needs a new process after a fault";
  }
  context_ = second;
  module_ = nullptr;
  out_ = Allocate(4);
  uint32_t value = 3;
  ASSERT_CU(Launch(Kernel("store"), 1, 1, nullptr, {&out_, &value}));
  EXPECT_EQ(ReadWord(out_), 3u);
}

TEST_F(LaunchTest, AStreamsWorkOutlivesItsHandle) {
  const CUfunction store = Kernel("store");
  out_ = Allocate(4);
  uint32_t value = 3;
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, 0));
  ASSERT_CU(Launch(store, 1, 1, stream, {&out_, &value}));
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(ReadWord(out_), 3u);
}

TEST_F(LaunchTest, StaleHandlesAreRefused) {
  if (!OnSoftwareGpu())
    GTEST_SKIP() << "a card's driver follows a handle without looking at it first";
  const CUfunction store = Kernel("store");
  out_ = Allocate(4);
  ASSERT_CU(Cu().cuMemsetD32_v2(out_, 7, 1));
  uint32_t value = 3;
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, 0));
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
  EXPECT_NE(Launch(store, 1, 1, stream, {&out_, &value}), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuModuleUnload(module_));
  EXPECT_NE(Launch(store, 1, 1, nullptr, {&out_, &value}), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuModuleUnload(module_), CUDA_SUCCESS);
  EXPECT_EQ(ReadWord(out_), 7u);
}

}  // namespace
}  // namespace tandem::driver_test
