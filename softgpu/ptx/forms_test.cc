// Constant expressions, initial values, and forms of instructions that few programs use: which of
// them the compiler accepts, and which it refuses.
#include <gtest/gtest.h>

#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

// The value of the module's variable x, which `expression` initializes.
uint64_t Initial(const std::string& expression) {
  const auto program = MustCompile(Modules(".global .u64 x = " + expression + ";"));
  if (program == nullptr) return 0;
  uint64_t value = 0;
  program->WriteImage(reinterpret_cast<uint8_t*>(&value), 0);
  return value;
}

TEST(Forms, ComputesConstantExpressions) {
  const auto negative = [](int64_t value) { return static_cast<uint64_t>(value); };
  EXPECT_EQ(Initial("4*2+1"), 9u);
  EXPECT_EQ(Initial("1+2*3-4/2"), 5u);
  EXPECT_EQ(Initial("(4*2+1)<<2"), 36u);
  EXPECT_EQ(Initial("4>2 ? 3 : 1"), 3u);
  EXPECT_EQ(Initial("4>2 && 0 || 1==1"), 1u);
  EXPECT_EQ(Initial("~5 & 0xff"), 0xfau);
  EXPECT_EQ(Initial("!5 + !0"), 1u);
  EXPECT_EQ(Initial("-7/2"), negative(-3));
  EXPECT_EQ(Initial("-7 % 4"), negative(-3));
  EXPECT_EQ(Initial("- -7 - -1"), 8u);
  EXPECT_EQ(Initial("-8>>1"), negative(-4));
  EXPECT_EQ(Initial("0xFFFFFFFFFFFFFFFF>>60"), 15u);
  EXPECT_EQ(Initial("(.s64)0xFFFFFFFFFFFFFFFF>>60"), negative(-1));
  EXPECT_EQ(Initial("-1 < 1U"), 0u);
  EXPECT_EQ(Initial("-1 < 1"), 1u);
  EXPECT_EQ(Initial("6|1^3&2"), 7u);
  EXPECT_EQ(Initial("1<<64"), 0u);
  EXPECT_EQ(Initial("-1>>64"), negative(-1));
  EXPECT_EQ(Initial("0x8000000000000000/(.u64)3"), 0x2aaaaaaaaaaaaaaau);
  EXPECT_EQ(Initial("(.s64)0x8000000000000000/-1"), 0x8000000000000000u);
  EXPECT_EQ(Initial("1 ? 2 : 0 ? 3 : 4"), 2u);
  EXPECT_EQ(Initial("WARP_SZ*2"), 64u);
  for (const char* bad : {"1/0", "1%0", "1+", "(1", "1 ? 2", "1 2"}) {
    SCOPED_TRACE(bad);
    EXPECT_NE(CompileLog(Modules(".global .u64 x = " + std::string(bad) + ";")), "");
  }
  EXPECT_NE(CompileLog(Modules(".global .u64 x = " + std::string(100000, '(') + "1;")), "");
  EXPECT_NE(CompileLog(Modules(".global .u64 x = " + std::string(100000, '-') + "1;")), "");
}

