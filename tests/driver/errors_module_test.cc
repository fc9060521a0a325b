// What is refused, and how: modules, functions, libraries, the linker, occupancy, launches.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

constexpr const char* kNoFile = "/nonexistent/tandem.ptx";
const Answers kNoCode = {CUDA_ERROR_INVALID_PTX, CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_VALUE,
                         CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_INVALID_SOURCE};
const Answers kNoSuchFile = {CUDA_ERROR_FILE_NOT_FOUND, CUDA_ERROR_INVALID_VALUE};
const Answers kCannotBeRead = {CUDA_ERROR_FILE_NOT_FOUND};
// It is there, and holds no code.
const Answers kDirectory = {CUDA_ERROR_FILE_NOT_FOUND, CUDA_ERROR_INVALID_VALUE,
                            CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_OPERATING_SYSTEM,
                            CUDA_ERROR_OUT_OF_MEMORY};

class ErrorsModuleTest : public ErrorsTest {
 protected:
  void SetUp() override {
    ErrorsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    store_ = Kernel("store");
    ASSERT_CU(Cu().cuMemAlloc_v2(&out_, 64));
    if (Cu().cuLibraryLoadData == nullptr) return;
    ASSERT_CU(
        Cu().cuLibraryLoadData(&library_, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
    ASSERT_CU(Cu().cuLibraryGetKernel(&kernel_, library_, "store"));
  }
  void TearDown() override {
    if (library_ != nullptr) TAKES(cuLibraryUnload, library_);
    ErrorsTest::TearDown();
  }

  CUfunction store_ = nullptr;
  CUdeviceptr out_ = 0;
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
};

TEST_F(ErrorsModuleTest, Loading) {
  CUmodule module = nullptr;
  REFUSES(kValue, cuModuleLoad, nullptr, kNoFile);
  REFUSES(kValue, cuModuleLoad, &module, nullptr);
  REFUSES(kCannotBeRead, cuModuleLoad, &module, kNoFile);
  REFUSES(kDirectory, cuModuleLoad, &module, "/");
  REFUSES(kValue, cuModuleLoadData, nullptr, kKernels);
  REFUSES(kValue, cuModuleLoadData, &module, nullptr);
  REFUSES(kNoCode, cuModuleLoadData, &module, "this is no program");
  REFUSES(kValue, cuModuleLoadDataEx, nullptr, kKernels, 0, nullptr, nullptr);
  REFUSES(kValue, cuModuleLoadDataEx, &module, nullptr, 0, nullptr, nullptr);
  REFUSES(kNoCode, cuModuleLoadDataEx, &module, "this is no program", 0, nullptr, nullptr);
  REFUSES(kValue, cuModuleLoadFatBinary, nullptr, kKernels);
  REFUSES(kValue, cuModuleLoadFatBinary, &module, nullptr);
  REFUSES(kNullHandle, cuModuleUnload, nullptr);
  const Answers too_new = {CUDA_ERROR_UNSUPPORTED_PTX_VERSION};
  const Answers other_card = {CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_INVALID_PTX};
  REFUSES(too_new, cuModuleLoadData, &module, ".version 99.0\n.target sm_50\n.address_size 64\n");
  REFUSES(other_card, cuModuleLoadData, &module,
          ".version 6.3\n.target sm_999\n.address_size 64\n");
  EXPECT_EQ(module, nullptr);
}

TEST_F(ErrorsModuleTest, OptionsThatThereAreNot) {
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  CUlinkState state = nullptr;
  auto jit = NoSuch<CUjit_option>();
  auto option = NoSuch<CUlibraryOption>();
  void* values[] = {nullptr};
  REFUSES(kValue, cuModuleLoadDataEx, &module, kKernels, 1, &jit, values);
  REFUSES(kValue, cuLinkCreate, 1, &jit, values, &state);
  REFUSES(kValue, cuLinkCreate_v2, 1, &jit, values, &state);
  REFUSES(kValue, cuLibraryLoadData, &library, kKernels, &jit, values, 1, nullptr, nullptr, 0);
  REFUSES(kValue, cuLibraryLoadData, &library, kKernels, nullptr, nullptr, 0, &option, values, 1);
}

TEST_F(ErrorsModuleTest, LookingInside) {
  CUfunction function = nullptr;
  CUdeviceptr pointer = 0;
  size_t bytes = 0;
  unsigned int count = 0;
  REFUSES(kValue, cuModuleGetFunction, nullptr, module_, "store");
  REFUSES(kValue, cuModuleGetFunction, &function, module_, nullptr);
  REFUSES(kNotFound, cuModuleGetFunction, &function, module_, "nobody");
  REFUSES(kNotFound, cuModuleGetFunction, &function, module_, "counter");
  REFUSES(kNullHandle, cuModuleGetFunction, &function, nullptr, "store");
  REFUSES(kValue, cuModuleGetGlobal_v2, &pointer, &bytes, module_, nullptr);
  REFUSES(kNotFound, cuModuleGetGlobal_v2, &pointer, &bytes, module_, "nobody");
  const Answers no_variable = {CUDA_ERROR_NOT_FOUND, CUDA_ERROR_INVALID_VALUE};
  REFUSES(no_variable, cuModuleGetGlobal_v2, &pointer, &bytes, module_, "store");
  REFUSES(kNullHandle, cuModuleGetGlobal_v2, &pointer, &bytes, nullptr, "counter");
  REFUSES(kValue, cuModuleGetFunctionCount, nullptr, module_);
  REFUSES(kNullHandle, cuModuleGetFunctionCount, &count, nullptr);
  REFUSES(kValue, cuModuleEnumerateFunctions, nullptr, 1, module_);
  REFUSES(kNullHandle, cuModuleEnumerateFunctions, &function, 1, nullptr);
  EXPECT_EQ(function, nullptr);
}

TEST_F(ErrorsModuleTest, Functions) {
  int number = 0;
  size_t offset = 0, size = 0;
  REFUSES(kValue, cuFuncGetAttribute, nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, store_);
  REFUSES(kValue, cuFuncGetAttribute, &number, NoSuch<CUfunction_attribute>(), store_);
  REFUSES(kValue, cuFuncSetAttribute, store_, NoSuch<CUfunction_attribute>(), 1);
  REFUSES(kValue, cuFuncSetAttribute, store_, CU_FUNC_ATTRIBUTE_NUM_REGS, 1);  // a fact
  REFUSES(kValue, cuFuncSetAttribute, store_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
          1 << 30);
  REFUSES(kValue, cuFuncSetAttribute, store_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1);
  REFUSES(kValue, cuFuncSetCacheConfig, store_, NoSuch<CUfunc_cache>());
  REFUSES(kValue, cuFuncSetSharedMemConfig, store_, NoSuch<CUsharedconfig>());
  REFUSES(kValue, cuFuncGetModule, nullptr, store_);
  REFUSES(kValue, cuFuncGetName, nullptr, store_);
  REFUSES(kValue, cuFuncGetParamInfo, store_, 0, nullptr, &size);
  REFUSES(kValue, cuFuncGetParamInfo, store_, 2, &offset, &size);  // it has two
  REFUSES(kValue, cuFuncIsLoaded, nullptr, store_);
}

TEST_F(ErrorsModuleTest, NoFunction) {
  int number = 0;
  size_t bytes = 0;
  const char* name = nullptr;
  CUmodule module = nullptr;
  CUfunctionLoadingState state = {};
  CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, 0};
  REFUSES(kNullHandle, cuFuncGetAttribute, &number, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr);
  REFUSES(kNullHandle, cuFuncSetAttribute, nullptr, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
          0);
  REFUSES(kNullHandle, cuFuncSetCacheConfig, nullptr, 0);
  REFUSES(kNullHandle, cuFuncSetSharedMemConfig, nullptr, 0);
  REFUSES(kNullHandle, cuFuncGetModule, &module, nullptr);
  REFUSES(kNullHandle, cuFuncGetName, &name, nullptr);
  REFUSES(kNullHandle, cuFuncGetParamInfo, nullptr, 0, &bytes, &bytes);
  REFUSES(kNullHandle, cuFuncLoad, nullptr);
  REFUSES(kNullHandle, cuFuncIsLoaded, &state, nullptr);
  REFUSES(kNullHandle, cuFuncSetBlockShape, nullptr, 1, 1, 1);
  REFUSES(kNullHandle, cuFuncSetSharedSize, nullptr, 0);
  REFUSES(kNullHandle, cuParamSetSize, nullptr, 0);
  REFUSES(kNullHandle, cuParamSeti, nullptr, 0, 1);
  REFUSES(kNullHandle, cuParamSetf, nullptr, 0, 1);
  REFUSES(kNullHandle, cuParamSetv, nullptr, 0, &number, sizeof(number));
  REFUSES(kNullHandle, cuLaunch, nullptr);
  REFUSES(kNullHandle, cuLaunchGrid, nullptr, 1, 1);
  REFUSES(kNullHandle, cuLaunchGridAsync, nullptr, 1, 1, nullptr);
  REFUSES(kNullHandle, cuLaunchKernel, nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  REFUSES(kNullHandle, cuLaunchKernelEx, &config, nullptr, nullptr, nullptr);
  REFUSES(kNullHandle, cuLaunchCooperativeKernel, nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr);
  REFUSES(kNullHandle, cuOccupancyMaxActiveBlocksPerMultiprocessor, &number, nullptr, 32, 0);
  REFUSES(kNullHandle, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, &number, nullptr, 32,
          0, 0);
  REFUSES(kNullHandle, cuOccupancyMaxPotentialBlockSize, &number, &number, nullptr, nullptr, 0, 0);
  REFUSES(kNullHandle, cuOccupancyMaxPotentialBlockSizeWithFlags, &number, &number, nullptr,
          nullptr, 0, 0, 0);
  REFUSES(kNullHandle, cuOccupancyAvailableDynamicSMemPerBlock, &bytes, nullptr, 1, 32);
}

TEST_F(ErrorsModuleTest, Occupancy) {
  int number = 0;
  size_t bytes = 0;
  REFUSES(kValue, cuOccupancyMaxActiveBlocksPerMultiprocessor, nullptr, store_, 32, 0);
  REFUSES(kValue, cuOccupancyMaxActiveBlocksPerMultiprocessor, &number, store_, 0, 0);
  REFUSES(kValue, cuOccupancyMaxActiveBlocksPerMultiprocessor, &number, store_, -1, 0);
  REFUSES(kValue, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, nullptr, store_, 32, 0, 0);
  REFUSES(kValue, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, &number, store_, 32, 0,
          0x100);
  REFUSES(kValue, cuOccupancyMaxPotentialBlockSize, nullptr, &number, store_, nullptr, 0, 0);
  REFUSES(kValue, cuOccupancyMaxPotentialBlockSize, &number, nullptr, store_, nullptr, 0, 0);
  REFUSES(kValue, cuOccupancyMaxPotentialBlockSizeWithFlags, nullptr, &number, store_, nullptr, 0,
          0, 0);
  REFUSES(kValue, cuOccupancyMaxPotentialBlockSizeWithFlags, &number, &number, store_, nullptr, 0,
          0, 0x100);
  REFUSES(kValue, cuOccupancyAvailableDynamicSMemPerBlock, nullptr, store_, 1, 32);
  REFUSES(kValue, cuOccupancyAvailableDynamicSMemPerBlock, &bytes, store_, 0, 32);
}

TEST_F(ErrorsModuleTest, Launches) {
  uint32_t value = 1;
  void* parameters[] = {&out_, &value};
  size_t size = 16;
  void* extra[] = {reinterpret_cast<void*>(CU_LAUNCH_PARAM_BUFFER_POINTER_VALUE), parameters,
                   reinterpret_cast<void*>(CU_LAUNCH_PARAM_BUFFER_SIZE_VALUE), &size,
                   reinterpret_cast<void*>(CU_LAUNCH_PARAM_END_VALUE)};
  CUlaunchConfig config = {0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, 0};
  const Answers too_large = {CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_INVALID_VALUE};
  REFUSES(kValue, cuLaunchKernel, store_, 0, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
  REFUSES(kValue, cuLaunchKernel, store_, 1, 1, 1, 1, 1, 0, 0, nullptr, parameters, nullptr);
  REFUSES(kValue, cuLaunchKernel, store_, 1, 1, 1, 4096, 1, 1, 0, nullptr, parameters, nullptr);
  REFUSES(kValue, cuLaunchKernel, store_, 1, 1, 1, 1, 1, 1, 1 << 30, nullptr, parameters, nullptr);
  REFUSES(kValue, cuLaunchKernel, store_, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, extra);
  REFUSES(kValue, cuLaunchKernelEx, nullptr, store_, parameters, nullptr);
  REFUSES(kValue, cuLaunchKernelEx, &config, store_, parameters, nullptr);
  CUlaunchAttribute attribute = {};
  attribute.id = NoSuch<CUlaunchAttributeID>();
  config.gridDimX = config.numAttrs = 1;
  REFUSES(kValue, cuLaunchKernelEx, &config, store_, parameters, nullptr);  // no attributes
  config.attrs = &attribute;
  REFUSES(kValue, cuLaunchKernelEx, &config, store_, parameters, nullptr);  // one that is none
  REFUSES(kValue, cuLaunchCooperativeKernel, store_, 0, 1, 1, 1, 1, 1, 0, nullptr, parameters);
  REFUSES(too_large, cuLaunchCooperativeKernel, store_, 1 << 20, 1, 1, 1, 1, 1, 0, nullptr,
          parameters);
  TAKES(cuCtxSynchronize);  // and nothing ran
}

TEST_F(ErrorsModuleTest, AFunctionBelongsToAContext) {
  uint32_t value = 1;
  void* parameters[] = {&out_, &value};
  CUcontext second = nullptr;
  const Answers refused = {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_CONTEXT,
                           CUDA_ERROR_INVALID_VALUE};
  TAKES(cuCtxCreate_v2, &second, 0, 0);
  REFUSES(refused, cuLaunchKernel, store_, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
  REFUSES(refused, cuLaunchCooperativeKernel, store_, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters);
  TAKES(cuCtxDestroy_v2, second);
}

TEST_F(ErrorsModuleTest, TheOldWayOfLaunching) {
  int number = 0;
  REFUSES(kValue, cuFuncSetBlockShape, store_, 0, 1, 1);
  REFUSES(kValue, cuFuncSetBlockShape, store_, 1, -1, 1);
  if (OnSoftwareGpu()) {  // a card's driver may write to where it is told
    REFUSES(kValue, cuParamSetSize, store_, 1 << 20);
    REFUSES(kValue, cuParamSeti, store_, -4, 1);
    REFUSES(kValue, cuParamSetf, store_, 1 << 20, 1);
    REFUSES(kValue, cuParamSetv, store_, 1 << 20, &number, sizeof(number));
  }
  TAKES(cuFuncSetBlockShape, store_, 1, 1, 1);
  REFUSES(kValue, cuLaunchGrid, store_, 0, 1);
  REFUSES(kValue, cuLaunchGridAsync, store_, 1, 0, nullptr);
  if (!OnSoftwareGpu()) return;  // a card's driver may look at the size earlier
  TAKES(cuFuncSetSharedSize, store_, 1 << 30);
  REFUSES(kValue, cuLaunch, store_);
}

TEST_F(ErrorsModuleTest, Libraries) {
  CUlibrary library = nullptr;
  CUmodule module = nullptr;
  CUdeviceptr pointer = 0;
  size_t bytes = 0;
  unsigned int count = 0;
  CUkernel kernel = nullptr;
  const Answers none = {CUDA_ERROR_NOT_FOUND};
  REFUSES(kValue, cuLibraryLoadData, nullptr, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0);
  REFUSES(kValue, cuLibraryLoadData, &library, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0);
  // A card may look at it only when it is used.
  const Answers no_code_yet = {CUDA_ERROR_INVALID_PTX, CUDA_ERROR_INVALID_IMAGE,
                               CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS};
  REFUSES(no_code_yet, cuLibraryLoadData, &library, "no program", nullptr, nullptr, 0, nullptr,
          nullptr, 0);
  if (library != nullptr) TAKES(cuLibraryUnload, library);
  REFUSES(kValue, cuLibraryLoadFromFile, nullptr, kNoFile, nullptr, nullptr, 0, nullptr, nullptr,
          0);
  REFUSES(kValue, cuLibraryLoadFromFile, &library, nullptr, nullptr, nullptr, 0, nullptr, nullptr,
          0);
  REFUSES(kNoSuchFile, cuLibraryLoadFromFile, &library, kNoFile, nullptr, nullptr, 0, nullptr,
          nullptr, 0);
  REFUSES(kNullHandle, cuLibraryUnload, nullptr);
  REFUSES(kValue, cuLibraryGetKernel, nullptr, library_, "store");
  REFUSES(kValue, cuLibraryGetKernel, &kernel, library_, nullptr);
  REFUSES(none, cuLibraryGetKernel, &kernel, library_, "nobody");
  REFUSES(kNullHandle, cuLibraryGetKernel, &kernel, nullptr, "store");
  REFUSES(kValue, cuLibraryGetKernelCount, nullptr, library_);
  REFUSES(kNullHandle, cuLibraryGetKernelCount, &count, nullptr);
  REFUSES(kValue, cuLibraryEnumerateKernels, nullptr, 1, library_);
  REFUSES(kNullHandle, cuLibraryEnumerateKernels, &kernel, 1, nullptr);
  REFUSES(kValue, cuLibraryGetModule, nullptr, library_);
  REFUSES(kNullHandle, cuLibraryGetModule, &module, nullptr);
  TAKES(cuLibraryGetModule, &module, library_);
  REFUSES(Answers({CUDA_ERROR_NOT_PERMITTED}), cuModuleUnload, module);  // the library's
  REFUSES(kValue, cuLibraryGetGlobal, &pointer, &bytes, library_, nullptr);
  REFUSES(none, cuLibraryGetGlobal, &pointer, &bytes, library_, "nobody");
  REFUSES(kNullHandle, cuLibraryGetGlobal, &pointer, &bytes, nullptr, "counter");
  REFUSES(none, cuLibraryGetManaged, &pointer, &bytes, library_, "nobody");
  REFUSES(none, cuLibraryGetManaged, &pointer, &bytes, library_, "counter");  // not a managed one
  REFUSES(kValue, cuLibraryGetManaged, &pointer, &bytes, library_, nullptr);
  REFUSES(kNullHandle, cuLibraryGetManaged, &pointer, &bytes, nullptr, "counter");
}

TEST_F(ErrorsModuleTest, Kernels) {
  constexpr CUfunction_attribute kDynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  int number = 0;
  size_t bytes = 0;
  const char* name = nullptr;
  CUfunction function = nullptr;
  REFUSES(kValue, cuKernelGetFunction, nullptr, kernel_);
  REFUSES(kNullHandle, cuKernelGetFunction, &function, nullptr);
  REFUSES(kValue, cuKernelGetName, nullptr, kernel_);
  REFUSES(kNullHandle, cuKernelGetName, &name, nullptr);
  REFUSES(kValue, cuKernelGetParamInfo, kernel_, 0, nullptr, &bytes);
  REFUSES(kValue, cuKernelGetParamInfo, kernel_, 2, &bytes, &bytes);
  REFUSES(kNullHandle, cuKernelGetParamInfo, nullptr, 0, &bytes, &bytes);
  REFUSES(kValue, cuKernelGetAttribute, nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel_, 0);
  REFUSES(kValue, cuKernelGetAttribute, &number, NoSuch<CUfunction_attribute>(), kernel_, 0);
  REFUSES(kDeviceOrValue, cuKernelGetAttribute, &number, kDynamic, kernel_, kNoDevice);
  REFUSES(kNullHandle, cuKernelGetAttribute, &number, kDynamic, nullptr, 0);
  REFUSES(kValue, cuKernelSetAttribute, NoSuch<CUfunction_attribute>(), 1, kernel_, 0);
  REFUSES(kValue, cuKernelSetAttribute, kDynamic, 1 << 30, kernel_, 0);
  REFUSES(kDeviceOrValue, cuKernelSetAttribute, kDynamic, 0, kernel_, kNoDevice);
  REFUSES(kNullHandle, cuKernelSetAttribute, kDynamic, 0, nullptr, 0);
  REFUSES(kValue, cuKernelSetCacheConfig, kernel_, NoSuch<CUfunc_cache>(), 0);
  REFUSES(kDeviceOrValue, cuKernelSetCacheConfig, kernel_, 0, kNoDevice);
  REFUSES(kNullHandle, cuKernelSetCacheConfig, nullptr, 0, 0);
}

TEST_F(ErrorsModuleTest, TheLinker) {
  CUlinkState state = nullptr;
  void* image = nullptr;
  size_t bytes = 0;
  void* text = const_cast<char*>(kKernels);
  const size_t size = std::string(kKernels).size() + 1;
  const auto no_such = NoSuch<CUjitInputType>();
  REFUSES(kValue, cuLinkCreate, 0, nullptr, nullptr, nullptr);
  REFUSES(kValue, cuLinkCreate_v2, 0, nullptr, nullptr, nullptr);
  REFUSES(kNullHandle, cuLinkAddData, nullptr, CU_JIT_INPUT_PTX, text, size, "a", 0, nullptr,
          nullptr);
  REFUSES(kNullHandle, cuLinkAddData_v2, nullptr, CU_JIT_INPUT_PTX, text, size, "a", 0, nullptr,
          nullptr);
  REFUSES(kNullHandle, cuLinkComplete, nullptr, &image, &bytes);
  REFUSES(kNullHandle, cuLinkDestroy, nullptr);
  TAKES(cuLinkCreate_v2, 0, nullptr, nullptr, &state);
  REFUSES(kValue, cuLinkAddData, state, no_such, text, size, "a", 0, nullptr, nullptr);
  REFUSES(kValue, cuLinkAddData_v2, state, no_such, text, size, "a", 0, nullptr, nullptr);
  REFUSES(kValue, cuLinkAddData_v2, state, CU_JIT_INPUT_PTX, nullptr, size, "a", 0, nullptr,
          nullptr);
  REFUSES(kValue, cuLinkAddFile, state, CU_JIT_INPUT_PTX, nullptr, 0, nullptr, nullptr);
  REFUSES(kCannotBeRead, cuLinkAddFile, state, CU_JIT_INPUT_PTX, kNoFile, 0, nullptr, nullptr);
  REFUSES(kValue, cuLinkAddFile_v2, state, CU_JIT_INPUT_PTX, nullptr, 0, nullptr, nullptr);
  REFUSES(kCannotBeRead, cuLinkAddFile_v2, state, CU_JIT_INPUT_PTX, kNoFile, 0, nullptr, nullptr);
  REFUSES(kValue, cuLinkComplete, state, nullptr, &bytes);
  TAKES(cuLinkDestroy, state);
}

TEST_F(ErrorsModuleTest, NoCurrentContext) {
  const std::string path = testing::TempDir() + "/tandem_module_" + std::to_string(getpid());
  std::ofstream(path) << kKernels;
  const Answers none_or_context = {CUDA_ERROR_NOT_FOUND, CUDA_ERROR_INVALID_CONTEXT};
  WithoutContext([&] {
    uint32_t value = 1;
    void* parameters[] = {&out_, &value};
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUlinkState state = nullptr;
    CUdeviceptr pointer = 0;
    size_t bytes = 0;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, 0};
    REFUSES(kContext, cuModuleLoad, &module, path.c_str());
    REFUSES(kContext, cuModuleLoadData, &module, kKernels);
    REFUSES(kContext, cuModuleLoadDataEx, &module, kKernels, 0, nullptr, nullptr);
    REFUSES(kContext, cuModuleLoadFatBinary, &module, kKernels);
    REFUSES(kContext, cuLinkCreate, 0, nullptr, nullptr, &state);
    REFUSES(kContext, cuLinkCreate_v2, 0, nullptr, nullptr, &state);
    REFUSES(kContext, cuLibraryGetModule, &module, library_);
    REFUSES(kContext, cuLibraryGetGlobal, &pointer, &bytes, library_, "counter");
    REFUSES(none_or_context, cuLibraryGetManaged, &pointer, &bytes, library_, "counter");
    REFUSES(kContext, cuKernelGetFunction, &function, kernel_);
    REFUSES(kContext, cuLaunchKernel, store_, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
    REFUSES(kContext, cuLaunchKernelEx, &config, store_, parameters, nullptr);
    REFUSES(kContext, cuLaunchCooperativeKernel, store_, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters);
    REFUSES(kContext, cuLaunch, store_);
    REFUSES(kContext, cuLaunchGrid, store_, 1, 1);
    REFUSES(kContext, cuLaunchGridAsync, store_, 1, 1, nullptr);
  });
  std::remove(path.c_str());
}

// A library's kernel becomes a function of the current context when it is asked about.
TEST_F(ErrorsModuleTest, NoCurrentContextForOccupancy) {
  if (kernel_ == nullptr) GTEST_SKIP() << "a driver without libraries";
  WithoutContext([&] {
    int number = 0;
    size_t bytes = 0;
    auto* const kernel = reinterpret_cast<CUfunction>(kernel_);
    REFUSES(kContext, cuOccupancyMaxActiveBlocksPerMultiprocessor, &number, kernel, 32, 0);
    REFUSES(kContext, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, &number, kernel, 32, 0,
            0);
    REFUSES(kContext, cuOccupancyMaxPotentialBlockSize, &number, &number, kernel, nullptr, 0, 0);
    REFUSES(kContext, cuOccupancyMaxPotentialBlockSizeWithFlags, &number, &number, kernel, nullptr,
            0, 0, 0);
    REFUSES(kContext, cuOccupancyAvailableDynamicSMemPerBlock, &bytes, kernel, 1, 32);
  });
}

}  // namespace
}  // namespace tandem::driver_test
