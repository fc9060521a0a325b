#include "softgpu/ptx/module_head.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {

// add(out, value, count): out[i] += value. store(out, value): writes wherever it is told.
// flip(bytes, mask, count): bytes[i] ^= mask. fetch(from, to): copies a byte. spin(out, rounds):
// counts, and writes the count. bump(): counter += 1. trap(): stops.
const char kKernels[] = PTX_HEAD R"ptx(

.visible .global .align 4 .u32 counter = 7;

.visible .entry add(.param .u64 out, .param .u32 value, .param .u32 count)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [value];
  ld.param.u32 %r2, [count];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r6, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r7, [%rd4];
  add.s32 %r7, %r7, %r1;
  st.global.u32 [%rd4], %r7;
DONE:
  ret;
}

.visible .entry store(.param .u64 out, .param .u32 value)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], %r1;
  ret;
}

.visible .entry flip(.param .u64 bytes, .param .u32 mask, .param .u32 count)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [bytes];
  ld.param.u32 %r1, [mask];
  ld.param.u32 %r2, [count];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra DONE;
  cvt.u64.u32 %rd2, %r6;
  add.s64 %rd3, %rd1, %rd2;
  ld.u8 %r7, [%rd3];
  xor.b32 %r7, %r7, %r1;
  st.u8 [%rd3], %r7;
DONE:
  ret;
}

.visible .entry fetch(.param .u64 from, .param .u64 to)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [from];
  ld.param.u64 %rd2, [to];
  ld.u8 %r1, [%rd1];
  st.u8 [%rd2], %r1;
  ret;
}

.visible .entry spin(.param .u64 out, .param .u32 rounds)
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, 0;
LOOP:
  add.s32 %r2, %r2, 1;
  setp.lt.u32 %p1, %r2, %r1;
  @%p1 bra LOOP;
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], %r2;
  ret;
}

.visible .entry bump()
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  mov.u64 %rd1, counter;
  ld.global.u32 %r1, [%rd1];
  add.s32 %r2, %r1, 1;
  st.global.u32 [%rd1], %r2;
  ret;
}

.visible .entry trap()
{
  trap;
  ret;
}
)ptx";

}  // namespace tandem::driver_test
