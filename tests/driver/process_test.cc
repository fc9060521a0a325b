// A driver and its process: children, and an end with work still queued.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/driver/fixture.h"

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
  EXPECT_EQ(after, before);
  ASSERT_CU(Cu().cuMemsetD8_v2(device, 1, 4 << 20));
  ASSERT_CU(Cu().cuCtxSynchronize());
}

}  // namespace
}  // namespace tandem::driver_test
