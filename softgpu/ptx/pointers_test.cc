// Calls by pointer, arguments of every kind, the stack of alloca, and barriers in shared memory.
#include <gtest/gtest.h>

#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

class PointerTest : public KernelTest {
 protected:
  // Runs `body` in a module that has `module` before its kernel.
  Stop RunWith(const std::string& module, const std::string& body, uint32_t threads = 32,
               std::string* what = nullptr) {
    const auto program =
        MustCompile(".version 8.0\n.target sm_80\n.address_size 64\n" + module +
                    "\n.visible .entry k(.param .u64 result) {" + kPrologue + body + "\n}");
    if (program == nullptr) return Stop::kTrap;
    program->WriteImage(device_.Array<uint8_t>(8192), device_.At(8192));
    Execution execution = MakeExecution(
        *program, device_, {.grid = {2, 1, 1}, .block = {threads, 1, 1}, .image = device_.At(8192)},
        Params().Add(device_.At(0)), GetParam());
    const Stop stop = execution.Run(Never);
    if (what != nullptr) *what = execution.fault().what;
    return stop;
  }
  uint32_t Out(size_t i) { return device_.Array<uint32_t>(0)[i]; }
};

INSTANTIATE_TEST_SUITE_P(Paths, PointerTest, ::testing::ValuesIn(Paths()));

// A table that the module initializes, as compilers write virtual functions.
constexpr char kTable[] = R"(
.func (.param .b32 r) twice(.param .b32 a);
.func (.param .b32 r) square(.param .b32 a)
{ .reg .b32 %x; ld.param.b32 %x, [a]; mul.lo.u32 %x, %x, %x; st.param.b32 [r], %x; ret; }
.extern .func __cxa_pure_virtual;
.global .align 8 .u64 table[4] = {0, twice, square, __cxa_pure_virtual};
.func (.param .b32 r) twice(.param .b32 a)
{ .reg .b32 %x; ld.param.b32 %x, [a]; add.u32 %x, %x, %x; st.param.b32 [r], %x; ret; }
)";
constexpr char kCallOne[] = R"(
  .param .b32 arg; .param .b32 got;
  mul.wide.u32 %rd1, %r1, 8; mov.u64 %rd2, table; add.u64 %rd2, %rd2, %rd1;
  ld.global.u64 %rd3, [%rd2];
  st.param.b32 [arg], %t;
  proto : .callprototype (.param .b32 _) _ (.param .b32 _);
  call (got), %rd3, (arg), proto;
  ld.param.b32 %r2, [got];
  st.global.u32 [%at], %r2;
  ret;)";

TEST_P(PointerTest, LanesCallDifferentFunctions) {
  ASSERT_EQ(RunWith(kTable, "and.b32 %r1, %t, 1; add.u32 %r1, %r1, 1;" + std::string(kCallOne)),
            Stop::kDone);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(Out(i), i % 2 == 0 ? 2 * i : i * i);
}

// Arguments are laid out as the first target has them; a kernel's parameters lie elsewhere.
TEST(Pointers, ListsOfTargetsNameFunctions) {
  const std::string big = "(.param .align 4 .b8 p[16000], .param .align 4 .b8 q[16000])";
  const std::string kernel = R"(
.visible .entry k() {
  .reg .u64 %f; .param .align 4 .b8 a[16000];
  to : .calltargets big;
  call %f, (a, a), to;
  ret; })";
  EXPECT_NE(CompileLog(Modules(".entry big" + big + " { ret; }" + kernel)).find("'big'"),
            std::string::npos);
  EXPECT_NE(MustCompile(Modules(".func big" + big + " { ret; }" + kernel)), nullptr);
  // A function that is never there has its parameters, too.
  std::string missing = Modules(".extern .func big" + big + ";" + kernel);
  for (size_t at; (at = missing.find("big")) != std::string::npos;) {
    missing.replace(at, 3, "__cxa_pure_virtual");
  }
  const auto program = MustCompile(missing);
  ASSERT_NE(program, nullptr);
  EXPECT_GE(program->FindKernel("k")->local_bytes, 3 * 16000u);
}

