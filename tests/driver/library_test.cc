// Code in other forms than modules: libraries and linked texts; and what is known of functions.
#include <algorithm>
#include <cstring>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

using LibraryTest = DriverTest;

const char kCaller[] = PTX_HEAD R"(
// What the other text defines.
.extern .global .align 4 .u32 base;
.extern .func (.param .b32 result) twice(.param .b32 x);
.visible .entry call(.param .u64 out, .param .u32 x)
{
  .reg .b32 %r<4>;
  .reg .b64 %d<2>;
  ld.param.u64 %d0, [out];
  ld.param.u32 %r0, [x];
  {
    .param .b32 argument;
    .param .b32 answer;
    st.param.b32 [argument], %r0;
    call (answer), twice, (argument);
    ld.param.b32 %r1, [answer];
  }
  ld.global.u32 %r2, [base];
  add.u32 %r1, %r1, %r2;
  st.global.u32 [%d0], %r1;
  ret;
}
)";
const char kCallee[] = R"(
.version 6.4
.target sm_52
.address_size 64
.visible .global .align 4 .u32 base = 100;
.visible .func (.param .b32 result) twice(.param .b32 x)
{
  .reg .b32 %r<2>;
  ld.param.b32 %r0, [x];
  add.u32 %r0, %r0, %r0;
  st.param.b32 [result], %r0;
  ret;
}
)";

uint32_t WordAt(CUdeviceptr pointer) {
  uint32_t word = 0;
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyDtoH_v2(&word, pointer, sizeof(word)));
  return word;
}

TEST_F(LibraryTest, StandsForAModuleInEveryContext) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  CUmodule module = nullptr;
  ASSERT_CU(Cu().cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(Cu().cuLibraryGetKernel(&kernel, library, "store"));
  ASSERT_CU(Cu().cuKernelGetFunction(&function, kernel));
  ASSERT_CU(Cu().cuLibraryGetModule(&module, library));
  CUdeviceptr out = Allocate(4), counter = 0;
  uint32_t value = 9;
  ASSERT_CU(Launch(function, 1, 1, nullptr, {&out, &value}));
  EXPECT_EQ(WordAt(out), 9u);
  value = 10;  // the kernel's own handle does as well
  ASSERT_CU(Launch(reinterpret_cast<CUfunction>(kernel), 1, 1, nullptr, {&out, &value}));
  EXPECT_EQ(WordAt(out), 10u);
  size_t bytes = 0;
  ASSERT_CU(Cu().cuLibraryGetGlobal(&counter, &bytes, library, "counter"));
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(WordAt(counter), 7u);
  // In a context of its own the variable is another one.
  CUcontext second = nullptr;
  CUdeviceptr other = 0;
  ASSERT_CU(Cu().cuCtxCreate_v2(&second, 0, 0));
  ASSERT_CU(Cu().cuLibraryGetGlobal(&other, &bytes, library, "counter"));
  EXPECT_NE(other, counter);
  ASSERT_CU(Cu().cuCtxDestroy_v2(second));
  ASSERT_CU(Cu().cuLibraryUnload(library));
  if (!OnSoftwareGpu()) return;  // a card's driver follows what has gone
  EXPECT_NE(Cu().cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_NE(Launch(function, 1, 1, nullptr, {&out, &value}), CUDA_SUCCESS);
}

TEST_F(LibraryTest, AKernelRunsInTheContextOfItsStream) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUcontext second = nullptr;
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(Cu().cuLibraryGetKernel(&kernel, library, "store"));
  CUdeviceptr out = Allocate(4);
  uint32_t value = 3;
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuCtxCreate_v2(&second, 0, 0));
  ASSERT_CU(Launch(reinterpret_cast<CUfunction>(kernel), 1, 1, stream, {&out, &value}));
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  ASSERT_CU(Cu().cuCtxDestroy_v2(second));
  EXPECT_EQ(WordAt(out), 3u);
  ASSERT_CU(Cu().cuLibraryUnload(library));
}

