#include "src/cuda/driver_state.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tandem::cuda {
namespace {

using Kind = DriverState::Kind;

class DriverStateTest : public ::testing::Test {
 protected:
  ~DriverStateTest() override {
    unsetenv("TANDEM_TEST_CUINIT");
    unsetenv("TANDEM_TEST_DEVICES");
  }
  static DriverState StateWhere(const char* init, const char* devices,
                                Duration patience = Seconds(60)) {
    setenv("TANDEM_TEST_CUINIT", init, 1);
    setenv("TANDEM_TEST_DEVICES", devices, 1);
    return AskDriver(ANSWERING_LIBCUDA, patience);
  }
};

TEST_F(DriverStateTest, ADriverWithAGpuWorks) {
  EXPECT_EQ(StateWhere("0", "1").kind, Kind::kWorks);
}

TEST_F(DriverStateTest, WithoutAGpuItIsAsIfThereWereNoDriver) {
  EXPECT_EQ(AskDriver("/nowhere/libcuda.so.1").kind, Kind::kNone);
  EXPECT_EQ(StateWhere("0", "0").kind, Kind::kNone);
  EXPECT_EQ(StateWhere("100", "0").kind, Kind::kNone) << "no device";
  EXPECT_EQ(StateWhere("34", "0").kind, Kind::kNone) << "the stub of CUDA's toolkit";
}

TEST_F(DriverStateTest, ADriverThatDoesNotInitialiseIsBroken) {
  EXPECT_EQ(StateWhere("803", "1").kind, Kind::kBroken);
  EXPECT_EQ(StateWhere("803", "1").why, "cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
  EXPECT_EQ(StateWhere("54321", "1").why, "cuInit failed: 54321");
  EXPECT_EQ(StateWhere("dies", "1").kind, Kind::kBroken);
  EXPECT_EQ(StateWhere("hangs", "1", Milliseconds(1)).why, "cuInit does not return");
}

}  // namespace
}  // namespace tandem::cuda
