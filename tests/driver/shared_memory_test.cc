// Shared memory whose size a launch says, up to and beyond the 48 KiB that every kernel may have.
#include <cstring>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

// reach(out): every thread writes to shared memory at the far end of what the launch asked for, and
// reads what its opposite wrote; the last word is the size. hold(): has a KiB of shared memory.
const char kShared[] = PTX_HEAD R"(
.extern .shared .align 16 .b8 dynamic[];
.visible .entry reach(.param .u64 out)
{
  .reg .b32 %r<6>; .reg .b64 %d<3>;
  ld.param.u64 %d0, [out]; cvta.to.global.u64 %d0, %d0;
  mov.u32 %r0, %dynamic_smem_size; mov.u32 %r1, %tid.x; mov.u32 %r2, dynamic;
  add.u32 %r2, %r2, %r0;
  mul.lo.u32 %r3, %r1, 4; sub.u32 %r4, %r2, %r3;
  add.u32 %r5, %r1, 100; st.shared.u32 [%r4+-4], %r5;
  bar.sync 0;
  sub.u32 %r4, %r2, 32; add.u32 %r4, %r4, %r3; ld.shared.u32 %r5, [%r4];
  mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d1, %d0;
  st.global.u32 [%d1], %r5; st.global.u32 [%d0+32], %r0;
  ret;
}
.visible .entry hold()
{
  .shared .align 4 .b8 own[1024];
  .reg .b32 %r;
  mov.u32 %r, 1; st.shared.u32 [own], %r;
  ret;
}
)";

class SharedMemoryTest : public DriverTest {
 protected:
  static constexpr auto kMost = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  static constexpr int kWithoutAsking = 48 << 10;

  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_CU(Cu().cuModuleLoadData(&module_, kShared));
    ASSERT_CU(Cu().cuDeviceGetAttribute(&most_,
                                        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
    if (most_ <= kWithoutAsking) GTEST_SKIP() << "this device has no more than 48 KiB a block";
    out_ = Allocate(36);
  }
  CUresult LaunchWith(CUfunction function, int bytes) {
    void* parameters[] = {&out_};
    return Cu().cuLaunchKernel(function, 1, 1, 1, 8, 1, 1, static_cast<unsigned int>(bytes),
                               nullptr, parameters, nullptr);
  }

  CUdeviceptr out_ = 0;
  int most_ = 0;  // that a block may ask for
};

TEST_F(SharedMemoryTest, MoreThan48KiBHaveToBeAskedFor) {
  const CUfunction reach = Kernel("reach");
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, LaunchWith(reach, kWithoutAsking + 16));
  ASSERT_CU(Cu().cuFuncSetAttribute(reach, kMost, most_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, LaunchWith(reach, most_ + 16));
  for (const int bytes : {most_, kWithoutAsking + 16, 32}) {
    ASSERT_CU(LaunchWith(reach, bytes));
    const auto seen = Read(out_, 36);
    uint32_t words[9];
    std::memcpy(words, seen.data(), sizeof(words));
    for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(words[i], 107 - i);
    EXPECT_EQ(words[8], static_cast<uint32_t>(bytes));
  }
  ASSERT_CU(Cu().cuFuncSetAttribute(reach, kMost, 64));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, LaunchWith(reach, 80));
}

TEST_F(SharedMemoryTest, WhatAKernelHasAnywayCounts) {
  const CUfunction hold = Kernel("hold");
  int own = 0, most = 0;
  ASSERT_CU(Cu().cuFuncGetAttribute(&own, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, hold));
  ASSERT_CU(Cu().cuFuncGetAttribute(&most, kMost, hold));
  EXPECT_EQ(own, 1024);
  EXPECT_EQ(most, kWithoutAsking - own);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, LaunchWith(hold, kWithoutAsking));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuFuncSetAttribute(hold, kMost, most_ - own + 1));
  ASSERT_CU(Cu().cuFuncSetAttribute(hold, kMost, most_ - own));
  EXPECT_CU(CUDA_SUCCESS, LaunchWith(hold, most_ - own));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxSynchronize());
}

}  // namespace
}  // namespace tandem::driver_test