TEST_F(LibraryTest, KernelsHaveAttributesThatFunctionsMayOverride) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  constexpr auto kMost = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  int value = -1;
  ASSERT_CU(Cu().cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(Cu().cuLibraryGetKernel(&kernel, library, "store"));
  // Without a context.
  CUcontext popped = nullptr;
  ASSERT_CU(Cu().cuCtxPopCurrent_v2(&popped));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuKernelSetAttribute(kMost, 2000, kernel, 0));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuKernelGetAttribute(&value, kMost, kernel, 0));
  EXPECT_EQ(value, 2000);
  EXPECT_NE(Cu().cuKernelSetAttribute(kMost, -1, kernel, 0), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuCtxPushCurrent_v2(popped));
  ASSERT_CU(Cu().cuKernelGetFunction(&function, kernel));
  ASSERT_CU(Cu().cuFuncGetAttribute(&value, kMost, function));
  EXPECT_EQ(value, 2000);
  ASSERT_CU(Cu().cuKernelSetAttribute(kMost, 3000, kernel, 0));
  ASSERT_CU(Cu().cuFuncGetAttribute(&value, kMost, function));
  EXPECT_EQ(value, 3000);
  // A function's own setting stays, whatever is set for the kernel and however it is found.
  ASSERT_CU(Cu().cuFuncSetAttribute(function, kMost, 4000));
  ASSERT_CU(Cu().cuKernelSetAttribute(kMost, 5000, kernel, 0));
  ASSERT_CU(Cu().cuKernelGetFunction(&function, kernel));
  ASSERT_CU(Cu().cuFuncGetAttribute(&value, kMost, function));
  EXPECT_EQ(value, 4000);
  ASSERT_CU(Cu().cuLibraryUnload(library));
}

TEST_F(LibraryTest, OutlivesThePrimaryContext) {
  unsigned int flags = 0;
  int active = -1;
  ASSERT_CU(Cu().cuDevicePrimaryCtxGetState(0, &flags, &active));
  if (active != 0) GTEST_SKIP() << "somebody else in this process has the primary context";
  CUlibrary library = nullptr;
  ASSERT_CU(Cu().cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  for (int round = 0; round < 2; ++round) {
    CUcontext primary = nullptr;
    CUdeviceptr counter = 0;
    size_t bytes = 0;
    ASSERT_CU(Cu().cuDevicePrimaryCtxRetain(&primary, 0));
    ASSERT_CU(Cu().cuCtxPushCurrent_v2(primary));
    ASSERT_CU(Cu().cuLibraryGetGlobal(&counter, &bytes, library, "counter"));
    EXPECT_EQ(WordAt(counter), 7u);
    ASSERT_CU(Cu().cuCtxPopCurrent_v2(&primary));
    ASSERT_CU(Cu().cuDevicePrimaryCtxRelease_v2(0));
  }
  ASSERT_CU(Cu().cuLibraryUnload(library));
}

TEST_F(LibraryTest, NamesItsKernels) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr, again = nullptr;
  ASSERT_CU(Cu().cuLibraryLoadData(&library, kCallee, nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, Cu().cuLibraryGetKernel(&kernel, library, "store"));
  ASSERT_CU(Cu().cuLibraryUnload(library));
  ASSERT_CU(Cu().cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(Cu().cuLibraryGetKernel(&kernel, library, "store"));
  const char* name = nullptr;
  if (Cu().cuKernelGetName != nullptr) {
    ASSERT_CU(Cu().cuKernelGetName(&name, kernel));
    EXPECT_STREQ(name, "store");
  }
  int value = -1;
  ASSERT_CU(Cu().cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel, 0));
  EXPECT_EQ(value, 0);
  ASSERT_CU(
      Cu().cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1000, kernel, 0));
  ASSERT_CU(Cu().cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      kernel, 0));
  EXPECT_EQ(value, 1000);
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE,
            Cu().cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 999));
  ASSERT_CU(Cu().cuKernelSetCacheConfig(kernel, 1, 0));
  if (Cu().cuLibraryEnumerateKernels != nullptr) {
    unsigned int count = 0;
    ASSERT_CU(Cu().cuLibraryGetKernelCount(&count, library));
    EXPECT_GT(count, 1u);
    ASSERT_CU(Cu().cuLibraryEnumerateKernels(&again, 1, library));
    EXPECT_NE(again, nullptr);
    size_t offset = 99, size = 0;
    ASSERT_CU(Cu().cuKernelGetParamInfo(kernel, 1, &offset, &size));
    EXPECT_EQ(offset, 8u);
    EXPECT_EQ(size, 4u);
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuKernelGetParamInfo(kernel, 2, &offset, &size));
  }
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuLibraryGetKernel(nullptr, library, "store"));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuLibraryLoadData(&library, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUlibrary none = nullptr;
  EXPECT_CU(CUDA_ERROR_FILE_NOT_FOUND, Cu().cuLibraryLoadFromFile(&none, "/no/such/file", nullptr,
                                                                  nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(Cu().cuLibraryUnload(library));
}

TEST_F(LibraryTest, ModulesListTheirFunctions) {
  const CUfunction store = Kernel("store");
  if (Cu().cuModuleEnumerateFunctions == nullptr) GTEST_SKIP() << "a driver from before 12.4";
  unsigned int count = 0;
  ASSERT_CU(Cu().cuModuleGetFunctionCount(&count, module_));
  std::vector<CUfunction> functions(count);
  ASSERT_CU(Cu().cuModuleEnumerateFunctions(functions.data(), count, module_));
  EXPECT_NE(std::count(functions.begin(), functions.end(), store), 0);
  const char* name = nullptr;
  ASSERT_CU(Cu().cuFuncGetName(&name, store));
  EXPECT_STREQ(name, "store");
  CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_UNLOADED;
  ASSERT_CU(Cu().cuFuncLoad(store));
  ASSERT_CU(Cu().cuFuncIsLoaded(&state, store));
  EXPECT_EQ(state, CU_FUNCTION_LOADING_STATE_LOADED);
  size_t offset = 99, size = 0;
  ASSERT_CU(Cu().cuFuncGetParamInfo(store, 0, &offset, &size));
  EXPECT_EQ(offset, 0u);
  EXPECT_EQ(size, 8u);
  CUmoduleLoadingMode mode = {};
  ASSERT_CU(Cu().cuModuleGetLoadingMode(&mode));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuModuleGetFunctionCount(nullptr, module_));
}

TEST_F(LibraryTest, LinksTexts) {
  CUlinkState state = nullptr;
  char errors[1000] = {}, info[1000] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_LOG_VERBOSE,      CU_JIT_WALL_TIME};
  void* values[] = {errors,
                    reinterpret_cast<void*>(sizeof(errors)),
                    info,
                    reinterpret_cast<void*>(sizeof(info)),
                    reinterpret_cast<void*>(1),
                    nullptr};
  ASSERT_CU(Cu().cuLinkCreate_v2(6, options, values, &state));
  std::string caller(kCaller), callee(kCallee);
  ASSERT_CU(Cu().cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, caller.data(), caller.size() + 1, "one",
                                  0, nullptr, nullptr));
  ASSERT_CU(Cu().cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, callee.data(), callee.size() + 1, "two",
                                  0, nullptr, nullptr));
  void* image = nullptr;
  size_t size = 0;
  ASSERT_CU(Cu().cuLinkComplete(state, &image, &size));
  EXPECT_GT(size, 0u);
  EXPECT_LT(reinterpret_cast<size_t>(values[3]), sizeof(info));
  CUmodule module = nullptr;
  CUfunction call = nullptr;
  ASSERT_CU(Cu().cuModuleLoadData(&module, image));
  ASSERT_CU(Cu().cuLinkDestroy(state));
  if (OnSoftwareGpu()) {  // it has gone
    EXPECT_NE(Cu().cuLinkDestroy(state), CUDA_SUCCESS);
  }
  ASSERT_CU(Cu().cuModuleGetFunction(&call, module, "call"));
  CUdeviceptr out = Allocate(4);
  uint32_t x = 21;
  ASSERT_CU(Launch(call, 1, 1, nullptr, {&out, &x}));
  EXPECT_EQ(WordAt(out), 142u);
}