TEST_P(PointerTest, AFunctionCallsWhatItsCallerDoesNotKnow) {
  // The kernel's own variable lies where nothing may be passed.
  ASSERT_EQ(RunWith(std::string(kTable) + R"(
.func (.param .b32 r) via(.param .b32 a)
{ .reg .u64 %p; .reg .b32 %x; .param .b32 arg, got;
  ld.param.b32 %x, [a]; st.param.b32 [arg], %x;
  ld.global.u64 %p, [table+8];
  proto : .callprototype (.param .b32 _) _ (.param .b32 _);
  call (got), %p, (arg), proto;
  ld.param.b32 %x, [got]; st.param.b32 [r], %x; ret; })",
                    R"(
    .local .b32 own; .param .b32 arg, got;
    st.local.b32 [own], 1000; st.param.b32 [arg], %t;
    call (got), via, (arg);
    ld.param.b32 %r1, [got]; ld.local.b32 %r2, [own]; add.u32 %r1, %r1, %r2;
    st.global.u32 [%at], %r1;
    ret;)"),
            Stop::kDone);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(Out(i), 1000 + 2 * i);
}

// The register hides the function of its name, and there is room for what is passed.
TEST_P(PointerTest, APointerMayHaveAFunctionsName) {
  ASSERT_EQ(RunWith(kTable, R"(
    .reg .u64 twice; .param .b32 arg, got;
    ld.global.u64 twice, [table+16];
    st.param.b32 [arg], %t;
    proto : .callprototype (.param .b32 _) _ (.param .b32 _);
    call (got), twice, (arg), proto;
    ld.param.b32 %r1, [got];
    st.global.u32 [%at], %r1;
    ret;)"),
            Stop::kDone);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(Out(i), i * i);
}

TEST_P(PointerTest, WhatIsNoFunctionIsNotCalled) {
  std::string what;
  for (const char* choice : {"0", "3"}) {
    EXPECT_EQ(RunWith(kTable, "mov.u32 %r1, " + std::string(choice) + ";" + kCallOne, 32, &what),
              Stop::kIllegalAddress);
    EXPECT_NE(what.find("no function"), std::string::npos) << what;
  }
}

TEST_P(PointerTest, ListsOfTargetsAndRegisters) {
  ASSERT_EQ(RunWith(".func (.reg .f32 r) half(.reg .f32 a) { mul.f32 r, a, 0f3f000000; ret; }\n"
                    ".func (.reg .f32 r) more(.reg .f32 a) { add.f32 r, a, 0f3f800000; ret; }\n"
                    ".func (.reg .f32 r) also(.reg .f32 a);\n.alias also, more;",
                    R"(
    setp.lt.u32 %p1, %t, 16;
    mov.u64 %rd1, half; mov.u64 %rd2, also; selp.b64 %rd1, %rd1, %rd2, %p1;
    cvt.rn.f32.u32 %f1, %t;
    to : .calltargets half, more;
    call (%f2), %rd1, (%f1), to;
    call (%f2), also, (%f2);
    st.global.f32 [%at], %f2;
    ret;)"),
            Stop::kDone);
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(device_.Array<float>(0)[i], i < 16 ? i * 0.5f + 1 : i + 2.0f);
  }
}

TEST_P(PointerTest, RecursionThroughAPointerIsStopped) {
  const std::string functions = R"(
.global .u64 self = again;
.func again(.reg .b32 depth)
{ .reg .u64 %p; .reg .pred %q; .reg .b32 %d;
  setp.eq.u32 %q, depth, 0;
  @%q ret;
  sub.u32 %d, depth, 1;
  ld.global.u64 %p, [self];
  proto : .callprototype _ (.reg .b32 _);
  call %p, (%d), proto;
  ret; })";
  std::string what;
  EXPECT_EQ(RunWith(functions, "call again, (1); ret;", 32, &what), Stop::kTrap);
  EXPECT_NE(what.find("recursion"), std::string::npos) << what;
  EXPECT_EQ(RunWith(functions, "call again, (0); call again, (0); ret;"), Stop::kDone);
}

TEST_P(PointerTest, AThreadMayEndInsideAFunction) {
  // The second block calls it again.
  EXPECT_EQ(RunWith(".global .u64 f = leave; .func leave { exit; }", R"(
    ld.global.u64 %rd1, [f];
    proto : .callprototype _ ();
    st.global.u32 [%at], 5;
    call %rd1, (), proto;
    st.global.u32 [%at], 6;
    ret;)"),
            Stop::kDone);
  EXPECT_EQ(Out(7), 5u);
}

