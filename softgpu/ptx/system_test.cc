// What kernels call: functions with parameters by value, vprintf and __assertfail; and indexed
// branches, special registers and questions about addresses.
#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

class SystemTest : public KernelTest {};

INSTANTIATE_TEST_SUITE_P(Paths, SystemTest, ::testing::ValuesIn(Paths()));

std::string Bytes(const std::string& text) {
  std::string list;
  for (const char c : text) list += std::to_string(static_cast<int>(c)) + ", ";
  return "[" + std::to_string(text.size() + 1) + "] = {" + list + "0};\n";
}

// A call as compilers write it. The arguments lie in %rd1's local memory.
std::string PrintKernel(const std::string& format, const std::string& fill) {
  return ".version 6.3\n.target sm_70\n.address_size 64\n"
         ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n"
         ".global .align 1 .b8 format" +
         Bytes(format) + ".global .align 1 .b8 word" + Bytes("wörd") + R"(
.visible .entry k(.param .u64 result) {
  .local .align 8 .b8 depot[64];
  .reg .b64 %SP, %SPL, %out, %at, %rd<9>; .reg .b32 %t, %r<9>; .reg .f64 %fd<3>; .reg .pred %p<3>;
  mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL;
  ld.param.u64 %out, [result]; mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 4; add.s64 %at, %out, %at;
  )" + fill +
         R"(
  mov.u64 %rd1, format; cvta.global.u64 %rd2, %rd1; add.u64 %rd3, %SP, 0;
  { .reg .b32 temp_param_reg;
    .param .b64 param0; st.param.b64 [param0+0], %rd2;
    .param .b64 param1; st.param.b64 [param1+0], %rd3;
    .param .b32 retval0;
    call.uni (retval0), vprintf, (param0, param1);
    ld.param.b32 %r1, [retval0+0];
  }
  st.global.u32 [%at], %r1;
  ret;
})";
}

class Printing {
 public:
  Printing(TestDevice* device, const std::string& text, const Shape& shape, Path path)
      : program_(MustCompile(text)) {
    if (program_ == nullptr) return;
    program_->WriteImage(device->Array<uint8_t>(8192), device->At(8192));
    Shape placed = shape;
    placed.image = device->At(8192);
    Execution execution =
        MakeExecution(*program_, *device, placed, Params().Add(device->At(0)), path);
    stop = execution.Run(Never);
    what = execution.fault().what;
    output = execution.TakeOutput();
    assertions = execution.assertions();
  }
  Stop stop = Stop::kYielded;
  std::string what, output, assertions;

 private:
  std::shared_ptr<const Program> program_;
};

TEST_P(SystemTest, PrintsInOrder) {
  const Printing printing(&device_, PrintKernel("%u/%d %%\n", R"(
      mov.u32 %r2, %ctaid.x; st.local.u32 [%SPL], %r2; st.local.u32 [%SPL+4], %t;)"),
                          {.grid = {2, 1, 1}, .block = {33, 1, 1}}, GetParam());
  ASSERT_EQ(printing.stop, Stop::kDone) << printing.what;
  std::string expected;
  for (int block = 0; block < 2; ++block) {
    for (int i = 0; i < 33; ++i) {
      expected += std::to_string(block) + "/" + std::to_string(i) + " %\n";
    }
  }
  EXPECT_EQ(printing.output, expected);
  EXPECT_EQ(device_.Array<uint32_t>(0)[5], 2u);  // how many arguments there were
}

TEST_P(SystemTest, PrintsEveryType) {
  const Printing printing(&device_, PrintKernel("[%5d|%-6.2f|%s|%llx|%c|%*u|%.3e]", R"(
      st.local.u32 [%SPL], -7; mov.f64 %fd1, 0d4009000000000000; st.local.f64 [%SPL+8], %fd1;
      mov.u64 %rd4, word; cvta.global.u64 %rd4, %rd4; st.local.u64 [%SPL+16], %rd4;
      mov.u64 %rd4, 0xfedcba9876543210; st.local.u64 [%SPL+24], %rd4;
      st.local.u32 [%SPL+32], 65; st.local.u32 [%SPL+36], 4; st.local.u32 [%SPL+40], 9;
      st.local.f64 [%SPL+48], %fd1;)"),
                          {.block = {1, 1, 1}}, GetParam());
  ASSERT_EQ(printing.stop, Stop::kDone) << printing.what;
  EXPECT_EQ(printing.output, "[   -7|3.12  |wörd|fedcba9876543210|A|   9|3.125e+00]");
}