std::string KernelWithManyRegisters(const std::string& directive) {
  std::string text(PTX_HEAD ".visible .entry many()");
  text += directive + "\n{\n  .reg .b32 %r<200>;\n";
  for (int i = 0; i < 200; ++i) text += "  mov.u32 %r" + std::to_string(i) + ", %tid.x;\n";
  return text + "  ret;\n}\n";
}

// As frameworks limit them: when loading and when linking.
TEST_F(LibraryTest, KeepsToTheRegistersItIsGiven) {
  std::string text = KernelWithManyRegisters("");
  CUjit_option option = CU_JIT_MAX_REGISTERS;
  void* value = reinterpret_cast<void*>(size_t{32});
  CUmodule module = nullptr;
  const auto registers = [&] {
    CUfunction many = nullptr;
    int count = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleGetFunction(&many, module, "many"));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuFuncGetAttribute(&count, CU_FUNC_ATTRIBUTE_NUM_REGS, many));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleUnload(module));
    return count;
  };
  ASSERT_CU(Cu().cuModuleLoadDataEx(&module, text.c_str(), 1, &option, &value));
  EXPECT_LE(registers(), 32);
  CUlinkState state = nullptr;
  void* image = nullptr;
  ASSERT_CU(Cu().cuLinkCreate_v2(1, &option, &value, &state));
  ASSERT_CU(Cu().cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "many", 0,
                                  nullptr, nullptr));
  ASSERT_CU(Cu().cuLinkComplete(state, &image, nullptr));
  ASSERT_CU(Cu().cuModuleLoadData(&module, image));
  EXPECT_LE(registers(), 32);
  ASSERT_CU(Cu().cuLinkDestroy(state));
}