TEST_P(PointerTest, ArgumentsMayBeVariablesRegistersOrNumbers) {
  ASSERT_EQ(RunWith(R"(
.func (.param .b32 r) through(.param .b32 a)
{ .reg .b32 %x; ld.param.b32 %x, [a]; add.u32 %x, %x, 1; st.param.b32 [r], %x; ret; }
.func (.reg .b32 r) by(.reg .b32 a) { add.u32 r, a, 10; ret; })",
                    R"(
    .param .b32 here; .param .b32 there;
    call (%r1), through, (%t);
    call (%r1), through, (%r1);
    st.param.b32 [here], %r1;
    call (there), by, (here);
    ld.param.b32 %r2, [there];
    call (%r3), through, (7);
    call (there), through, (there);
    ld.param.b32 %r4, [there];
    mad.lo.u32 %r2, %r2, 1000, %r3; mad.lo.u32 %r2, %r4, 1000000, %r2;
    st.global.u32 [%at], %r2;
    ret;)"),
            Stop::kDone);
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(Out(i), (i + 13) * 1000000 + (i + 12) * 1000 + 8);
  }
}

TEST_P(PointerTest, TheStackGrowsAndShrinks) {
  ASSERT_EQ(RunWith(R"(
.func (.reg .b32 r) sum(.reg .b32 n)
{ .reg .u64 %b, %p; .reg .b32 %i; .reg .pred %q;
  mul.wide.u32 %b, n, 4;
  alloca.u64 %p, %b, 16;
  cvta.local.u64 %p, %p;
  mov.u32 %i, 0; mov.u32 r, 0;
L: setp.ge.u32 %q, %i, n;
  @%q ret;
  st.u32 [%p], %i; ld.u32 n, [%p]; mov.u32 r, n;
  ret; })",
                    R"(
    .reg .u64 %a<4>;
    alloca.u64 %a1, 100;
    stacksave.u64 %a3;
    alloca.u64 %a2, 16, 16;
    st.local.u32 [%a2], %t;
    mov.u32 %r1, 0;
  L:
    call (%r2), sum, (1000);
    add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 100;
    @%p1 bra L;
    ld.local.u32 %r2, [%a2];
    stackrestore.u64 %a3;
    alloca.u64 %a1, 16, 16;
    setp.eq.u64 %p2, %a1, %a2; selp.u32 %r3, 100, 0, %p2;
    add.u32 %r2, %r2, %r3;
    st.global.u32 [%at], %r2;
    ret;)"),
            Stop::kDone);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(Out(i), i + 100);
  EXPECT_EQ(RunWith("", ".reg .u64 %a; alloca.u64 %a, 20000; ret;"), Stop::kIllegalAddress);
}

constexpr char kHeap[] = R"(
.extern .func (.param .b64 r) malloc(.param .b64 bytes);
.extern .func free(.param .b64 p);
)";

TEST_P(PointerTest, EveryThreadHasMemoryOfItsOwn) {
  // Three rounds, so that the heap would be full without what is freed.
  device_ = TestDevice(16 << 20);
  ASSERT_EQ(RunWith(kHeap, R"(
    .reg .pred %q; .reg .b64 %n;
    mul.wide.u32 %n, %t, 3000; add.u64 %n, %n, 1;
    mov.u32 %r1, 0;
  ROUND:
    call (%rd1), malloc, (%n);
    st.global.u32 [%rd1], %t;
    call (%rd2), malloc, (100000);
    st.global.u32 [%rd2+99996], %t;
    bar.sync 0;
    ld.global.u32 %r2, [%rd1]; ld.global.u32 %r3, [%rd2+99996];
    call free, (%rd1);
    call free, (%rd2);
    add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 3;
    @%p1 bra ROUND;
    call free, (0);
    add.u32 %r2, %r2, %r3;
    st.global.u32 [%at], %r2;
    ret;)"),
            Stop::kDone);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(Out(i), 2 * i);
  ASSERT_EQ(RunWith(kHeap, R"(
    call (%rd1), malloc, (8000000);
    setp.eq.u64 %p1, %rd1, 0; selp.u32 %r1, 1, 0, %p1;
    st.global.u32 [%at], %r1;
    ret;)"),
            Stop::kDone);
  for (uint32_t i = 1; i < 32; ++i) EXPECT_EQ(Out(i), 1u);
  EXPECT_EQ(RunWith(kHeap, "call free, (%out); ret;"), Stop::kIllegalAddress);
  EXPECT_EQ(RunWith(kHeap,
                    "call (%rd1), malloc, (16); st.global.u64 [%rd1-16], 17;"
                    "call free, (%rd1); ret;"),
            Stop::kIllegalAddress);
}