TEST_P(SystemTest, PrintsSmallNumbersAsSuch) {
  const Printing printing(&device_, PrintKernel("%hhx %hd %hu", R"(
      mov.u32 %r2, -2; st.local.u32 [%SPL], %r2;
      mov.u32 %r2, 0x18000; st.local.u32 [%SPL+4], %r2; st.local.u32 [%SPL+8], %r2;)"),
                          {.block = {1, 1, 1}}, GetParam());
  ASSERT_EQ(printing.stop, Stop::kDone) << printing.what;
  EXPECT_EQ(printing.output, "fe -32768 32768");
}

TEST_P(SystemTest, TextsMustBeThere) {
  const Printing printing(&device_, PrintKernel("%s", "st.local.u64 [%SPL], 12345;"), {},
                          GetParam());
  EXPECT_EQ(printing.stop, Stop::kIllegalAddress);
}

// No format makes the host read, or write, what is not there.
TEST_P(SystemTest, StrangeFormatsAreHarmless) {
  for (const char* format : {"%", "%q%n%", "%999999999d", "%.99999999f%l", "%#- +0s%s%s", "\n"}) {
    const Printing printing(&device_, PrintKernel(format, ""), {.block = {1, 1, 1}}, GetParam());
    EXPECT_TRUE(printing.stop == Stop::kDone || printing.stop == Stop::kIllegalAddress) << format;
  }
}

TEST_P(SystemTest, AssertionsNameThePlace) {
  const std::string text =
      ".version 6.3\n.target sm_70\n.address_size 64\n"
      ".extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l,"
      " .param .b64 n, .param .b64 s);\n"
      ".global .b8 m" +
      Bytes("x < 3") + ".global .b8 f" + Bytes("a.cu") + ".global .b8 n" + Bytes("void k()") + R"(
.visible .entry k(.param .u64 result) {
  .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p;
  mov.u32 %r1, %tid.x; setp.lt.u32 %p, %r1, 30; @%p bra OUT;
  mov.u64 %rd1, m; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, f; cvta.global.u64 %rd2, %rd2;
  mov.u64 %rd3, n; cvta.global.u64 %rd3, %rd3;
  { .param .b64 param0; st.param.b64 [param0+0], %rd1; .param .b64 param1;
    st.param.b64 [param1+0], %rd2; .param .b32 param2; st.param.b32 [param2+0], 12;
    .param .b64 param3; st.param.b64 [param3+0], %rd3; .param .b64 param4;
    st.param.b64 [param4+0], 1;
    call.uni __assertfail, (param0, param1, param2, param3, param4);
  }
OUT:
  ret;
})";
  const Printing printing(&device_, text, {.grid = {1, 2, 1}}, GetParam());
  EXPECT_EQ(printing.stop, Stop::kAssert);
  EXPECT_EQ(printing.assertions,
            "a.cu:12: void k(): block: [0,0,0], thread: [30,0,0] Assertion `x < 3` failed.\n"
            "a.cu:12: void k(): block: [0,0,0], thread: [31,0,0] Assertion `x < 3` failed.\n");
}

TEST_P(SystemTest, BreakpointsTrap) {
  EXPECT_EQ(Fails("brkpt; ret;"), Stop::kTrap);
}

// An array by value is the callee's own.
TEST_P(SystemTest, ArraysGoByValue) {
  const auto program = MustCompile(R"(.version 6.3
.target sm_70
.address_size 64
.func (.param .align 8 .b8 r[24]) change(.param .align 8 .b8 p[24], .param .b32 k) {
  .reg .b64 %rd<5>; .reg .b32 %r<3>;
  ld.param.u32 %r1, [k]; ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [p+8];
  cvt.u64.u32 %rd3, %r1; add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd1;
  st.param.b64 [p+0], %rd3;
  st.param.b64 [r+0], %rd1; st.param.b64 [r+8], %rd2; st.param.b64 [r+16], %rd3;
  ret;
}
.visible .entry k(.param .u64 result) {
  .reg .b64 %out, %at, %rd<9>; .reg .b32 %t;
  ld.param.u64 %out, [result]; mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 32;
  add.u64 %at, %at, %out;
  { .param .align 8 .b8 param0[24]; st.param.b64 [param0+0], 100; st.param.b64 [param0+8], 1000;
    st.param.b64 [param0+16], 0; .param .b32 param1; st.param.b32 [param1+0], %t;
    .param .align 8 .b8 retval0[24];
    call.uni (retval0), change, (param0, param1);
    ld.param.b64 %rd1, [retval0+0]; ld.param.b64 %rd2, [retval0+8]; ld.param.b64 %rd3, [param0+0];
  }
  st.global.u64 [%at], %rd1; st.global.u64 [%at+8], %rd2; st.global.u64 [%at+16], %rd3;
  ret;
})");
  ASSERT_NE(program, nullptr);
  MustRun(*program, device_, {}, Params().Add(device_.At(0)), GetParam());
  for (uint64_t i = 0; i < 32; ++i) {
    const uint64_t* out = device_.Array<uint64_t>(32 * i);
    EXPECT_EQ(out[0], 100 + i);
    EXPECT_EQ(out[1], 1100 + i);
    EXPECT_EQ(out[2], 100u);
  }
}

