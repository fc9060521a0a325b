// What the front end accepts, what it refuses and how it words that, and that no text breaks it.
#include <gtest/gtest.h>

#include <random>

#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

std::string Refused(const std::string& body) {
  return CompileLog(Module("", body));
}

TEST(Compile, LaysParametersOut) {
  const auto program =
      MustCompile(Module(".param .u32 a, .param .u64 .ptr .global .align 4 b, .param .u8 c,"
                         " .param .align 8 .b8 d[12], .param .f32 e",
                         "ret;"));
  ASSERT_NE(program, nullptr);
  const Kernel* kernel = program->FindKernel("k");
  ASSERT_NE(kernel, nullptr);
  ASSERT_EQ(kernel->params.size(), 5u);
  EXPECT_EQ(kernel->params[1].offset, 8u);
  EXPECT_EQ(kernel->params[2].offset, 16u);
  EXPECT_EQ(kernel->params[3].offset, 24u);
  EXPECT_EQ(kernel->params[3].size, 12u);
  EXPECT_EQ(kernel->params[4].offset, 36u);
  EXPECT_EQ(kernel->param_bytes, 40u);
  EXPECT_EQ(program->FindKernel("x"), nullptr);
}

TEST(Compile, ReadsDirectivesAndComments) {
  const auto program = MustCompile(R"(
    /* a comment
       of two lines */ .version 7.5 // and another
    .target sm_86, debug
    .address_size 64
    .file 1 "a b.cu"
    .section .debug_abbrev { .b8 1 .b8 2 }
    .extern .func vprintf(.param .b64 f);
    .visible .entry k() .maxntid 128, 2, 1 .minnctapersm 2 {
      .pragma "nounroll";
      .loc 1 2 3
      .reg .u32 a, b, %r<3>;
      { .reg .u32 a; mov.u32 a, 017; L: mov.u32 b, 0b101; }
      { L: mov.u32 b, 0x1FU; bra L; }
      ret;
    })");
  ASSERT_NE(program, nullptr);
  EXPECT_EQ(program->kernels()[0].max_threads, 256u);
}

TEST(Compile, RefusalsNameLineAndInstruction) {
  const std::string log = Refused(
      ".reg .f32 %f<9>; .reg .b64 %rd1;\n"
      "tex.cube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f6, %f7, %f7}];");
  EXPECT_NE(log.find("line 7"), std::string::npos) << log;
  EXPECT_NE(log.find("tex.cube.v4.f32.f32"), std::string::npos) << log;

  const char* const kBad[] = {
      "add.s32 %r1, %r2, %r3;",
      ".reg .b32 %r<3>; add.s32 %r1, %r2;",
      ".reg .b32 %r<3>; add.s32 %r1, %r2, %r3;",
      ".reg .b32 %r<3>; add.q32 %r1, %r2, %r2;",
      ".reg .b32 %r<3>; add.lo.s32 %r1, %r2, %r2;",
      ".reg .b32 %r<3>; .reg .b64 %d; add.s32 %r1, %d, %r2;",
      ".reg .b32 %r<3>; mul.s32 %r1, %r2, %r2;",
      ".reg .b32 %r<3>; mov.u32 %r1, %nosuch;",
      ".reg .b32 %r<3>; mov.u32 %r1, nosuch;",
      ".reg .b32 %r<3>; ld.global.u32 %r1, %r2;",
      ".reg .b32 %r<3>; @%r1 ret;",
      "bra NOWHERE;",
      "L: L: ret;",
      "call f;",
      ".reg .b32 %r<0>;",
      ".reg .b32 x; .reg .b32 x;",
      ".shared .b8 big[1000000]; ret;",
      ".local .b8 big[1000000]; ret;",
      ".reg .b32 %r<3>; ld.param.u32 %r1, [nothing];",
      ".reg .b32 %r<3>; mov.u32 %r1, 99999999999999999999999;",
      ".reg .b32 %r<3>; mov.u32 %r1, 0f12;",
      "ret",
      "ret; }",
      "{ ret;",
      "/* open",
      "foo.bar;",
      "\x01\x02",
  };
  for (const char* body : kBad) {
    SCOPED_TRACE(body);
    EXPECT_EQ(Refused(body).substr(0, 5), "line ");
  }
}

