// Faults that the software GPU makes on demand: run with TANDEM_SOFT_FAIL_ALLOC=2.
#include <cstdlib>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

using FaultsTest = DriverTest;

TEST_F(FaultsTest, TheNthAllocationFails) {
  const char* which = std::getenv("TANDEM_SOFT_FAIL_ALLOC");
  if (which == nullptr || std::string(which) != "2") {
    GTEST_SKIP() << "only with TANDEM_SOFT_FAIL_ALLOC=2 on the software GPU";
  }
  CUdeviceptr pointer = 0;
  Allocate(4096);
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemAlloc_v2(&pointer, 4096));
  Allocate(4096);
}

}  // namespace
}  // namespace tandem::driver_test
