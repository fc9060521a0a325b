#include "tests/driver/fixture.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tandem::driver_test {

thread_local Place at;

namespace {

constexpr char kFaulted[] = "a kernel's fault ended CUDA in this process: run the test alone";

// The errors after which a card gives the process no context any more.
bool IsFault(CUresult result) {
  constexpr CUresult kFaults[] = {CUDA_ERROR_ILLEGAL_ADDRESS,
                                  CUDA_ERROR_LAUNCH_TIMEOUT,
                                  CUDA_ERROR_ASSERT,
                                  CUDA_ERROR_HARDWARE_STACK_ERROR,
                                  CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                  CUDA_ERROR_MISALIGNED_ADDRESS,
                                  CUDA_ERROR_INVALID_ADDRESS_SPACE,
                                  CUDA_ERROR_INVALID_PC,
                                  CUDA_ERROR_LAUNCH_FAILED};
  return std::ranges::count(kFaults, result) > 0;
}

thread_local sigjmp_buf before_the_call;
thread_local bool is_guarded = false;
bool may_crash = false;  // a card's driver

void Print(const char* text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

// Only what a signal handler may call.
void TellOfCrash(int signal) {
  if (is_guarded) siglongjmp(before_the_call, 1);
  char digits[16] = {};
  char* digit = &digits[sizeof(digits) - 2];
  *digit = '\n';
  for (int left = at.line; left > 0; left /= 10) *--digit = static_cast<char>('0' + left % 10);
  Print("crashed after ");
  Print(at.file != nullptr ? at.file : "the start");
  Print(":");
  Print(digit);
  ::signal(signal, SIG_DFL);  // and again, to the end
}

}  // namespace

void SurviveCrashes() {
  may_crash = true;
  ::signal(SIGSEGV, TellOfCrash);
}

bool Survives(DriverCall call, CUresult* result) {
  if (!may_crash) {
    *result = call();
    return true;
  }
  is_guarded = true;
  const bool crashed = sigsetjmp(before_the_call, 1) != 0;
  if (!crashed) *result = call();
  is_guarded = false;
  return !crashed;
}

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
  if (!OnSoftwareGpu()) SurviveCrashes();
  const CUresult made = Cu().cuCtxCreate_v2(&context_, 0, 0);
  if (may_crash && IsFault(made)) GTEST_SKIP() << kFaulted;
  ASSERT_CU(made);
}

void DriverTest::TearDown() {
  if (IsSkipped() && !may_skip_ && std::getenv("TANDEM_TEST_NEEDS_EVERYTHING") != nullptr) {
    ADD_FAILURE() << "skipped in a run that needs everything";
  }
  if (context_ != nullptr) EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxDestroy_v2(context_));
}

bool DriverTest::MakeContextAnew() {
  Cu().cuCtxDestroy_v2(context_);  // may say once more what went wrong
  context_ = nullptr;
  module_ = nullptr;
  const CUresult made = Cu().cuCtxCreate_v2(&context_, 0, 0);
  if (made == CUDA_SUCCESS) return true;
  context_ = nullptr;
  const auto skip = [] { GTEST_SKIP() << "the rest needs a process without a fault"; };
  if (IsFault(made) && !OnSoftwareGpu()) {
    skip();
  } else {
    EXPECT_CU(CUDA_SUCCESS, made);
  }
  return false;
}

bool DriverTest::OnSoftwareGpu() {
  char name[64] = {};
  EXPECT_CU(CUDA_SUCCESS, Cu().cuDeviceGetName(name, sizeof(name), 0));
  return std::string(name) == "Tandem Software GPU";
}

bool DriverTest::HasTheDeviceAlone() {
  return OnSoftwareGpu() || std::getenv("TANDEM_TEST_ALONE") != nullptr;
}

bool DriverTest::IsAbout(size_t free, size_t before) {
  if (!HasTheDeviceAlone()) return true;
  const size_t apart = std::max(free, before) - std::min(free, before);
  return apart <= (OnSoftwareGpu() ? 0 : size_t{64} << 20);
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