TEST(Compile, RefusesOtherModules) {
  for (const char* text : {"", "hello", ".version 6.3\n.target sm_70\n.address_size 32\n",
                           ".version 99.0\n", ".target sm_70\n", ".version 6.3\n.bogus\n",
                           ".version 6.3\n.global .b8 x[99999999999999];\n"}) {
    SCOPED_TRACE(text);
    EXPECT_NE(CompileLog(text), "");
  }
}

// Both lists agree with what NVIDIA's assembler takes and refuses.
TEST(Compile, TakesModifiersWhereTheInstructionHasThem) {
  for (const char* instruction : {
           "mul.ftz.rn.f32 %f1, %f2, %f3;",
           "add.f64.rn %fd1, %fd2, %fd3;",
           "mad.hi.sat.s32 %r1, %r2, %r3, %r4;",
           "madc.hi.cc.s64 %rd1, %rd2, %rd3, %rd4;",
           "mad.rn.f32 %f1, %f2, %f3, %f4;",
           "div.full.f32 %f1, %f2, %f3;",
           "rcp.approx.ftz.f64 %fd1, %fd2;",
           "rsqrt.approx.ftz.f64 %fd1, %fd2;",
           "max.NaN.ftz.f32 %f1, %f2, %f3;",
           "shr.b32 %r1, %r2, 1;",
           "slct.u32.f32 %r2, %r3, %r4, %f1;",
           "set.eq.u32.f16 %r1, %h1, %h2;",
           "set.lt.ftz.s32.f32 %r1, %f1, %f2;",
           "setp.eq.b32.and %p1, %r1, %r2, !%p2;",
           "mov.pred %p1, !%p2;",
           "mov.b32 %r1, 0f3F800000;",
           "mov.b64 %rd1, 1.0;",
           "and.b32 %r1, %r2, 0f3F800000;",
           "selp.b32 %r1, 0f3F800000, 0f00000000, !%p1;",
           "cvt.rni.f32.f32 %f1, %f2;",
           "cvt.rn.f64.s32 %fd1, %r1;",
           "cvt.rzi.ftz.sat.u32.f32 %r1, %f1;",
           "cvt.rn.ftz.f16.f32 %h1, %f1;",
           "cvt.f32.ftz.f16 %f1, %h1;",
           "cvt.sat.f16.f16 %h1, %h2;",
           "cvt.rzi.sat.f64.f64 %fd1, %fd2;",
           "cvt.ftz.f64.f32 %fd1, %f1;",
           "cvt.rn.ftz.f32.f64 %f1, %fd1;",
           "cvta.shared::cta.u64 %rd1, %rd2;",
           "ld.u32.global %r1, [%rd1];",
           "ld.global.cg.nc.u32 %r1, [%rd1];",
           "ld.relaxed.gpu.global.L1::no_allocate.u32 %r1, [%rd1];",
           "ld.u32 %r1, [gv];",
           "ld.u32 %r1, [sv];",
           "ld.const.u32 %r1, [cv];",
           "ldu.global.u32 %r1, [%rd1];",
           "st.global.b32 [%rd1], 0f3F800000;",
           "st.global.v2.u8 [%rd1], {1, %r2};",
           "atom.global.relaxed.gpu.add.u32 %r1, [%rd1], 1;",
           "atom.add.u32 %r1, [gv], 1;",
           "red.shared.add.f32 [sv], %f1;",
           "bar.cta.sync 0;",
           "barrier.cta.sync.aligned 0;",
           "barrier.red.or.pred %p1, 0, !%p2;",
           "membar.sys;",
           "fence.gpu;",
           "fence.acq_rel.gpu;",
           "prefetch.global.L2 [%rd1];",
           "prefetchu.L1 [%rd1];",
           "nanosleep.u32 %r1;",
           "pmevent 3;",
           "@!%p1 bra.uni L;",
       }) {
    SCOPED_TRACE(instruction);
    MustCompile(WithRegisters(instruction));
  }
}