TEST_P(SystemTest, IndexedBranches) {
  const auto out = Go(R"(
    and.b32 %r1, %t, 3; setp.lt.u32 %p1, %t, 16; mov.u32 %r2, 77;
    table: .branchtargets ZERO, ONE, TWO, ZERO;
    @%p1 brx.idx %r1, table;
    bra DONE;
  ZERO: mov.u32 %r2, 10; bra.uni DONE;
  ONE: mov.u32 %r2, 11; bra.uni DONE;
  TWO: mov.u32 %r2, 12;
  DONE: st.global.u32 [%at], %r2; ret;)");
  const uint32_t kExpected[] = {10, 11, 12, 10};
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 16 ? kExpected[i & 3] : 77u) << i;
}

TEST_P(SystemTest, AddressesTellTheirSpace) {
  const auto out = Go(R"(
    .shared .b32 box; .local .b32 mine;
    mov.u64 %rd1, box; cvta.shared.u64 %rd1, %rd1; mov.u64 %rd2, mine; cvta.local.u64 %rd2, %rd2;
    isspacep.shared %p1, %rd1; isspacep.local %p2, %rd2; isspacep.global %p3, %out;
    isspacep.global %p4, %rd1; isspacep.shared %p5, %out;
    selp.u32 %r1, 1, 0, %p1; @%p2 add.u32 %r1, %r1, 2; @%p3 add.u32 %r1, %r1, 4;
    @%p4 add.u32 %r1, %r1, 8; @%p5 add.u32 %r1, %r1, 16;
    st.global.u32 [%at], %r1; ret;)");
  EXPECT_EQ(out[3], 7u);
}

TEST_P(SystemTest, SpecialRegistersThatCompilersName) {
  const auto out = Go(R"(
    mov.u32 %r1, %clusterid.x; mov.u32 %r2, %cluster_nctaid.y; mov.u32 %r3, %cluster_ctarank;
    mov.u32 %r4, %envreg3; mov.u32 %r5, %pm0; mov.u32 %r6, %clock_hi; mov.u32 %r7, %globaltimer_lo;
    mov.u32 %r8, %globaltimer_hi; mov.u64 %rd1, %clock64; mov.u32 %r9, %gridid;
    mov.u64 %rd2, %globaltimer; mov.u64 %rd3, %current_graph_exec; mov.u32 %r10, %nwarpid;
    add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5;
    cvt.u32.u64 %r11, %rd3; add.u32 %r1, %r1, %r11;
    setp.ne.u64 %p1, %rd2, 0; @%p1 add.u32 %r1, %r1, 10;
    st.global.u32 [%at], %r1; ret;)");
  EXPECT_EQ(out[0], 11u);
}

TEST_P(SystemTest, ClocksGoOn) {
  const auto out = Go(R"(
    mov.u64 %rd1, %clock64; mov.u32 %r1, %clock;
    mov.u32 %r3, 0;
  LOOP:
    add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 100000;
    @%p1 bra LOOP;
    mov.u32 %r2, %clock; mov.u64 %rd2, %clock64;
    setp.gt.u64 %p1, %rd2, %rd1;
    sub.u32 %r2, %r2, %r1; sub.u64 %rd3, %rd2, %rd1; cvt.u64.u32 %rd4, %r2;
    setp.ne.and.u32 %p1, %r2, 0, %p1;
    setp.le.and.u64 %p1, %rd4, %rd3, %p1;
    selp.u32 %r1, 1, 0, %p1;
    st.global.u32 [%at], %r1; ret;)");
  for (const uint32_t one : out) EXPECT_EQ(one, 1u);
}

