// Control flow, memory, calls, faults and yields.
#include <gtest/gtest.h>

#include <cfenv>

#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

class RunTest : public KernelTest {};

INSTANTIATE_TEST_SUITE_P(Paths, RunTest, ::testing::ValuesIn(Paths()));

TEST_P(RunTest, NestedBranchesReconverge) {
  const auto out = Go(R"(
    mov.u32 %r1, 0;
    setp.lt.u32 %p1, %t, 16;
    @!%p1 bra HIGH;
    setp.lt.u32 %p2, %t, 5;
    @%p2 bra LOW;
    add.u32 %r1, %r1, 100;
    bra JOIN;
  LOW:
    add.u32 %r1, %r1, 200;
    bra JOIN;
  HIGH:
    add.u32 %r1, %r1, 300;
  JOIN:
    activemask.b32 %r2;
    setp.eq.u32 %p3, %r2, 0xffffffff;
    @%p3 add.u32 %r1, %r1, 1;
    st.global.u32 [%at], %r1;
    ret;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 5 ? 201 : i < 16 ? 101 : 301);
}

TEST_P(RunTest, LoopsWithTripCountsOfTheirOwn) {
  const auto out = Go(R"(
    mov.u32 %r1, 0; mov.u32 %r2, 0;
  LOOP:
    setp.ge.u32 %p1, %r2, %t;
    @%p1 bra DONE;
    add.u32 %r1, %r1, %r2;
    add.u32 %r2, %r2, 1;
    bra LOOP;
  DONE:
    st.global.u32 [%at], %r1;
    ret;)",
                      70);
  for (uint32_t i = 0; i < 70; ++i) EXPECT_EQ(out[i], i * (i - 1) / 2 * (i > 0)) << i;
}

TEST_P(RunTest, DynamicSharedMemoryAndGenericAddresses) {
  const std::string text =
      ".version 6.3\n.target sm_70\n.address_size 64\n"
      ".extern .shared .align 16 .b8 pool[];\n"
      ".visible .entry k(.param .u64 result)\n{" +
      std::string(kPrologue) + R"(
    .local .align 8 .b8 mine[16];
    mov.u64 %rd1, pool; cvta.shared.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %t, 4; add.u64 %rd2, %rd2, %rd3;
    st.u32 [%rd2], %t;
    bar.sync 0;
    xor.b32 %r1, %t, 1; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd1, %rd1, %rd3;
    ld.shared.u32 %r2, [%rd1];
    cvta.local.u64 %rd5, mine;
    and.b32 %r3, %t, 1; setp.eq.u32 %p1, %r3, 0;
    st.local.u32 [mine+8], %r2;
    add.u64 %rd5, %rd5, 8;
    selp.b64 %rd6, %rd5, %rd2, %p1;
    ld.u32 %r4, [%rd6];
    st.global.u32 [%at], %r4;
    ret; })";
  const auto program = MustCompile(text);
  ASSERT_NE(program, nullptr);
  MustRun(*program, device_, {.block = {64, 1, 1}, .shared = 256}, Params().Add(device_.At(0)),
          GetParam());
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(device_.Array<uint32_t>(0)[i], i % 2 ? i : i + 1);
}

TEST_P(RunTest, Atomics) {
  const auto out = Go(R"(
    atom.global.add.u32 %r1, [%out+1024], 2;
    atom.global.max.s32 %r2, [%out+1028], %t;
    atom.global.inc.u32 %r3, [%out+1032], 9;
    red.global.add.f32 [%out+1036], 0f3F000000;
    atom.global.cas.b32 %r4, [%out+1040], 0, 77;
    st.global.u32 [%at], %r1;
    ret;)",
                      64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], 2 * i);
  const uint32_t* cells = device_.Array<uint32_t>(1024);
  EXPECT_EQ(cells[0], 128u);
  EXPECT_EQ(cells[1], 63u);
  EXPECT_EQ(cells[2], 4u);
  EXPECT_EQ(*device_.Array<float>(1036), 32.0f);
  EXPECT_EQ(cells[4], 77u);
}