TEST(Compile, RefusesModifiersThatTheInstructionLacks) {
  for (const char* instruction : {
           "and.u32 %r1, %r2, %r3;",
           "add.b32 %r1, %r2, %r3;",
           "add.s32.u32 %r1, %r2, %r3;",
           "add.rn.rz.f32 %f1, %f2, %f3;",
           "add.approx.f32 %f1, %f2, %f3;",
           "add.noftz.f32 %f1, %f2, %f3;",
           "add.rz.f16 %h1, %h2, %h3;",
           "add.sat.u32 %r1, %r2, %r3;",
           "min.sat.s32 %r1, %r2, %r3;",
           "neg.u32 %r1, %r2;",
           "mul.u32 %r1, %r2, %r3;",
           "add.cc.u16 %h1, %h2, %h3;",
           "fma.f32 %f1, %f2, %f3, %f4;",
           "mad.f64 %fd1, %fd2, %fd3, %fd4;",
           "div.f32 %f1, %f2, %f3;",
           "div.rn.sat.f32 %f1, %f2, %f3;",
           "div.full.rn.f32 %f1, %f2, %f3;",
           "sqrt.f32 %f1, %f2;",
           "sqrt.approx.f64 %fd1, %fd2;",
           "rcp.approx.f64 %fd1, %fd2;",
           "sin.f32 %f1, %f2;",
           "tanh.approx.ftz.f32 %f1, %f2;",
           "copysign.ftz.f32 %f1, %f2, %f3;",
           "max.NaN.f64 %fd1, %fd2, %fd3;",
           "setp.lt.b32 %p1, %r1, %r2;",
           "setp.lo.s32 %p1, %r1, %r2;",
           "setp.equ.s32 %p1, %r1, %r2;",
           "selp.pred %p1, %p2, %p3, %p4;",
           "slct.ftz.f32.s32 %f1, %f2, %f3, %r1;",
           "shl.u32 %r1, %r2, 3;",
           "shf.l.b32 %r1, %r2, %r3, %r4;",
           "cvt.f32.u32 %f1, %r1;",
           "cvt.u32.f32 %r1, %f1;",
           "cvt.f32.f64 %f1, %fd1;",
           "cvt.rn.f64.f32 %fd1, %f1;",
           "cvt.rn.f32.f32 %f1, %f2;",
           "cvt.rzi.u32.u32 %r1, %r2;",
           "cvt.rzi.ftz.u32.f64 %r1, %fd1;",
           "cvt.ftz.f32.s32 %f1, %r1;",
           "cvt.rzi.f64.f32 %fd1, %f1;",
           "cvt.b32.u16 %r1, %h1;",
           "st.global.nc.u32 [%rd1], %r1;",
           "st.const.u32 [cv], %r1;",
           "ldu.shared.u32 %r1, [%rd1];",
           "ld.global.foo.u32 %r1, [%rd1];",
           "ld.global.v2.u8 {%h1, %r2}, [%rd1];",
           "atom.global.exch.f32 %f1, [%rd1], %f2;",
           "atom.global.and.u32 %r1, [%rd1], %r2;",
           "atom.global.min.f32 %f1, [%rd1], %f2;",
           "atom.global.max.f64 %fd1, [%rd1], %fd2;",
           "atom.global.dec.s32 %r1, [%rd1], %r2;",
           "atom.const.add.u32 %r1, [%rd1], %r2;",
           "atom.volatile.global.add.u32 %r1, [%rd1], 1;",
           "red.global.exch.b32 [%rd1], %r2;",
           "red.global.cas.b32 [%rd1], %r2, %r3;",
           "shfl.sync.idx.f32 %f1, %f2, 1, 31, -1;",
           "vote.sync.ballot.u32 %r1, %p1, -1;",
           "bar.warp.arrive -1;",
           "bar.sync.aligned 0;",
           "bar.arrive 0;",
           "bar.red.popc.b32 %r1, 0, %p1;",
           "membar.foo;",
           "membar;",
           "membar.gl 1;",
           "fence.acq_rel;",
           "prefetch.shared.L1 [%rd1];",
           "prefetch.global.L3 [%rd1];",
           "nanosleep.u32 100, 200;",
           "exit.uni;",
           "trap.foo;",
       }) {
    SCOPED_TRACE(instruction);
    EXPECT_EQ(CompileLog(WithRegisters(instruction)).substr(0, 5), "line ");
  }
}