TEST_P(SystemTest, AllLanesMatchInEveryBit) {
  const auto out = Go(R"(
    shl.b32 %r1, %t, 27; mov.u32 %r9, 0; mov.b64 %rd1, {%r9, %r1}; mov.u64 %rd2, 0x700000009;
    match.all.sync.b64 %r2|%p1, %rd1, 0xffffffff;
    match.all.sync.b64 %r3|%p2, %rd2, 0xffffffff;
    setp.lt.u32 %p3, %t, 8;
    mov.u32 %r4, 0;
    @%p3 match.all.sync.b64 %r4, %rd2, 0xff;
    selp.u32 %r5, 1, 0, %p1; @%p2 add.u32 %r5, %r5, 2;
    add.u32 %r2, %r2, %r5; st.global.u32 [%at], %r2;
    st.global.u32 [%at+1024], %r3; st.global.u32 [%at+2048], %r4; ret;)");
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], 2u);
    EXPECT_EQ(device_.Array<uint32_t>(1024)[i], ~0u);
    EXPECT_EQ(device_.Array<uint32_t>(2048)[i], i < 8 ? 0xffu : 0u);
  }
}

TEST_P(SystemTest, LanesMatchReduceAndElect) {
  const auto out = Go(R"(
    and.b32 %r1, %t, 3;
    match.any.sync.b32 %r2, %r1, 0xffffffff;
    cvt.u64.u32 %rd1, %r1;
    match.any.sync.b64 %r3, %rd1, 0xffffffff;
    match.all.sync.b32 %r4|%p1, %r1, 0xffffffff;
    mov.u32 %r5, 9; match.all.sync.b32 %r6|%p2, %r5, 0xffffffff;
    redux.sync.add.u32 %r7, %t, 0xffffffff;
    sub.s32 %r8, %t, 5; redux.sync.min.s32 %r9, %r8, 0xffffffff;
    redux.sync.max.u32 %r10, %t, 0xffffffff;
    redux.sync.xor.b32 %r11, %t, 0xffffffff; redux.sync.or.b32 %r12, %t, 0xffffffff;
    redux.sync.and.b32 %r13, %r2, 0xffffffff;
    elect.sync %r14|%p3, 0xffffffff;
    setp.lt.u32 %p4, %t, 8; @!%p4 bra SKIP;
    redux.sync.add.s32 %r7, %t, 0xff;
  SKIP:
    st.global.u32 [%out+1024], %r9;  st.global.u32 [%out+1028], %r10;
    st.global.u32 [%out+1032], %r11; st.global.u32 [%out+1036], %r12;
    st.global.u32 [%out+1040], %r13; st.global.u32 [%out+1044], %r4;
    st.global.u32 [%out+1048], %r6;
    selp.u32 %r15, 1, 0, %p1; @%p2 add.u32 %r15, %r15, 2; @%p3 add.u32 %r15, %r15, 4;
    setp.eq.u32 %p5, %r2, %r3; @%p5 add.u32 %r15, %r15, 8;
    mad.lo.u32 %r15, %r7, 16, %r15;
    mul.wide.u32 %rd2, %t, 4; add.u64 %rd2, %rd2, %out; st.global.u32 [%rd2+2048], %r2;
    st.global.u32 [%at], %r15;
    ret;)");
  const uint32_t* all = device_.Array<uint32_t>(1024);
  EXPECT_EQ(static_cast<int32_t>(all[0]), -5);
  EXPECT_EQ(all[1], 31u);
  EXPECT_EQ(all[2], 0u);
  EXPECT_EQ(all[3], 31u);
  EXPECT_EQ(all[4], 0u);
  EXPECT_EQ(all[5], 0u);
  EXPECT_EQ(all[6], ~0u);
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i] & 15, 2u + (i == 0 ? 4 : 0) + 8) << i;
    EXPECT_EQ(out[i] / 16, i < 8 ? 28u : 496u) << i;
    EXPECT_EQ(device_.Array<uint32_t>(2048)[i], 0x11111111u << (i & 3));
  }
}

