#include "tests/driver/fixture.h"

#include <dlfcn.h>

#include <cstdlib>

namespace tandem::driver_test {

const cuda::RealDriver& Cu() {
  static const cuda::RealDriver driver = [] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return cuda::RealDriver();
    return cuda::LoadRealDriver(library,
                                [](void* from, const char* symbol) { return dlsym(from, symbol); });
  }();
  return driver;
}

std::string Named(CUresult result) {
  const char* name = cuda::ErrorName(result);
  return name != nullptr ? name : std::to_string(result);
}

std::vector<uint8_t> Pattern(size_t bytes, uint32_t seed) {
  std::vector<uint8_t> pattern(bytes);
  uint32_t state = seed * 2654435761u + 1;
  for (uint8_t& byte : pattern) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return pattern;
}

void DriverTest::SetUp() {
  const CUresult initialised = Cu().cuInit == nullptr ? CUDA_ERROR_NO_DEVICE : Cu().cuInit(0);
  if (initialised == CUDA_ERROR_NO_DEVICE && std::getenv("TANDEM_TEST_NEEDS_DRIVER") == nullptr) {
    GTEST_SKIP() << "there is no libcuda.so.1, or it has no device";
  }
  ASSERT_CU(initialised);
  ASSERT_CU(Cu().cuCtxCreate_v2(&context_, 0, 0));
}

void DriverTest::TearDown() {
  if (IsSkipped() && !may_skip_ && std::getenv("TANDEM_TEST_NEEDS_EVERYTHING") != nullptr) {
    ADD_FAILURE() << "skipped in a run that needs everything";
  }
  if (context_ != nullptr) EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxDestroy_v2(context_));
}

void DriverTest::MakeContextAnew() {
  Cu().cuCtxDestroy_v2(context_);  // may say once more what went wrong
  context_ = nullptr;
  module_ = nullptr;
  ASSERT_CU(Cu().cuCtxCreate_v2(&context_, 0, 0));
}

bool DriverTest::OnSoftwareGpu() {
  char name[64] = {};
  EXPECT_CU(CUDA_SUCCESS, Cu().cuDeviceGetName(name, sizeof(name), 0));
  return std::string(name) == "Tandem Software GPU";
}

CUdeviceptr DriverTest::Allocate(size_t bytes) {
  CUdeviceptr pointer = 0;
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAlloc_v2(&pointer, bytes));
  return pointer;
}

std::vector<uint8_t> DriverTest::Read(CUdeviceptr pointer, size_t bytes) {
  std::vector<uint8_t> data(bytes);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyDtoH_v2(data.data(), pointer, bytes));
  return data;
}

void DriverTest::Write(CUdeviceptr pointer, const std::vector<uint8_t>& bytes) {
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyHtoD_v2(pointer, bytes.data(), bytes.size()));
}

CUfunction DriverTest::Kernel(const char* name) {
  CUfunction function = nullptr;
  if (module_ == nullptr) EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleLoadData(&module_, kKernels));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleGetFunction(&function, module_, name));
  return function;
}

CUresult DriverTest::Launch(CUfunction function, unsigned int blocks, unsigned int threads,
                            CUstream stream, std::vector<void*> parameters) {
  return Cu().cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters.data(),
                             nullptr);
}

InContext::InContext(CUcontext context) {
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxPushCurrent_v2(context));
}

InContext::~InContext() {
  CUcontext popped = nullptr;
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxPopCurrent_v2(&popped));
}

Door::~Door() {
  Open();
  Cu().cuCtxSynchronize();
}

void Door::HoldIn(CUstream stream) {
  EXPECT_CU(CUDA_SUCCESS, Cu().cuLaunchHostFunc(stream, &Door::Wait, this));
}

void Door::Open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  opened_.notify_all();
}

void Door::Wait(void* self) {
  auto* door = static_cast<Door*>(self);
  std::unique_lock lock(door->mutex_);
  door->opened_.wait(lock, [&] { return door->open_; });
}

}  // namespace tandem::driver_test
