#include <gtest/gtest.h>

#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

constexpr char kVectorAdd[] = R"(
.version 6.3
.target sm_50
.address_size 64
.visible .entry vadd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .f32 %f<4>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<11>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r1, %r3, %r4, %r5;
  setp.ge.s32 %p1, %r1, %r2;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd4, %rd1;
  mul.wide.s32 %rd5, %r1, 4;
  add.s64 %rd6, %rd4, %rd5;
  cvta.to.global.u64 %rd7, %rd2;
  add.s64 %rd8, %rd7, %rd5;
  ld.global.f32 %f1, [%rd8];
  ld.global.f32 %f2, [%rd6];
  add.f32 %f3, %f2, %f1;
  cvta.to.global.u64 %rd9, %rd3;
  add.s64 %rd10, %rd9, %rd5;
  st.global.f32 [%rd10], %f3;
DONE:
  ret;
}
)";

TEST(Run, AddsVectors) {
  const auto program = MustCompile(kVectorAdd);
  ASSERT_NE(program, nullptr);
  for (const Path path : Paths()) {
    TestDevice device;
    constexpr uint32_t kCount = 1000;
    for (uint32_t i = 0; i < kCount; ++i) {
      device.Array<float>(0)[i] = static_cast<float>(i);
      device.Array<float>(8192)[i] = 0.5f * static_cast<float>(i);
    }
    MustRun(*program, device, {.grid = {8, 1, 1}, .block = {128, 1, 1}},
            Params().Add(device.At(0)).Add(device.At(8192)).Add(device.At(16384)).Add(kCount),
            path);
    for (uint32_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(device.Array<float>(16384)[i], 1.5f * static_cast<float>(i));
    }
    EXPECT_EQ(device.Array<float>(16384)[kCount], 0.0f);
  }
}

}  // namespace
}  // namespace tandem::ptx