TEST(Compile, RefusesOperandsThatTheInstructionCannotHave) {
  for (const char* instruction : {
           "add.u32 %r1, %r2, !%r3;",
           "add.u32 !%r1, %r2, %r3;",
           "mov.u32 %r1, !%tid.x;",
           "mov.u32 %r1, !sv;",
           "mov.u32 %r1, 0f3F800000;",
           "mov.s32 %r1, 1.0;",
           "add.u32 %r1, %r2, 0f3F800000;",
           "add.f32 %f1, %f2, 1;",
           "st.global.u32 [%rd1], 0f3F800000;",
           "st.global.f32 [%rd1], 1;",
           "bra !L;",
           "ld.local.u32 %r1, [sv];",
           "ld.global.u32 %r1, [cv];",
           "ld.const.u32 %r1, [gv];",
           "st.global.u32 [cv], %r1;",
           "st.u32 [cv], %r1;",
           "ld.param.u32 %r1, [lv];",
           "ld.local.u32 %r1, [prm];",
           "ld.global.u32 %r1, [sv];",
           "st.param.u64 [prm], %rd1;",
           "atom.shared.add.u32 %r1, [gv], 1;",
           "atom.add.u32 %r1, [cv], 1;",
           "lop3.b32 %r1, %r2, %r3, %r4, 256;",
       }) {
    SCOPED_TRACE(instruction);
    EXPECT_EQ(CompileLog(WithRegisters(instruction)).substr(0, 5), "line ");
  }
}

TEST(Compile, RefusesRecursionAndDeepCalls) {
  EXPECT_NE(CompileLog(".version 6.3\n.target sm_70\n.address_size 64\n"
                       ".func g;\n.func f { call g; ret; }\n.func g { call f; ret; }\n"
                       ".entry k() { call f; ret; }")
                .find("recursion"),
            std::string::npos);
  EXPECT_NE(CompileLog(Modules(".func f { call f; ret; }\n.entry k() { call f; ret; }"))
                .find("line 4: call: recursion"),
            std::string::npos);
  std::string deep = ".version 6.3\n.target sm_70\n.address_size 64\n.func f0 { ret; }\n";
  for (int i = 1; i < 1000; ++i) {
    deep += ".func f" + std::to_string(i) + " { call f" + std::to_string(i - 1) + "; ret; }\n";
  }
  EXPECT_NE(CompileLog(deep).find("too deeply"), std::string::npos);
}

TEST(Compile, PartsAreCheckedWithoutWhatTheyAreLinkedWith) {
  const std::string others = R"(.extern .global .align 4 .u32 base; .extern .global .b8 list[];
    .extern .func (.param .b32 result) twice(.param .b32 x); .func later(); .alias other, real;
    .func other(); .func real() { ret; }
    .visible .entry k() { .reg .b32 %r<3>; .reg .b64 %rd<3>;
      ld.global.u32 %r1, [base]; ld.global.u8 %r2, [list]; mov.u64 %rd1, twice;
      { .param .b32 x; .param .b32 y; st.param.b32 [x], %r1;
        call (y), twice, (x); ld.param.b32 %r2, [y]; }
      call later; call other;
      %s ret; }
    .func later() { ret; } .global .align 4 .u32 base = 5;)";
  const auto with = [&](const std::string& instruction) {
    return Modules(std::string(others).replace(others.find("%s"), 2, instruction));
  };
  EXPECT_TRUE(CheckPart(with("")).ok());
  EXPECT_NE(CompileLog(with("")), "");  // alone it is not whole
  for (const char* bad : {"call twice;", "call nothing;", "ld.global.u32 %r1, [nothing];",
                          "add.q32 %r1, %r1, %r1;"}) {
    const Status status = CheckPart(with(bad));
    EXPECT_FALSE(status.ok()) << bad;
    if (!status.ok()) {
      EXPECT_EQ(status.error().message.substr(0, 7), "line 12") << status.error().message;
    }
  }
}

