#include "softgpu/driver/device_runtime.h"

namespace tandem::soft {

bool IsDeviceRuntime(std::string_view library) {
  return library.starts_with("!<arch>\n") &&
         library.find("cuda_device_runtime.o") != std::string_view::npos;
}

// The grid's handle is the place of its barrier, whose word the last block turns the top bit of.
const char kDeviceRuntime[] = R"(
.version 6.0
.target sm_30
.address_size 64
.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
  .reg .pred %p;
  .reg .b32 %r<3>;
  .reg .b64 %d;
  ld.param.b32 %r0, [scope];
  mov.u32 %r1, %envreg2;
  mov.u32 %r2, %envreg1;
  mov.b64 %d, {%r1, %r2};
  setp.eq.u32 %p, %r0, 1;
  selp.b64 %d, %d, 0, %p;
  st.param.b64 [handle], %d;
  ret;
}
.visible .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
  .reg .pred %p<4>;
  .reg .b32 %r<9>;
  .reg .b64 %d;
  ld.param.b64 %d, [handle];
  setp.eq.u64 %p0, %d, 0;
  @%p0 bra NONE;
  membar.gl;
  bar.sync 0;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %tid.y;
  mov.u32 %r2, %tid.z;
  or.b32 %r0, %r0, %r1;
  or.b32 %r0, %r0, %r2;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra TOGETHER;
  mov.u32 %r0, %nctaid.x;
  mov.u32 %r1, %nctaid.y;
  mov.u32 %r2, %nctaid.z;
  mul.lo.u32 %r0, %r0, %r1;
  mul.lo.u32 %r0, %r0, %r2;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ctaid.y;
  mov.u32 %r3, %ctaid.z;
  or.b32 %r1, %r1, %r2;
  or.b32 %r1, %r1, %r3;
  setp.eq.u32 %p2, %r1, 0;
  sub.u32 %r4, 0x80000001, %r0;
  selp.b32 %r4, %r4, 1, %p2;
  atom.add.u32 %r5, [%d+4], %r4;
WAIT:
  ld.volatile.u32 %r6, [%d+4];
  xor.b32 %r6, %r6, %r5;
  setp.ge.s32 %p3, %r6, 0;
  @%p3 bra WAIT;
TOGETHER:
  bar.sync 0;
  membar.gl;
  st.param.b32 [result], 0;
  ret;
NONE:
  st.param.b32 [result], 1;  // cudaErrorInvalidValue
  ret;
}
)";

}  // namespace tandem::soft