TEST_P(PointerTest, BlocksAreApartAfterOneThatDidNotFit) {
  device_ = TestDevice(16 << 20);
  ASSERT_EQ(RunWith(kHeap, R"(
    .reg .b64 %end<3>;
    call (%rd1), malloc, (1048576);
    call free, (%rd1);
    call (%rd1), malloc, (8388608);
    call (%rd2), malloc, (64);
    call (%rd3), malloc, (7600000);
    add.u64 %end1, %rd2, 64; add.u64 %end2, %rd3, 7600000;
    setp.eq.u64 %p1, %rd1, 0;
    setp.ne.and.u64 %p1, %rd2, 0, %p1;
    setp.ne.and.u64 %p1, %rd3, 0, %p1;
    setp.le.u64 %p2, %end1, %rd3;
    setp.le.or.u64 %p2, %end2, %rd2, %p2;
    and.pred %p1, %p1, %p2;
    selp.u32 %r1, 1, 2, %p1;
    st.global.u32 [%at], %r1;
    call free, (%rd2); call free, (%rd3);
    ret;)",
                    1),
            Stop::kDone);
  EXPECT_EQ(Out(0), 1u);
}

TEST_P(PointerTest, BarriersInSharedMemory) {
  // 64 threads in two warps, in three phases; half of them leave after the first.
  ASSERT_EQ(RunWith("", R"(
    .shared .align 8 .b64 bar; .shared .align 4 .b32 box;
    .reg .b64 %s<4>;
    setp.eq.u32 %p1, %t, 0;
    @%p1 mbarrier.init.shared.b64 [bar], 64;
    bar.sync 0;
    atom.shared.add.u32 %r1, [box], 1;
    setp.lt.u32 %p2, %t, 32;
    @!%p2 bra DROP;
    mbarrier.arrive.shared.b64 %s1, [bar];
    mbarrier.pending_count.b64 %r5, %s1;
  WAIT:
    mbarrier.test_wait.shared.b64 %p3, [bar], %s1;
    @!%p3 bra WAIT;
    ld.shared.u32 %r2, [box];
    cp.async.mbarrier.arrive.shared.b64 [bar];
    cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
  AGAIN:
    mbarrier.test_wait.parity.shared.b64 %p3, [bar], 1;
    @!%p3 bra AGAIN;
    mad.lo.u32 %r2, %r2, 100, %r5;
    st.global.u32 [%at], %r2;
    ret;
  DROP:
    mbarrier.arrive_drop.shared.b64 _, [bar];
    st.global.u32 [%at], 1;
    ret;)",
                    64),
            Stop::kDone);
  uint32_t seen = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(Out(i) / 100, 64 * (1 + 1));  // the second block finds the first one's sum
    seen |= 1u << (Out(i) % 100 - 33);
  }
  EXPECT_EQ(seen, ~0u);
  EXPECT_EQ(Out(63), 1u);
}

TEST_P(PointerTest, BarriersAreTriedAndMadeAnew) {
  ASSERT_EQ(RunWith("", R"(
    .shared .align 8 .b64 bar; .reg .b64 %s<4>;
    mbarrier.init.shared.b64 [bar], 3;
    mbarrier.arrive.noComplete.shared.b64 %s1, [bar], 2;
    mbarrier.try_wait.shared.b64 %p1, [bar], %s1, 1;
    mbarrier.arrive.shared.b64 %s2, [bar];
    mbarrier.try_wait.shared.b64 %p2, [bar], %s2;
    mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0, 1;
    mbarrier.try_wait.parity.shared.b64 %p4, [bar], 1;
    selp.u32 %r1, 1, 0, %p1; @%p2 add.u32 %r1, %r1, 2; @%p3 add.u32 %r1, %r1, 4;
    @%p4 add.u32 %r1, %r1, 8;
    mbarrier.pending_count.b64 %r2, %s1; mbarrier.pending_count.b64 %r3, %s2;
    mbarrier.arrive_drop.noComplete.shared.b64 %s1, [bar], 2;
    mbarrier.arrive.shared.b64 %s2, [bar]; mbarrier.arrive.shared.b64 %s3, [bar];
    mbarrier.pending_count.b64 %r4, %s2; mbarrier.pending_count.b64 %r5, %s3;
    mbarrier.inval.shared.b64 [bar];
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.arrive.shared.b64 %s1, [bar];
    mbarrier.try_wait.shared.b64 %p1, [bar], %s1;
    selp.u32 %r6, 1, 0, %p1;
    st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4}; st.global.v2.u32 [%out+16], {%r5, %r6};
    ret;)",
                    1),
            Stop::kDone);
  const uint32_t* out = device_.Array<uint32_t>(0);
  // After the first phase two of three have left: one comes in each of the next.
  EXPECT_EQ(std::vector<uint32_t>(out, out + 6), std::vector<uint32_t>({6, 3, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace tandem::ptx