TEST_P(RunTest, DynamicSharedMemoryIsAligned) {
  const std::string text =
      ".version 6.3\n.target sm_70\n.address_size 64\n"
      ".extern .shared .align 128 .b8 pool[];\n"
      ".visible .entry k(.param .u64 result)\n{" +
      std::string(kPrologue) + R"(
    .shared .b8 first[3];
    st.shared.u8 [first], 1;
    mov.u64 %rd1, pool; mov.u32 %r2, pool;
    st.shared.v4.u32 [pool], {%t, %t, %t, %t};
    ld.shared.u32 %r3, [%rd1+12];
    add.u32 %r3, %r3, %r2;
    st.global.u32 [%at], %r3;
    ret; })";
  const auto program = MustCompile(text);
  ASSERT_NE(program, nullptr);
  EXPECT_EQ(program->kernels()[0].static_shared_bytes, 128u);
  MustRun(*program, device_, {.shared = 16}, Params().Add(device_.At(0)), GetParam());
  EXPECT_EQ(device_.Array<uint32_t>(0)[31], 128u + 31);
}

TEST_P(RunTest, TheCallersFloatingPointEnvironmentIsLeftAlone) {
  std::fenv_t before;
  std::fegetenv(&before);
  std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
  const unsigned flushing = __builtin_ia32_stmxcsr() | 0x8040;  // FTZ, DAZ
  __builtin_ia32_ldmxcsr(flushing);
#endif
  const auto out = Go(R"(
    mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f00000001;
    add.f32 %f3, %f1, %f2;
    add.f32 %f4, %f2, %f2;
    mov.b32 %r1, %f3; mov.b32 %r2, %f4; add.u32 %r1, %r1, %r2;
    st.global.u32 [%at], %r1;
    ret;)");
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
#if defined(__x86_64__)
  EXPECT_EQ(__builtin_ia32_stmxcsr() & ~0x3fu, flushing & ~0x3fu);
#endif
  std::fesetenv(&before);
  EXPECT_EQ(out[0], 0x3f800002u);
}

TEST_P(RunTest, CallsFromDivergentPlaces) {
  const std::string text = R"(
.version 6.3
.target sm_70
.address_size 64
.func (.param .b32 r) scale(.param .b32 x, .param .b32 y)
{
  .reg .b32 %a<4>; .reg .pred %q;
  ld.param.u32 %a1, [x]; ld.param.u32 %a2, [y];
  setp.gt.u32 %q, %a1, 20;
  @%q bra BIG;
  mul.lo.u32 %a3, %a1, %a2;
  st.param.b32 [r+0], %a3;
  ret;
BIG:
  st.param.b32 [r+0], %a1;
  ret;
}
.visible .entry k(.param .u64 result)
{)" + std::string(kPrologue) +
                           R"(
  and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0;
  @%p1 bra EVEN;
  { .param .b32 a0; .param .b32 a1; .param .b32 rv;
    st.param.b32 [a0+0], %t; st.param.b32 [a1+0], 3;
    call.uni (rv), scale, (a0, a1);
    ld.param.b32 %r2, [rv+0]; }
  bra OUT;
EVEN:
  { .param .b32 a0; .param .b32 a1; .param .b32 rv;
    st.param.b32 [a0+0], %t; st.param.b32 [a1+0], 5;
    call (rv), scale, (a0, a1);
    ld.param.b32 %r2, [rv+0]; }
OUT:
  st.global.u32 [%at], %r2;
  ret; })";
  const auto program = MustCompile(text);
  ASSERT_NE(program, nullptr);
  MustRun(*program, device_, {}, Params().Add(device_.At(0)), GetParam());
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(device_.Array<uint32_t>(0)[i], i > 20 ? i : i * (i % 2 ? 3 : 5)) << i;
  }
}