TEST(Compile, AnyKernelFitsTheLargestBlockItAllows) {
  std::string body = ".reg .b32 %r<400>;\n";
  for (int i = 0; i < 400; ++i) body += "mov.u32 %r" + std::to_string(i) + ", 1;\n";
  const std::string module = Module("", body + "ret;");
  EXPECT_EQ(MustCompile(module)->kernels()[0].registers, 64u);
  std::string small = module;
  small.insert(small.find(')') + 1, " .maxntid 128, 1, 1");
  EXPECT_EQ(MustCompile(small)->kernels()[0].registers, 255u);
  EXPECT_EQ(MustCompile(Module("", "ret;"))->kernels()[0].registers, 1u);
  EXPECT_EQ(Compile(module, 40).value()->kernels()[0].registers, 40u);
  small.insert(small.find(')') + 1, " .maxnreg 32");  // the kernel's own limit wins
  EXPECT_EQ(Compile(small, 40).value()->kernels()[0].registers, 32u);
}

// The image of a module whose variables are u32, as numbers.
std::vector<uint32_t> ImageOf(const std::string& variables) {
  const auto program = MustCompile(Modules(variables));
  if (program == nullptr) return {};
  std::vector<uint32_t> image(program->image_bytes() / sizeof(uint32_t));
  program->WriteImage(reinterpret_cast<uint8_t*>(image.data()), 0);
  return image;
}

TEST(Compile, BracesPadTheRowsOfArrays) {
  using Image = std::vector<uint32_t>;
  EXPECT_EQ(ImageOf(".global .u32 n[2][3] = {{1, 2}, {3}};"), Image({1, 2, 0, 3, 0, 0}));
  EXPECT_EQ(ImageOf(".global .u32 n[2][3] = {1, 2, 3, 4};"), Image({1, 2, 3, 4, 0, 0}));
  EXPECT_EQ(ImageOf(".global .u32 n[][2] = {{1}, {3}, {5, 6}};"), Image({1, 0, 3, 0, 5, 6}));
  EXPECT_EQ(ImageOf(".global .u32 n[] = {7, 8, 9};"), Image({7, 8, 9}));
  EXPECT_EQ(ImageOf(".global .align 8 .v2 .u32 n[2] = {{1}, {3, 4}};"), Image({1, 0, 3, 4}));
  EXPECT_EQ(ImageOf(".global .u32 n[2][2][2] = {{{1}}, {{2}, {3}}};"),
            Image({1, 0, 0, 0, 2, 0, 3, 0}));
  EXPECT_EQ(ImageOf(".global .u32 n = {5};"), Image({5}));
  for (const char* bad : {"n[2][3] = {1, 2, {3}}", "n[2] = {1, 2, 3}", "n[2][2] = {{1, 2, 3}}",
                          "n[1][2] = {{1}, {2}}", "n[2] = {{1}, {2}}", "n = {{1}}", "n[2] = {",
                          "n[][0] = {1}", "n[2] = {1 2}", "n[2] = {1}}"}) {
    SCOPED_TRACE(bad);
    EXPECT_EQ(CompileLog(Modules(std::string(".global .u32 ") + bad + ";")).substr(0, 5), "line ");
  }
}

TEST(Compile, SizesThatOverflowAreRefused) {
  for (const char* bad : {".global .u64 x[2305843009213693952];", ".global .b8 x[1099511627777];",
                          ".global .u32 x[1099511627776][16777216];",
                          ".global .u32 x[0][1099511627776][1099511627776];",
                          ".global .align 512 .b8 x[8];", ".const .align 3 .b8 x[8];"}) {
    SCOPED_TRACE(bad);
    EXPECT_EQ(CompileLog(Modules(bad)).substr(0, 5), "line ");
  }
}

