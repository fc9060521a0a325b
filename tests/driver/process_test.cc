// A driver and its process: children, and an end with work still queued.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/driver/fixture.h"
#include "tests/driver/other_process.h"

namespace tandem::driver_test {
namespace {

using ProcessTest = DriverTest;

// Runs `child` in a forked process and gives its exit status.
template <typename Child>
int InChild(Child child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(ProcessTest, AForkedChildHasNoDriver) {
  size_t before = 0, after = 0, total = 0;
  const CUdeviceptr device = Allocate(4 << 20);
  ASSERT_CU(Cu().cuMemGetInfo_v2(&before, &total));
  const int result = InChild([] {
    CUdeviceptr pointer = 0;
    return static_cast<int>(Cu().cuMemAlloc_v2(&pointer, 4096));
  });
  EXPECT_CU(CUDA_ERROR_NOT_INITIALIZED, static_cast<CUresult>(result));
  // The child's end takes nothing from its parent.
  ASSERT_CU(Cu().cuMemGetInfo_v2(&after, &total));
  EXPECT_TRUE(IsAbout(after, before)) << after << " after, " << before << " before";
  ASSERT_CU(Cu().cuMemsetD8_v2(device, 1, 4 << 20));
  ASSERT_CU(Cu().cuCtxSynchronize());
}

std::string DescriptorsOf(const char* directory) {
  std::string names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::error_code gone;
    names += std::filesystem::read_symlink(entry, gone).string() + "\n";
  }
  return names;
}

// What the driver keeps open for other processes to find, no child may keep: memory would stay.
TEST_F(ProcessTest, AForkedChildKeepsNoDescriptorsOfTheDrivers) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "what a card does is its affair";
  CUipcMemHandle ipc = {};
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  ASSERT_CU(Cu().cuIpcGetMemHandle(&ipc, Allocate(4096)));
  ASSERT_CU(Cu().cuMemCreate(&handle, 2 << 20, &properties, 0));
  EXPECT_NE(DescriptorsOf("/proc/self/fd").find("tandem-soft"), std::string::npos);
  EXPECT_EQ(InChild([] {
              return DescriptorsOf("/proc/self/fd").find("tandem-soft") == std::string::npos ? 0
                                                                                             : 1;
            }),
            0);
  ASSERT_CU(Cu().cuMemRelease(handle));
}

// Not a test by itself: a program that returns from main while a kernel runs, copies and host
// functions wait, and one host function never ends.
TEST(AbruptEnd, DISABLED_LeavesWorkBehind) {
  constexpr size_t kBytes = 8 << 20;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  CUdeviceptr out = 0;
  CUstream busy = nullptr, held = nullptr;
  void* host = nullptr;
  uint32_t rounds = 1 << 30;
  void* parameters[] = {&out, &rounds};
  ASSERT_CU(Cu().cuInit(0));
  ASSERT_CU(Cu().cuCtxCreate_v2(&context, 0, 0));
  ASSERT_CU(Cu().cuModuleLoadData(&module, kKernels));
  ASSERT_CU(Cu().cuModuleGetFunction(&spin, module, "spin"));
  ASSERT_CU(Cu().cuMemAlloc_v2(&out, kBytes));
  ASSERT_CU(Cu().cuMemHostAlloc(&host, kBytes, 0));
  ASSERT_CU(Cu().cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuLaunchHostFunc(
      held, [](void*) { pause(); }, nullptr));
  ASSERT_CU(Cu().cuMemcpyDtoHAsync_v2(host, out, kBytes, held));
  ASSERT_CU(Cu().cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, busy, parameters, nullptr));
  ASSERT_CU(Cu().cuMemcpyHtoDAsync_v2(out, host, kBytes, busy));
  ASSERT_CU(Cu().cuLaunchHostFunc(
      busy, [](void*) {}, nullptr));
  OtherProcess::TellTheEnd();
}

TEST_F(ProcessTest, MayEndWithWorkQueued) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  size_t before = 0, after = 0, total = 0;
  ASSERT_CU(Cu().cuMemGetInfo_v2(&before, &total));
  OtherProcess other("AbruptEnd.DISABLED_LeavesWorkBehind");
  EXPECT_TRUE(other.EndsWell());
  // What it had is free again, if not at once.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  do {
    std::this_thread::yield();
    ASSERT_CU(Cu().cuMemGetInfo_v2(&after, &total));
  } while (after < before && std::chrono::steady_clock::now() < deadline);
  EXPECT_GE(after, before) << "it still has memory";
}

}  // namespace
}  // namespace tandem::driver_test