TEST_P(RunTest, VectorsAndNarrowTypes) {
  const auto out = Go(R"(
    .reg .b16 %h<4>;
    mul.wide.u32 %rd1, %t, 16; add.u64 %rd1, %rd1, %out; add.u64 %rd1, %rd1, 4096;
    add.u32 %r1, %t, 1; add.u32 %r2, %t, 2; add.u32 %r3, %t, 3;
    st.global.v4.u32 [%rd1], {%t, %r1, %r2, %r3};
    ld.global.v2.u32 {%r4, %r5}, [%rd1+8];
    mov.u32 %r6, 0xffffff80;
    st.global.u8 [%rd1], %r6;
    ld.global.s8 %r7, [%rd1];
    ld.global.u8 %h1, [%rd1]; cvt.u32.u16 %r8, %h1;
    add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r7; add.u32 %r4, %r4, %r8;
    st.global.u32 [%at], %r4;
    ret;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], 2 * i + 5);
}

TEST_P(RunTest, VectorStoresTakeConstantsAnywhere) {
  const auto out = Go(R"(
    mul.wide.u32 %rd1, %t, 16; add.u64 %rd1, %rd1, %out; add.u64 %rd1, %rd1, 4096;
    st.global.v4.u32 [%rd1], {7, %t, 9, %t};
    ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
    mov.u64 %rd2, 5;
    st.global.v2.u8 [%rd1], {3, %rd2};
    ld.global.u16 %r5, [%rd1];
    add.u32 %r1, %r1, %r2; add.u32 %r3, %r3, %r4; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r5;
    st.global.u32 [%at], %r1;
    ret;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], 16 + 2 * i + 0x503);
}

TEST_P(RunTest, AtomicAdditionFlushesInGlobalMemoryAlone) {
  const auto out = Go(R"(
    .shared .b32 box;
    st.shared.u32 [box], 5;
    mov.f32 %f1, 0f00000003;
    setp.eq.u32 %p1, %t, 0;
    @%p1 st.global.u32 [%out+1024], 5;
    @%p1 atom.global.add.f32 %f2, [%out+1024], %f1;
    @%p1 atom.shared.add.f32 %f3, [box], %f1;
    ld.shared.u32 %r1, [box];
    st.global.u32 [%at], %r1;
    ret;)");
  EXPECT_EQ(*device_.Array<uint32_t>(1024), 0u);
  EXPECT_EQ(out[0], 8u);
}

TEST_P(RunTest, WideAtomicsAndCountingDown) {
  const auto out = Go(R"(
    cvt.u64.u32 %rd1, %t;
    add.u64 %rd2, %rd1, 0x100000000;
    atom.global.add.u64 %rd3, [%out+1024], 0x100000001;
    atom.global.max.u64 %rd4, [%out+1032], %rd2;
    neg.s64 %rd5, %rd1;
    atom.global.min.s64 %rd6, [%out+1040], %rd5;
    atom.global.xor.b64 %rd7, [%out+1048], %rd2;
    atom.global.exch.b64 %rd8, [%out+1056], %rd2;
    setp.eq.u32 %p1, %t, 31;
    atom.global.cas.b64 %rd9, [%out+1064], %rd1, %rd2;
    atom.global.dec.u32 %r1, [%out+1072], 5;
    st.global.u32 [%at], %r1;
    ret;)");
  const uint64_t* cells = device_.Array<uint64_t>(1024);
  EXPECT_EQ(cells[0], 32u * 0x100000001);
  EXPECT_EQ(cells[1], 0x10000001fu);
  EXPECT_EQ(cells[2], uint64_t{0} - 31);
  EXPECT_EQ(cells[3], 0u);
  EXPECT_EQ(cells[4], 0x10000001fu);
  EXPECT_EQ(cells[5], 0x100000000u);
  uint32_t count = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], count);
    count = count == 0 ? 5 : count - 1;
  }
}