TEST(Compile, TextIsBoundedInTime) {
  const std::string zeros(1000000, '0');
  EXPECT_NE(Refused(".reg .b32 %r<4>; mov.u32 %r" + zeros + ", 1;"), "");
  EXPECT_NE(Refused(std::string(1000, '{')).find("too deeply"), std::string::npos);
  std::string dimensions, braces = std::string(100000, '{');
  for (int i = 0; i < 100000; ++i) dimensions += "[1]";
  EXPECT_NE(CompileLog(Modules(".global .u32 x" + dimensions + " = " + braces + "1"))
                .find("too many dimensions"),
            std::string::npos);
  // Many kernels that all call one long function.
  std::string text = ".func f {\n.reg .b32 %r<2>;\n";
  for (int i = 0; i < 10000; ++i) text += "add.u32 %r1, %r1, 1;\n";
  text += "ret;\n}\n";
  for (int i = 0; i < 10000; ++i) text += ".entry k" + std::to_string(i) + "() { call f; ret; }\n";
  EXPECT_NE(CompileLog(Modules(text)).find("too large"), std::string::npos);
}

TEST(Compile, NewerVersionsHaveACodeOfTheirOwn) {
  const auto newer = Compile(".version 10.0\n.target sm_70\n");
  ASSERT_FALSE(newer.ok());
  EXPECT_EQ(newer.error().code, ErrorCode::kVersion);
  const auto bad = Compile(".version x\n");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::kInvalid);
}

TEST(Compile, FunctionsThatNobodyCallsAreCheckedToo) {
  const std::string log =
      CompileLog(Modules(".func unused { add.q32 a, b, c; ret; }\n.visible .entry k() { ret; }"));
  EXPECT_NE(log.find("line 4"), std::string::npos) << log;
}

TEST(Compile, HugeRegisterRangesCostNothing) {
  EXPECT_NE(MustCompile(Module("", ".reg .b32 %r<4000000000>; mov.u32 %r3999999999, 1; ret;")),
            nullptr);
}

TEST(Compile, SurvivesMutations) {
  const std::string sample = Module(".param .u64 out, .param .align 4 .b8 s[8]", R"(
  .reg .pred %p<3>; .reg .b16 %h<3>; .reg .b32 %r<9>; .reg .f32 %f<4>; .reg .b64 %rd<5>;
  .shared .align 4 .b8 box[256];
  ld.param.u64 %rd1, [out]; cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x; setp.lt.and.s32 %p1|%p2, %r1, 10, %p1;
  @!%p1 bra L;
  { .reg .b32 t; mov.b64 {t, %r2}, %rd1; mov.b32 %r3, {%h1, %h2}; }
  fma.rn.ftz.f32 %f1, %f2, 0f3F800000, 1.5; ld.global.v2.f32 {%f1, _}, [%rd2+-8];
L: bar.sync 0; shfl.sync.down.b32 %r4|%p2, %r1, 1, 31, -1; atom.shared.add.u32 %r5, [box+4], 1;
  cvt.rni.sat.s8.f32 %r6, %f1; lop3.b32 %r7, %r1, %r2, %r3, 0x96; st.shared.u8 [box], %r7;
  ret;)");
  ASSERT_NE(MustCompile(sample), nullptr);
  const uint32_t seed = Seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 4000; ++round) {
    std::string text = sample;
    for (size_t edits = 1 + random() % 4; edits > 0 && text.size() > 1; --edits) {
      const size_t at = random() % text.size();
      const size_t length = 1 + random() % 12;
      switch (random() % 5) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), length));
          break;
        case 3:
          text.insert(at, std::to_string(random()));
          break;
        default:
          text.resize(at + 1);
          break;
      }
    }
    const auto program = Compile(text);
    if (!program.ok()) {
      EXPECT_NE(program.error().message, "");
    }
  }
}

}  // namespace
}  // namespace tandem::ptx
