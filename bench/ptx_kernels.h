// ptx_kernels.cu as PTX.
#pragma once

#include "softgpu/ptx/module_head.h"

inline constexpr char kBenchKernels[] = PTX_HEAD R"ptx(
.visible .entry vadd(
    .param .u64 vadd_param_0,
    .param .u64 vadd_param_1,
    .param .u64 vadd_param_2
)
{
  .reg .b32 %r<5>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<11>;
  ld.param.u64 %rd1, [vadd_param_0];
  ld.param.u64 %rd2, [vadd_param_2];
  cvta.to.global.u64 %rd3, %rd2;
  ld.param.u64 %rd4, [vadd_param_1];
  cvta.to.global.u64 %rd5, %rd4;
  cvta.to.global.u64 %rd6, %rd1;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  mul.wide.s32 %rd7, %r4, 4;
  add.s64 %rd8, %rd6, %rd7;
  ld.global.f32 %f1, [%rd8];
  add.s64 %rd9, %rd5, %rd7;
  ld.global.f32 %f2, [%rd9];
  add.f32 %f3, %f1, %f2;
  add.s64 %rd10, %rd3, %rd7;
  st.global.f32 [%rd10], %f3;
  ret;
}
.visible .entry fma_loop(
    .param .u64 fma_loop_param_0,
    .param .f32 fma_loop_param_1,
    .param .f32 fma_loop_param_2,
    .param .u32 fma_loop_param_3
)
{
  .reg .pred %p<6>;
  .reg .b32 %r<15>;
  .reg .f32 %f<71>;
  .reg .b64 %rd<5>;
  ld.param.u32 %r8, [fma_loop_param_3];
  ld.param.u64 %rd2, [fma_loop_param_0];
  cvta.to.global.u64 %rd1, %rd2;
  mov.u32 %r1, %tid.x;
  cvt.rn.f32.s32 %f63, %r1;
  add.f32 %f64, %f63, 0f3F800000;
  add.f32 %f65, %f63, 0f40000000;
  add.f32 %f66, %f63, 0f40400000;
  setp.lt.s32 %p1, %r8, 1;
  @%p1 bra LBB1_6;
  ld.param.f32 %f34, [fma_loop_param_2];
  ld.param.f32 %f33, [fma_loop_param_1];
  add.s32 %r9, %r8, -1;
  and.b32 %r13, %r8, 3;
  setp.lt.u32 %p2, %r9, 3;
  @%p2 bra LBB1_4;
  and.b32 %r14, %r8, -4;
LBB1_3:
  .pragma "nounroll";
  fma.rn.f32 %f36, %f63, %f33, %f34;
  fma.rn.f32 %f37, %f64, %f33, %f34;
  fma.rn.f32 %f38, %f65, %f33, %f34;
  fma.rn.f32 %f39, %f66, %f33, %f34;
  fma.rn.f32 %f40, %f36, %f33, %f34;
  fma.rn.f32 %f41, %f37, %f33, %f34;
  fma.rn.f32 %f42, %f38, %f33, %f34;
  fma.rn.f32 %f43, %f39, %f33, %f34;
  fma.rn.f32 %f44, %f40, %f33, %f34;
  fma.rn.f32 %f45, %f41, %f33, %f34;
  fma.rn.f32 %f46, %f42, %f33, %f34;
  fma.rn.f32 %f47, %f43, %f33, %f34;
  fma.rn.f32 %f63, %f44, %f33, %f34;
  fma.rn.f32 %f64, %f45, %f33, %f34;
  fma.rn.f32 %f65, %f46, %f33, %f34;
  fma.rn.f32 %f66, %f47, %f33, %f34;
  add.s32 %r14, %r14, -4;
  setp.eq.s32 %p3, %r14, 0;
  @%p3 bra LBB1_4;
  bra.uni LBB1_3;
LBB1_4:
  setp.eq.s32 %p4, %r13, 0;
  @%p4 bra LBB1_6;
LBB1_5:
  .pragma "nounroll";
  fma.rn.f32 %f63, %f63, %f33, %f34;
  fma.rn.f32 %f64, %f64, %f33, %f34;
  fma.rn.f32 %f65, %f65, %f33, %f34;
  fma.rn.f32 %f66, %f66, %f33, %f34;
  add.s32 %r13, %r13, -1;
  setp.ne.s32 %p5, %r13, 0;
  @%p5 bra LBB1_5;
LBB1_6:
  add.f32 %f48, %f63, %f64;
  add.f32 %f49, %f48, %f65;
  add.f32 %f50, %f49, %f66;
  mov.u32 %r10, %ctaid.x;
  mov.u32 %r11, %ntid.x;
  mad.lo.s32 %r12, %r10, %r11, %r1;
  mul.wide.s32 %rd3, %r12, 4;
  add.s64 %rd4, %rd1, %rd3;
  st.global.f32 [%rd4], %f50;
  ret;
}
.visible .entry matmul(
    .param .u64 matmul_param_0,
    .param .u64 matmul_param_1,
    .param .u64 matmul_param_2,
    .param .u32 matmul_param_3
)
{
  .reg .pred %p<3>;
  .reg .b32 %r<24>;
  .reg .f32 %f<57>;
  .reg .b64 %rd<22>;
  .shared .align 4 .b8 _ZZ6matmulE1s[1024];
  .shared .align 4 .b8 _ZZ6matmulE1t[1024];
  ld.param.u32 %r13, [matmul_param_3];
  ld.param.u64 %rd9, [matmul_param_2];
  cvta.to.global.u64 %rd1, %rd9;
  mov.u32 %r14, %ctaid.y;
  shl.b32 %r15, %r14, 4;
  mov.u32 %r1, %tid.y;
  add.s32 %r16, %r15, %r1;
  mov.u32 %r17, %ctaid.x;
  shl.b32 %r2, %r17, 4;
  mov.u32 %r3, %tid.x;
  add.s32 %r4, %r2, %r3;
  setp.lt.s32 %p1, %r13, 1;
  mul.lo.s32 %r5, %r16, %r13;
  mov.f32 %f56, 0f00000000;
  @%p1 bra LBB2_3;
  ld.param.u64 %rd8, [matmul_param_0];
  ld.param.u64 %rd10, [matmul_param_1];
  cvta.to.global.u64 %rd2, %rd10;
  cvta.to.global.u64 %rd3, %rd8;
  mul.wide.s32 %rd11, %r1, 64;
  mov.u64 %rd12, _ZZ6matmulE1s;
  add.s64 %rd6, %rd12, %rd11;
  mul.wide.s32 %rd13, %r3, 4;
  add.s64 %rd4, %rd6, %rd13;
  mov.u64 %rd14, _ZZ6matmulE1t;
  add.s64 %rd15, %rd14, %rd11;
  add.s64 %rd5, %rd15, %rd13;
  add.s64 %rd7, %rd14, %rd13;
  mad.lo.s32 %r19, %r1, %r13, %r3;
  add.s32 %r22, %r19, %r2;
  shl.b32 %r7, %r13, 4;
  add.s32 %r8, %r3, %r5;
  mov.f32 %f56, 0f00000000;
  mov.u32 %r23, 0;
LBB2_2:
  add.s32 %r20, %r8, %r23;
  mul.wide.s32 %rd16, %r20, 4;
  add.s64 %rd17, %rd3, %rd16;
  ld.global.f32 %f6, [%rd17];
  st.shared.f32 [%rd4], %f6;
  mul.wide.s32 %rd18, %r22, 4;
  add.s64 %rd19, %rd2, %rd18;
  ld.global.f32 %f7, [%rd19];
  st.shared.f32 [%rd5], %f7;
  bar.sync 0;
  ld.shared.f32 %f8, [%rd6];
  ld.shared.f32 %f9, [%rd7];
  fma.rn.f32 %f10, %f8, %f9, %f56;
  ld.shared.f32 %f11, [%rd6+4];
  ld.shared.f32 %f12, [%rd7+64];
  fma.rn.f32 %f13, %f11, %f12, %f10;
  ld.shared.f32 %f14, [%rd6+8];
  ld.shared.f32 %f15, [%rd7+128];
  fma.rn.f32 %f16, %f14, %f15, %f13;
  ld.shared.f32 %f17, [%rd6+12];
  ld.shared.f32 %f18, [%rd7+192];
  fma.rn.f32 %f19, %f17, %f18, %f16;
  ld.shared.f32 %f20, [%rd6+16];
  ld.shared.f32 %f21, [%rd7+256];
  fma.rn.f32 %f22, %f20, %f21, %f19;
  ld.shared.f32 %f23, [%rd6+20];
  ld.shared.f32 %f24, [%rd7+320];
  fma.rn.f32 %f25, %f23, %f24, %f22;
  ld.shared.f32 %f26, [%rd6+24];
  ld.shared.f32 %f27, [%rd7+384];
  fma.rn.f32 %f28, %f26, %f27, %f25;
  ld.shared.f32 %f29, [%rd6+28];
  ld.shared.f32 %f30, [%rd7+448];
  fma.rn.f32 %f31, %f29, %f30, %f28;
  ld.shared.f32 %f32, [%rd6+32];
  ld.shared.f32 %f33, [%rd7+512];
  fma.rn.f32 %f34, %f32, %f33, %f31;
  ld.shared.f32 %f35, [%rd6+36];
  ld.shared.f32 %f36, [%rd7+576];
  fma.rn.f32 %f37, %f35, %f36, %f34;
  ld.shared.f32 %f38, [%rd6+40];
  ld.shared.f32 %f39, [%rd7+640];
  fma.rn.f32 %f40, %f38, %f39, %f37;
  ld.shared.f32 %f41, [%rd6+44];
  ld.shared.f32 %f42, [%rd7+704];
  fma.rn.f32 %f43, %f41, %f42, %f40;
  ld.shared.f32 %f44, [%rd6+48];
  ld.shared.f32 %f45, [%rd7+768];
  fma.rn.f32 %f46, %f44, %f45, %f43;
  ld.shared.f32 %f47, [%rd6+52];
  ld.shared.f32 %f48, [%rd7+832];
  fma.rn.f32 %f49, %f47, %f48, %f46;
  ld.shared.f32 %f50, [%rd6+56];
  ld.shared.f32 %f51, [%rd7+896];
  fma.rn.f32 %f52, %f50, %f51, %f49;
  ld.shared.f32 %f53, [%rd6+60];
  ld.shared.f32 %f54, [%rd7+960];
  fma.rn.f32 %f56, %f53, %f54, %f52;
  bar.sync 0;
  add.s32 %r23, %r23, 16;
  add.s32 %r22, %r22, %r7;
  setp.lt.s32 %p2, %r23, %r13;
  @%p2 bra LBB2_2;
LBB2_3:
  add.s32 %r21, %r5, %r4;
  mul.wide.s32 %rd20, %r21, 4;
  add.s64 %rd21, %rd1, %rd20;
  st.global.f32 [%rd21], %f56;
  ret;
}
.visible .entry reduce(
    .param .u64 reduce_param_0,
    .param .u64 reduce_param_1,
    .param .u32 reduce_param_2,
    .param .u32 reduce_param_3
)
{
  .reg .pred %p<4>;
  .reg .b32 %r<15>;
  .reg .f32 %f<19>;
  .reg .b64 %rd<13>;
  ld.param.u32 %r5, [reduce_param_2];
  mov.u32 %r7, %ctaid.x;
  mov.u32 %r8, %ntid.x;
  mov.u32 %r1, %tid.x;
  mad.lo.s32 %r2, %r7, %r8, %r1;
  setp.ge.s32 %p1, %r2, %r5;
  mov.f32 %f18, 0f00000000;
  @%p1 bra LBB3_3;
  ld.param.u32 %r6, [reduce_param_3];
  ld.param.u64 %rd7, [reduce_param_0];
  cvta.to.global.u64 %rd2, %rd7;
  mul.wide.s32 %rd9, %r2, 4;
  add.s64 %rd12, %rd2, %rd9;
  mul.wide.s32 %rd4, %r6, 4;
  mov.f32 %f18, 0f00000000;
  mov.u32 %r14, %r2;
LBB3_2:
  ld.global.f32 %f7, [%rd12];
  add.f32 %f18, %f18, %f7;
  add.s32 %r14, %r14, %r6;
  add.s64 %rd12, %rd12, %rd4;
  setp.lt.s32 %p2, %r14, %r5;
  @%p2 bra LBB3_2;
LBB3_3:
  shfl.sync.bfly.b32 %f8, %f18, 16, 31, -1;
  add.f32 %f9, %f18, %f8;
  shfl.sync.bfly.b32 %f10, %f9, 8, 31, -1;
  add.f32 %f11, %f9, %f10;
  shfl.sync.bfly.b32 %f12, %f11, 4, 31, -1;
  add.f32 %f13, %f11, %f12;
  shfl.sync.bfly.b32 %f14, %f13, 2, 31, -1;
  add.f32 %f15, %f13, %f14;
  shfl.sync.bfly.b32 %f16, %f15, 1, 31, -1;
  and.b32 %r9, %r1, 31;
  setp.eq.s32 %p3, %r9, 0;
  @%p3 bra LBB3_4;
  bra.uni LBB3_5;
LBB3_4:
  ld.param.u64 %rd8, [reduce_param_1];
  cvta.to.global.u64 %rd1, %rd8;
  add.f32 %f2, %f15, %f16;
  shr.s32 %r10, %r2, 31;
  shr.u32 %r11, %r10, 27;
  add.s32 %r12, %r2, %r11;
  shr.s32 %r13, %r12, 5;
  mul.wide.s32 %rd10, %r13, 4;
  add.s64 %rd11, %rd1, %rd10;
  st.global.f32 [%rd11], %f2;
LBB3_5:
  ret;
}
.visible .entry scan(
    .param .u64 scan_param_0,
    .param .u64 scan_param_1
)
{
  .reg .pred %p<14>;
  .reg .b32 %r<50>;
  .reg .b64 %rd<19>;
  .shared .align 4 .b8 _ZZ4scanE6totals[128];
  ld.param.u64 %rd5, [scan_param_0];
  cvta.to.global.u64 %rd7, %rd5;
  mov.u32 %r7, %ctaid.x;
  mov.u32 %r8, %ntid.x;
  mov.u32 %r1, %tid.x;
  mad.lo.s32 %r9, %r7, %r8, %r1;
  shr.s32 %r11, %r1, 31;
  shr.u32 %r12, %r11, 27;
  add.s32 %r13, %r1, %r12;
  shr.s32 %r2, %r13, 5;
  and.b32 %r14, %r13, -32;
  sub.s32 %r3, %r1, %r14;
  mul.wide.s32 %rd8, %r9, 4;
  add.s64 %rd9, %rd7, %rd8;
  ld.global.u32 %r15, [%rd9];
  shfl.sync.up.b32 %r16, %r15, 1, 0, -1;
  setp.lt.s32 %p1, %r3, 1;
  selp.b32 %r17, 0, %r16, %p1;
  add.s32 %r18, %r17, %r15;
  shfl.sync.up.b32 %r19, %r18, 2, 0, -1;
  setp.lt.s32 %p2, %r3, 2;
  selp.b32 %r20, 0, %r19, %p2;
  add.s32 %r21, %r20, %r18;
  shfl.sync.up.b32 %r22, %r21, 4, 0, -1;
  setp.lt.s32 %p3, %r3, 4;
  selp.b32 %r23, 0, %r22, %p3;
  add.s32 %r24, %r23, %r21;
  shfl.sync.up.b32 %r25, %r24, 8, 0, -1;
  setp.lt.s32 %p4, %r3, 8;
  selp.b32 %r26, 0, %r25, %p4;
  add.s32 %r27, %r26, %r24;
  shfl.sync.up.b32 %r28, %r27, 16, 0, -1;
  setp.lt.s32 %p5, %r3, 16;
  selp.b32 %r29, 0, %r28, %p5;
  add.s32 %r49, %r29, %r27;
  setp.ne.s32 %p6, %r3, 31;
  mov.u64 %rd11, _ZZ4scanE6totals;
  @%p6 bra LBB4_2;
  mul.wide.s32 %rd10, %r2, 4;
  add.s64 %rd3, %rd11, %rd10;
  st.shared.u32 [%rd3], %r49;
LBB4_2:
  ld.param.u64 %rd6, [scan_param_1];
  bar.sync 0;
  add.s32 %r30, %r1, 31;
  setp.gt.u32 %p7, %r30, 62;
  @%p7 bra LBB4_4;
  mul.wide.s32 %rd12, %r3, 4;
  add.s64 %rd14, %rd11, %rd12;
  ld.shared.u32 %r31, [%rd14];
  shfl.sync.up.b32 %r32, %r31, 1, 0, -1;
  selp.b32 %r33, 0, %r32, %p1;
  add.s32 %r34, %r33, %r31;
  shfl.sync.up.b32 %r35, %r34, 2, 0, -1;
  selp.b32 %r36, 0, %r35, %p2;
  add.s32 %r37, %r36, %r34;
  shfl.sync.up.b32 %r38, %r37, 4, 0, -1;
  selp.b32 %r39, 0, %r38, %p3;
  add.s32 %r40, %r39, %r37;
  shfl.sync.up.b32 %r41, %r40, 8, 0, -1;
  selp.b32 %r42, 0, %r41, %p4;
  add.s32 %r43, %r42, %r40;
  shfl.sync.up.b32 %r44, %r43, 16, 0, -1;
  selp.b32 %r45, 0, %r44, %p5;
  add.s32 %r46, %r45, %r43;
  st.shared.u32 [%rd14], %r46;
LBB4_4:
  cvta.to.global.u64 %rd1, %rd6;
  cvt.s64.s32 %rd2, %r9;
  bar.sync 0;
  setp.lt.s32 %p13, %r1, 32;
  @%p13 bra LBB4_6;
  add.s32 %r47, %r2, -1;
  mul.wide.u32 %rd15, %r47, 4;
  add.s64 %rd4, %rd11, %rd15;
  ld.shared.u32 %r48, [%rd4];
  add.s32 %r49, %r48, %r49;
LBB4_6:
  shl.b64 %rd17, %rd2, 2;
  add.s64 %rd18, %rd1, %rd17;
  st.global.u32 [%rd18], %r49;
  ret;
}
.visible .entry scan_shared(
    .param .u64 scan_shared_param_0,
    .param .u64 scan_shared_param_1
)
{
  .reg .pred %p<3>;
  .reg .b32 %r<18>;
  .reg .b64 %rd<16>;
  .shared .align 4 .b8 _ZZ11scan_sharedE4sums[4096];
  ld.param.u64 %rd5, [scan_shared_param_0];
  ld.param.u64 %rd6, [scan_shared_param_1];
  cvta.to.global.u64 %rd1, %rd6;
  cvta.to.global.u64 %rd7, %rd5;
  mov.u32 %r10, %ctaid.x;
  mov.u32 %r11, %ntid.x;
  mov.u32 %r1, %tid.x;
  mad.lo.s32 %r12, %r10, %r11, %r1;
  cvt.s64.s32 %rd2, %r12;
  mul.wide.s32 %rd8, %r12, 4;
  add.s64 %rd9, %rd7, %rd8;
  ld.global.u32 %r15, [%rd9];
  mul.wide.s32 %rd10, %r1, 4;
  mov.u64 %rd11, _ZZ11scan_sharedE4sums;
  add.s64 %rd3, %rd11, %rd10;
  st.shared.u32 [%rd3], %r15;
  bar.sync 0;
  mov.u32 %r16, 1;
  mov.u32 %r13, 0;
  bra.uni LBB5_1;
LBB5_3:
  bar.sync 0;
  add.s32 %r15, %r15, %r17;
  st.shared.u32 [%rd3], %r15;
  bar.sync 0;
  shl.b32 %r8, %r16, 1;
  setp.lt.u32 %p2, %r16, 512;
  mov.u32 %r16, %r8;
  @%p2 bra LBB5_1;
  bra.uni LBB5_4;
LBB5_1:
  setp.lt.s32 %p1, %r1, %r16;
  mov.u32 %r17, %r13;
  @%p1 bra LBB5_3;
  sub.s32 %r14, %r1, %r16;
  mul.wide.s32 %rd12, %r14, 4;
  add.s64 %rd4, %rd11, %rd12;
  ld.shared.u32 %r17, [%rd4];
  bra.uni LBB5_3;
LBB5_4:
  shl.b64 %rd14, %rd2, 2;
  add.s64 %rd15, %rd1, %rd14;
  st.global.u32 [%rd15], %r15;
  ret;
}
.visible .entry mandelbrot(
    .param .u64 mandelbrot_param_0,
    .param .u32 mandelbrot_param_1,
    .param .u32 mandelbrot_param_2
)
{
  .reg .pred %p<4>;
  .reg .b32 %r<18>;
  .reg .f32 %f<22>;
  .reg .b64 %rd<5>;
  ld.param.u32 %r5, [mandelbrot_param_2];
  ld.param.u64 %rd2, [mandelbrot_param_0];
  cvta.to.global.u64 %rd1, %rd2;
  mov.u32 %r8, %ctaid.x;
  mov.u32 %r9, %ntid.x;
  mov.u32 %r10, %tid.x;
  mad.lo.s32 %r1, %r8, %r9, %r10;
  setp.lt.s32 %p1, %r5, 1;
  mov.u32 %r17, 0;
  @%p1 bra LBB6_4;
  ld.param.u32 %r7, [mandelbrot_param_1];
  div.s32 %r12, %r1, %r7;
  mul.lo.s32 %r13, %r12, %r7;
  sub.s32 %r14, %r1, %r13;
  cvt.rn.f32.s32 %f9, %r14;
  mul.f32 %f10, %f9, 0f404CCCCD;
  cvt.rn.f32.s32 %f11, %r7;
  div.rn.f32 %f12, %f10, %f11;
  add.f32 %f1, %f12, 0fC00CCCCD;
  cvt.rn.f32.s32 %f13, %r12;
  mul.f32 %f14, %f13, 0f40333333;
  div.rn.f32 %f15, %f14, %f11;
  add.f32 %f2, %f15, 0fBFB33333;
  mov.u32 %r16, 0;
  mov.f32 %f20, 0f00000000;
  mov.f32 %f21, %f20;
LBB6_2:
  mul.f32 %f5, %f20, %f20;
  fma.rn.f32 %f17, %f21, %f21, %f5;
  setp.geu.f32 %p2, %f17, 0f40800000;
  mov.u32 %r17, %r16;
  @%p2 bra LBB6_4;
  mul.f32 %f6, %f21, %f21;
  sub.f32 %f18, %f5, %f6;
  add.f32 %f7, %f1, %f18;
  add.f32 %f19, %f20, %f20;
  fma.rn.f32 %f21, %f21, %f19, %f2;
  add.s32 %r16, %r16, 1;
  setp.ne.s32 %p3, %r5, %r16;
  mov.f32 %f20, %f7;
  mov.u32 %r17, %r5;
  @%p3 bra LBB6_2;
LBB6_4:
  mul.wide.s32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  st.global.u32 [%rd4], %r17;
  ret;
}
)ptx";