TEST_P(RunTest, LocalMemoryEndsWhereItEnds) {
  const std::string local = ".local .align 4 .b8 mine[16]; mov.u32 %r1, mine; ";
  Fault fault;
  EXPECT_EQ(Fails(local + "ld.local.u32 %r2, [%r1+12]; ret;"), Stop::kDone);
  EXPECT_EQ(Fails(local + "ld.local.u32 %r2, [%r1+16]; ret;", &fault), Stop::kIllegalAddress);
  EXPECT_EQ(fault.address, 16u);
  EXPECT_EQ(Fails(local + "st.local.u32 [%r1-4], %t; ret;"), Stop::kIllegalAddress);
  EXPECT_EQ(Fails(local + "cvta.local.u64 %rd1, mine; add.u64 %rd1, %rd1, 4096;"
                          "st.u32 [%rd1], %t; ret;"),
            Stop::kIllegalAddress);
}

TEST_P(RunTest, AddressesOf32BitsWrapWithTheirDisplacement) {
  // Uniform, scattered, a run, by some lanes only, and copied asynchronously.
  const auto out = Go(R"(
    .shared .align 16 .b32 box[64];
    shl.b32 %r1, %t, 2;
    st.shared.u32 [%r1], %t;
    bar.sync 0;
    mov.u32 %r2, 0xfffffff8;
    ld.shared.u32 %r3, [%r2+12];
    xor.b32 %r4, %t, 5; shl.b32 %r4, %r4, 2; sub.u32 %r4, %r4, 128;
    ld.shared.u32 %r5, [%r4+128];
    sub.u32 %r6, %r1, 128;
    ld.shared.u32 %r7, [%r6+128];
    mov.u32 %r8, 0;
    setp.lt.u32 %p1, %t, 7;
    @%p1 ld.shared.u32 %r8, [%r4+128];
    setp.eq.u32 %p2, %t, 0;
    @%p2 st.global.u32 [%out+1024], 77;
    @%p2 cp.async.ca.shared.global [%r2+204], [%out+1024], 4;
    bar.sync 0;
    ld.shared.u32 %r9, [196];
    add.u32 %r3, %r3, %r9;
    mad.lo.u32 %r3, %r3, 32, %r5; mad.lo.u32 %r3, %r3, 32, %r7; mad.lo.u32 %r3, %r3, 32, %r8;
    st.global.u32 [%at], %r3;
    ret;)");
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], ((78 * 32 + (i ^ 5)) * 32 + i) * 32 + (i < 7 ? i ^ 5 : 0)) << i;
  }
}

TEST_P(RunTest, InnerScopesHideOuterNames) {
  const auto out = Go(R"(
    .reg .b32 %x1;
    mov.u32 %x1, 3;
    { .reg .b32 %x<4>; mov.u32 %x1, 5; mov.u32 %r2, %x1; }
    mad.lo.u32 %r2, %r2, 10, %x1;
    st.global.u32 [%at], %r2;
    ret;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], 53u);
}

TEST_P(RunTest, PlacesInVariablesAndConstantMemory) {
  const auto program = MustCompile(R"(
.version 9.0
.target sm_80
.address_size 64
.global .align 4 .u32 list[4] = {1, 2, 3, 4};
.const .align 4 .u32 fixed[2] = {10, 20};
.extern .shared .align 4 .b8 more[];
.visible .entry k(.param .u64 result) {)" +
                                   std::string(kPrologue) + R"(
    .shared .align 4 .b32 box[4];
    st.shared.u32 box[2], 7;
    mov.u32 %r1, box+8; ld.shared.u32 %r2, [%r1];
    mov.u64 %rd1, list+8; ld.global.u32 %r3, [%rd1]; ld.global.u32 %r4, list[3];
    mov.u64 %rd2, more+4; st.shared.u32 [%rd2], 9; ld.shared.u32 %r5, [more+4];
    mov.u64 %rd3, fixed+4;
    isspacep.const %p1, %rd3; isspacep.global %p2, %rd3; isspacep.const %p3, %rd1;
    isspacep.global %p4, %rd1;
    selp.u32 %r6, 1, 0, %p1; selp.u32 %r7, 2, 0, %p2; selp.u32 %r8, 4, 0, %p3;
    selp.u32 %r9, 8, 0, %p4;
    add.u32 %r6, %r6, %r7; add.u32 %r6, %r6, %r8; add.u32 %r6, %r6, %r9;
    mad.lo.u32 %r6, %r6, 10, %r2; mad.lo.u32 %r6, %r6, 10, %r3; mad.lo.u32 %r6, %r6, 10, %r4;
    mad.lo.u32 %r6, %r6, 10, %r5;
    st.global.u32 [%at], %r6;
    ret; })");
  ASSERT_NE(program, nullptr);
  program->WriteImage(device_.Array<uint8_t>(8192), device_.At(8192));
  MustRun(*program, device_, {.shared = 64, .image = device_.At(8192)}, Params().Add(device_.At(0)),
          GetParam());
  EXPECT_EQ(*device_.Array<uint32_t>(0), 97349u);
}