TEST(Forms, FloatsInInitializers) {
  const auto program = MustCompile(Modules(R"(
    .global .f32 a = 0f3F800000; .global .b32 b = 0f3F800000; .global .f32 c = 1.0;
    .const .f64 d = 0d3FF0000000000000; .const .f64 e = 1.0;)"));
  ASSERT_NE(program, nullptr);
  std::vector<uint8_t> image(program->image_bytes());
  program->WriteImage(image.data(), 0);
  for (const char* name : {"a", "b", "c"}) {
    float value = 0;
    std::memcpy(&value, &image[program->FindVariable(name)->offset], sizeof value);
    EXPECT_EQ(value, 1.0f) << name;
  }
  for (const char* name : {"d", "e"}) {
    double value = 0;
    std::memcpy(&value, &image[program->FindVariable(name)->offset], sizeof value);
    EXPECT_EQ(value, 1.0) << name;
  }
}

TEST(Forms, AddressesInInitializers) {
  const auto program = MustCompile(Modules(R"(
    .global .attribute(.managed) .align 4 .u32 y[2] = {7, 8};
    .global .align 8 .u64 p = generic(y)+4;
    .global .u8 bytes[8] = {0xFF(y), 0xFF00(y), 0xFF0000(y), 0xFF000000(y), 0xFF00000000(y),
      0xFF0000000000(generic(y)), 0xFF000000000000(y+4), 0xFF00000000000000(y)};
    .const .u32 first = 5;)"));
  ASSERT_NE(program, nullptr);
  EXPECT_TRUE(program->FindVariable("y")->managed);
  EXPECT_FALSE(program->FindVariable("p")->managed);
  std::vector<uint8_t> image(program->image_bytes());
  const uint64_t base = 0x123456789abcde00;
  program->WriteImage(image.data(), base);
  uint64_t pointer = 0, bytes = 0;
  std::memcpy(&pointer, &image[program->FindVariable("p")->offset], 8);
  std::memcpy(&bytes, &image[program->FindVariable("bytes")->offset], 8);
  const uint64_t y = base + program->FindVariable("y")->offset;
  EXPECT_EQ(pointer, y + 4);
  EXPECT_EQ(bytes, y);
}

TEST(Forms, AnIndexCountsWholeElements) {
  const auto program = MustCompile(Modules(R"(
.global .v4 .u32 list[3] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};
.visible .entry k(.param .u64 result, .param .align 16 .u32 p[4]) {)" +
                                           std::string(kPrologue) + R"(
    .local .v2 .u32 mine[2];
    mov.u64 %rd1, list[2]; ld.global.u32 %r1, [%rd1];
    ld.global.v2.u32 {%r2, %r3}, list[1];
    mov.u64 %rd2, mine[1]; sub.u64 %rd2, %rd2, mine; cvt.u32.u64 %r4, %rd2;
    ld.param.u32 %r5, p[1]; ld.param.v2.u32 {%r6, %r7}, [p+8];
    st.global.v4.u32 [%out], {%r1, %r3, %r4, %r5};
    st.global.v2.u32 [%out+16], {%r6, %r7};
    ret; })"));
  ASSERT_NE(program, nullptr);
  TestDevice device;
  program->WriteImage(device.Array<uint8_t>(8192), device.At(8192));
  MustRun(*program, device, {.block = {1, 1, 1}, .image = device.At(8192)},
          Params().Add(device.At(0)).Add(uint64_t{0}).Add(20).Add(21).Add(22).Add(23));
  const uint32_t* out = device.Array<uint32_t>(0);
  EXPECT_EQ(std::vector<uint32_t>(out, out + 6), std::vector<uint32_t>({9, 6, 8, 21, 22, 23}));
}

// Both lists agree with what NVIDIA's assembler takes and refuses.
TEST(Forms, TakesTheFormsThatFewProgramsUse) {
  for (const char* instruction : {
           "mov.b64 %rd1, gv+4;",
           "mov.u64 %rd1, sv+16;",
           "mov.u32 %r1, lv+4;",
           "cvta.global.u64 %rd1, gv+4;",
           "mov.u32 %r1, (4*2+1)<<2;",
           "add.u32 %r1, %r2, 3+4;",
           "ld.global.u8 %r1, gv[3];",
           "ld.global.u32 %r1, [gv+4*2];",
           "ld.global.u32 %r1, [%rd1+-4];",
           "ld.global.u32 {%r1}, [%rd1];",
           "isspacep.const %p1, %rd1;",
           "mad24.hi.sat.s32 %r1, %r2, %r3, %r4;",
           "lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 0x3f, !%p2;",
           "lop3.and.b32 _|%p1, %r2, %r3, %r4, 0x3f, %p2;",
           "createpolicy.fractional.L2::evict_last.b64 %rd1, 0.5;",
           "createpolicy.range.global.L2::evict_last.b64 %rd1, [%rd2], 0x100, 0x1000;",
           "cvt.rz.sat.f32.f64 %f1, %fd1;",
           "cvt.rm.sat.f32.s32 %f1, %r1;",
           "vmad.s32.s32.u32.po.sat.shr7 %r1, %r2, %r3, %r4;",
           "vadd4.s32.u32.s32.sat %r1.b310, %r2.b3210, %r3.b7654, %r4;",
           "mbarrier.arrive.shared.b64 _, [sv];",
           "mbarrier.test_wait.shared.b64 %p1, [sv], %rd1;",
           "mbarrier.test_wait.parity.shared.b64 %p1, [sv], %r1;",
           "mbarrier.try_wait.shared.b64 %p1, [sv], %rd1, 100;",
           "mbarrier.try_wait.parity.shared::cta.b64 %p1, [sv], %r1, 100;",
           "bar.sync 0, 64;",
           ".reg .b32 %x<3>, %x; mov.u32 %x, 5; mov.u32 %x1, %x;",
       }) {
    EXPECT_NE(MustCompile(WithRegisters(instruction)), nullptr) << instruction;
  }
}

TEST(Forms, RefusesWhatNoProgramMayHave) {
  for (const char* instruction : {
           "add.f32 %f1, %f2, sv;",
           "add.f32 %f1, %f2, %tid.x;",
           "mov.f32 %f1, %clock;",
           "mov.f64 %fd1, gv;",
           "mov.u64 %rd1, %rd2+4;",
           "add.u32 %r1, -%r2, 3;",
           "ld.global.u32 %r1, %rd1[3];",
           ".local .u32 a[2][2]; ld.local.u32 %r1, a[1];",
           ".local .u32 a[2][2]; mov.u64 %rd1, a[1];",
           "ld.param.u32 %r1, [prm+1];",
           ".reg .u32 x = 7;",
           ".reg .b32 %x, %x;",
           ".reg .b32 %x<3>, %x<5>;",
           ".reg .b32 %x<3>; mov.u32 %x, 5;",
           ".local .u32 x = 7;",
           ".shared .u32 x = 7;",
           ".param .u32 x = 7;",
           "ld.global.v4.f64 {%fd1, %fd2, %fd3, %fd4}, [%rd1];",
           "ld.global.v4.b64 {%rd1, %rd2, %rd3, %rd4}, [%rd1];",
           "ld.global.v2.u32 {%r1}, [%rd1];",
           "bar.sync 16;",
           "bar.sync 0, 33;",
           "mad24.lo.sat.s32 %r1, %r2, %r3, %r4;",
           "lop3.xor.b32 %r1|%p1, %r2, %r3, %r4, 0x3f, %p2;",
           "createpolicy.fractional.L2::evict_last.b64 %rd1, 2.0;",
           "createpolicy.fractional.L2::evict_last.b64 %rd1, nothing;",
           "createpolicy.cvt.L2.b64 %rd1;",
           "createpolicy.cvt.L2.b64 %rd1, %r1;",
           "vadd4.u32.u32.u32 %r1, %r2, %r3;",
           "vadd.u32.u32.u32;",
           "vadd.u32.u32.u32 %r1, %r2.b4, %r3;",
           "vadd4.u32.u32.u32 %r1.b13, %r2, %r3, %r4;",
           "vabsdiff2.s32.u32.u32.sat.add %r1, %r2, %r3, %r4;",
           "mbarrier.init.shared.b64 [sv];",
           "mbarrier.test_wait.shared.b64 %p1, [sv], %rd1, 100;",
           "mbarrier.test_wait.parity.shared.b64 %p1, [sv], %r1, 100;",
           "call (%r1), %rd1, (%r2), nothing;",
           "mov.u64 %rd1, k;",
       }) {
    EXPECT_NE(CompileLog(WithRegisters(instruction)), "") << instruction;
  }
  for (const char* text : {
           ".global .f32 x = 1;",
           ".shared .u32 x = 7;",
           ".global .f16 x = 0f3F800000;",
           ".global .f16 x = 15360;",
           ".global .f16x2 x = 0f3F800000;",
           ".global .bf16 x[2] = {0f3F800000};",
           ".global .bf16x2 x = 0f3F800000;",
           ".global .b16 x = 0f3F800000;",
           ".global .u8 x = 0f3F800000;",
           ".global .u64 x = 0f3F800000;",
           ".global .u32 y; .global .u16 x = 0xFF(y);",
           ".global .u32 y; .global .u8 x = 0xFE(y);",
           ".global .u32 y; .global .u32 x = y;",
           ".extern .func f; .global .u64 x = f;",
           ".func f { ret; } .alias g, f;",
           ".func g; .func f; .alias g, f;",
           ".func g { ret; } .func f { ret; } .alias g, f;",
           ".const .attribute(.managed) .u32 m;",
           ".global .attribute(.unified) .u32 m;",
       }) {
    EXPECT_NE(CompileLog(Modules(text)), "") << text;
  }
}

}  // namespace
}  // namespace tandem::ptx