// One after the other, each rounded.
TEST_P(SystemTest, AtomicsOnHalves) {
  device_.Array<uint32_t>(1024)[0] = 0x3c003c00;  // 1, 1
  device_.Array<uint32_t>(1024)[1] = 0x3f803f80;
  device_.Array<uint32_t>(1024)[2] = 5;
  const auto out = Go(R"(
    mov.b32 %r1, 0x40003c00; atom.global.add.noftz.f16x2 %r2, [%out+1024], %r1;
    mov.b32 %r3, 0x3f804000; red.relaxed.gpu.global.add.noftz.bf16x2 [%out+1028], %r3;
    .reg .b16 %h<4>; mov.u16 %h1, 5; mov.u16 %h2, 6;
    atom.global.cas.b16 %h3, [%out+1032], %h1, %h2;
    cvt.u32.u16 %r4, %h3; st.global.u32 [%at], %r4;
    atom.acq_rel.gpu.global.add.noftz.f16 %h3, [%out+1036], %h1;
    ret;)");
  EXPECT_EQ(device_.Array<uint32_t>(1024)[0], 0x54105020u);  // 1 + 64 and 1 + 32
  EXPECT_EQ(device_.Array<uint32_t>(1024)[1], 0x42044282u);
  EXPECT_EQ(device_.Array<uint32_t>(1024)[2], 6u);
  EXPECT_EQ(out[0], 5u);
  EXPECT_EQ(out[1], 6u);
}

TEST_P(SystemTest, CacheHintsAndProxies) {
  const auto out = Go(R"(
    createpolicy.fractional.L2::evict_last.b64 %rd1, 0f3f800000;
    createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %rd2;
    st.global.L2::cache_hint.u32 [%at], %t, %rd1;
    ld.global.L1::no_allocate.L2::cache_hint.L2::128B.u32 %r1, [%at], %rd2;
    ld.relaxed.gpu.global.u32 %r2, [%at]; ld.acquire.sys.u32 %r3, [%at]; ld.volatile.u32 %r4, [%at];
    ld.global.nc.L2::64B.u32 %r5, [%at];
    fence.proxy.async; fence.acq_rel.gpu; fence.sc.sys; membar.gl; fence.proxy.alias;
    atom.release.cta.global.add.L2::cache_hint.u32 %r6, [%at], 1, %rd1;
    discard.global.L2 [%out], 128; applypriority.global.L2::evict_normal [%out], 128;
    prefetch.global.L2::evict_last [%out]; prefetchu.L1 [%out];
    st.release.gpu.global.u32 [%at], %r1;
    ret;)");
  EXPECT_EQ(out[7], 7u);
}

TEST_P(SystemTest, ClustersAreBlocksOnEveryAxis) {
  const auto program = MustCompile(Body(R"(
    mov.u32 %r1, %clusterid.x; mov.u32 %r2, %clusterid.y; mov.u32 %r3, %clusterid.z;
    mov.u32 %r4, %nclusterid.x; mov.u32 %r5, %nclusterid.y; mov.u32 %r6, %nclusterid.z;
    mad.lo.u32 %r7, %r3, 10, %r2; mad.lo.u32 %r7, %r7, 10, %r1; mad.lo.u32 %r7, %r7, 10, %r6;
    mad.lo.u32 %r7, %r7, 10, %r5; mad.lo.u32 %r7, %r7, 10, %r4;
    st.global.u32 [%out], %r7;
    ret;)"));
  ASSERT_NE(program, nullptr);
  MustRun(*program, device_, {.grid = {2, 3, 4}}, Params().Add(device_.At(0)), GetParam());
  EXPECT_EQ(*device_.Array<uint32_t>(0), 321432u);
}

// As cooperative groups read it: the upper half comes first.
TEST_P(SystemTest, TheGridsWorkspaceIsNamedByTwoRegisters) {
  const auto program = MustCompile(Body(R"(
    mov.b64 %rd1, {%envreg2, %envreg1};
    st.global.u64 [%out], %rd1;
    ret;)"));
  ASSERT_NE(program, nullptr);
  Launch launch;
  launch.program = program.get();
  launch.kernel = &program->kernels().front();
  launch.params = Params().Add(device_.At(0)).bytes();
  launch.cooperative = true;
  launch.grid_workspace = 0x123456789abcdef0;
  Execution execution(launch, device_.map(), GetParam());
  ASSERT_EQ(execution.Run(Never), Stop::kDone);
  EXPECT_EQ(*device_.Array<uint64_t>(0), launch.grid_workspace);
}

}  // namespace
}  // namespace tandem::ptx