TEST_P(RunTest, OneRegisterInBraces) {
  const auto out = Go(R"(
    @%p1 ld.global.b32 { %r1 }, [ %out + 0 ];
    ld.global.b32 { %r1 }, [ %out + 1024 ];
    add.u32 %r1, %r1, %t;
    st.global.b32 [ %at + 0 ], { %r1 };
    ret;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i);
}

TEST_P(RunTest, CalleesCallOthers) {
  const std::string text = R"(
.version 6.3
.target sm_70
.address_size 64
.func (.reg .b32 r) twice(.reg .b32 x) { add.u32 r, x, x; ret; }
.func (.reg .b32 r) odd(.reg .b32 x)
{
  .reg .pred %q; .reg .b32 %a<3>;
  and.b32 %a1, x, 1; setp.eq.u32 %q, %a1, 0;
  mov.u32 r, x;
  @%q ret;
  call (r), twice, (x);
  call (r), twice, (r);
  ret;
}
.visible .entry k(.param .u64 result)
{)" + std::string(kPrologue) +
                           R"(
  call (%r1), odd, (%t);
  setp.lt.u32 %p1, %t, 9;
  @%p1 call (%r1), twice, (%r1);
  st.global.u32 [%at], %r1;
  ret; })";
  const auto program = MustCompile(text);
  ASSERT_NE(program, nullptr);
  MustRun(*program, device_, {}, Params().Add(device_.At(0)), GetParam());
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(device_.Array<uint32_t>(0)[i], (i % 2 ? 4 * i : i) * (i < 9 ? 2 : 1)) << i;
  }
}

TEST_P(RunTest, ModuleVariables) {
  const auto program = MustCompile(R"(
.version 6.3
.target sm_70
.address_size 64
.const .align 4 .u32 table[4] = {10, 20, 30, 40};
.global .align 8 .u64 where = table;
.global .f32 scale = 0f40000000;
.visible .entry k(.param .u64 result) {)" +
                                   std::string(kPrologue) + R"(
  ld.global.u64 %rd1, [where];
  ld.const.u32 %r1, [table+4];
  ld.u32 %r2, [%rd1+12];
  add.u32 %r1, %r1, %r2;
  cvt.rn.f32.u32 %f1, %r1; ld.global.f32 %f2, [scale]; mul.f32 %f1, %f1, %f2;
  cvt.rzi.u32.f32 %r1, %f1;
  st.global.u32 [%at], %r1;
  ret; })");
  ASSERT_NE(program, nullptr);
  ASSERT_NE(program->FindVariable("scale"), nullptr);
  EXPECT_EQ(program->FindVariable("scale")->size, 4u);
  program->WriteImage(device_.Array<uint8_t>(8192), device_.At(8192));
  MustRun(*program, device_, {.image = device_.At(8192)}, Params().Add(device_.At(0)), GetParam());
  EXPECT_EQ(device_.Array<uint32_t>(0)[31], 120u);
}