TEST_F(LibraryTest, AKernelMayLimitItsRegisters) {
  CUmodule module = nullptr;
  CUfunction many = nullptr;
  int registers = 0, blocks = 0;
  ASSERT_CU(Cu().cuModuleLoadData(&module, KernelWithManyRegisters(" .maxnreg 32").c_str()));
  ASSERT_CU(Cu().cuModuleGetFunction(&many, module, "many"));
  ASSERT_CU(Cu().cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, many));
  EXPECT_LE(registers, 32);
  // So that a large block fits.
  ASSERT_CU(Cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, many, 1024, 0));
  EXPECT_GE(blocks, 1);
  EXPECT_CU(CUDA_SUCCESS, Launch(many, 1, 1024, nullptr, {}));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxSynchronize());
}

// What two compilations both emit: variables and functions of their own that happen to be called
// alike, and weak and common ones, of which any will do.
std::string Unit(const std::string& kernel, int own) {
  return PTX_HEAD R"(
.common .global .align 4 .u32 common;
.weak .global .align 4 .u32 weak = 5;
.global .align 4 .u32 own = )" +
         std::to_string(own) + R"(;
.extern .shared .align 16 .b8 dynamic[];
.weak .func (.param .b32 result) five()
{
  .reg .b32 %r<2>;
  ld.global.u32 %r0, [weak];
  st.param.b32 [result], %r0;
  ret;
}
.func (.param .b32 result) mine()
{
  .reg .b32 %r<2>;
  ld.global.u32 %r0, [own]; // "own" stays what it is
  st.param.b32 [result], %r0;
  ret;
}
.visible .entry )" +
         kernel + R"((.param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %d<2>;
  ld.param.u64 %d0, [out];
  { .param .b32 answer; call (answer), five; ld.param.b32 %r0, [answer]; }
  { .param .b32 answer; call (answer), mine; ld.param.b32 %r1, [answer]; }
  add.u32 %r0, %r0, %r1;
  atom.global.add.u32 %r2, [common], 1000;
  add.u32 %r0, %r0, %r2;
  st.global.u32 [%d0], %r0;
  ret;
}
)";
}

TEST_F(LibraryTest, LinksWhatCompilationsHaveInCommon) {
  CUlinkState state = nullptr;
  void* image = nullptr;
  CUmodule module = nullptr;
  ASSERT_CU(Cu().cuLinkCreate_v2(0, nullptr, nullptr, &state));
  for (std::string unit : {Unit("one", 10), Unit("two", 20)}) {
    ASSERT_CU(Cu().cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, unit.data(), unit.size() + 1, nullptr,
                                    0, nullptr, nullptr));
  }
  ASSERT_CU(Cu().cuLinkComplete(state, &image, nullptr));
  ASSERT_CU(Cu().cuModuleLoadData(&module, image));
  ASSERT_CU(Cu().cuLinkDestroy(state));
  CUdeviceptr out = Allocate(4);
  uint32_t expected = 15;
  for (const char* name : {"one", "two"}) {
    CUfunction function = nullptr;
    ASSERT_CU(Cu().cuModuleGetFunction(&function, module, name));
    ASSERT_CU(Launch(function, 1, 1, nullptr, {&out}));
    EXPECT_EQ(WordAt(out), expected) << name;
    expected += 1010;
  }
}

TEST_F(LibraryTest, SaysWhatDoesNotLink) {
  CUlinkState state = nullptr;
  char errors[1000] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {errors, reinterpret_cast<void*>(sizeof(errors))};
  ASSERT_CU(Cu().cuLinkCreate_v2(2, options, values, &state));
  std::string bad(PTX_HEAD "nonsense\n");
  EXPECT_CU(CUDA_ERROR_INVALID_PTX,
            Cu().cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, bad.data(), bad.size() + 1, "bad", 0,
                                  nullptr, nullptr));
  EXPECT_GT(std::strlen(errors), 0u);
  ASSERT_CU(Cu().cuLinkDestroy(state));

  std::memset(errors, 0, sizeof(errors));
  values[1] = reinterpret_cast<void*>(sizeof(errors));
  ASSERT_CU(Cu().cuLinkCreate_v2(2, options, values, &state));
  std::string caller(kCaller);
  ASSERT_CU(Cu().cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, caller.data(), caller.size() + 1, "one",
                                  0, nullptr, nullptr));
  void* image = nullptr;
  size_t size = 0;
  EXPECT_NE(Cu().cuLinkComplete(state, &image, &size), CUDA_SUCCESS);
  EXPECT_GT(std::strlen(errors), 0u);
  ASSERT_CU(Cu().cuLinkDestroy(state));
}

}  // namespace
}  // namespace tandem::driver_test