TEST_P(RunTest, FaultsNameTheAddress) {
  Fault fault;
  EXPECT_EQ(Fails("mov.u64 %rd1, 64; ld.global.u32 %r1, [%rd1]; ret;", &fault),
            Stop::kIllegalAddress);
  EXPECT_EQ(fault.address, 64u);
  EXPECT_NE(fault.what.find("line"), std::string::npos);
  EXPECT_EQ(Fails("st.global.u32 [%at+2], %t; ret;", &fault), Stop::kMisalignedAddress);
  EXPECT_EQ(fault.address, device_.At(2));
  device_.Forbid(1, false, true);
  EXPECT_EQ(Fails("ld.global.u32 %r1, [%at+4096]; ret;"), Stop::kDone);
  EXPECT_EQ(Fails("st.global.u32 [%at+4096], %t; ret;"), Stop::kIllegalAddress);
  EXPECT_EQ(Fails("st.global.u32 [%at+4032], %t; ret;", &fault), Stop::kIllegalAddress);
  EXPECT_EQ(fault.address, device_.At(4096));
  EXPECT_EQ(Fails("mul.wide.u32 %rd1, %t, 512; add.u64 %rd1, %rd1, %out;"
                  "st.global.u32 [%rd1], %t; ret;"),
            Stop::kIllegalAddress);
  EXPECT_EQ(Fails("mov.u32 %r1, 100000; ld.shared.u32 %r2, [%r1]; ret;"), Stop::kIllegalAddress);
  EXPECT_EQ(Fails("mov.u64 %rd1, -4; ld.shared.u32 %r2, [%rd1]; ret;"), Stop::kIllegalAddress);
  EXPECT_EQ(Fails("mov.u64 %rd1, -4; ld.global.u32 %r2, [%rd1]; ret;"), Stop::kIllegalAddress);
  EXPECT_EQ(Fails("trap; ret;"), Stop::kTrap);
  // Lanes that do not take part may hold any address.
  EXPECT_EQ(Fails("setp.eq.u32 %p1, %t, 3; mov.u64 %rd1, 1; selp.b64 %rd1, %out, %rd1, %p1;"
                  "@%p1 st.global.u32 [%rd1], %t; ret;"),
            Stop::kDone);
}

TEST_P(RunTest, EndlessLoopYieldsAndCanBeLeft) {
  const auto program = MustCompile(Body("LOOP: bra LOOP;"));
  ASSERT_NE(program, nullptr);
  Execution execution =
      MakeExecution(*program, device_, {}, Params().Add(device_.At(0)), GetParam());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(execution.Run([] { return true; }), Stop::kYielded);
}

TEST_P(RunTest, YieldsDoNotChangeResults) {
  const auto program = MustCompile(Body(R"(
    .shared .b32 sum;
    mov.u32 %r1, 0; mov.u32 %r2, 0;
  LOOP:
    mad.lo.u32 %r2, %r2, 1664525, %t;
    add.u32 %r1, %r1, 1;
    shl.b32 %r3, %t, 5;
    setp.lt.u32 %p1, %r1, %r3;
    @%p1 bra LOOP;
    mov.u32 %r5, %ctaid.x;
    bar.sync 0;
    atom.shared.add.u32 %r4, [sum], %r2;
    bar.sync 0;
    ld.shared.u32 %r4, [sum];
    mul.wide.u32 %rd1, %r5, 512; add.u64 %at, %at, %rd1;
    st.global.u32 [%at], %r4;
    ret;)"));
  ASSERT_NE(program, nullptr);
  const Shape shape{.grid = {5, 1, 1}, .block = {100, 1, 1}};
  std::vector<uint8_t> results[2];
  for (const bool yields : {false, true}) {
    TestDevice device;
    Execution execution =
        MakeExecution(*program, device, shape, Params().Add(device.At(0)), GetParam());
    int count = 0;
    Stop stop;
    do {
      stop = execution.Run([&] { return yields; });
      ++count;
    } while (stop == Stop::kYielded);
    EXPECT_EQ(stop, Stop::kDone);
    EXPECT_EQ(count > 5, yields);
    results[yields].assign(device.Array<uint8_t>(0), device.Array<uint8_t>(4096));
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace tandem::ptx
