// Branches by index, votes without .sync, the stack of alloca, and instructions that do nothing.
#include <gtest/gtest.h>

#include <random>

#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

class ControlTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Paths, ControlTest, ::testing::ValuesIn(Paths()));

// Where the list of targets ends, nothing is said of what comes: here it goes on behind the branch.
TEST_P(ControlTest, BranchesByIndex) {
  for (const std::string uni : {"", ".uni"}) {
    for (const std::string guard : {"", "@%p1 ", "@!%p1 "}) {
      SCOPED_TRACE(guard + uni);
      // Of .uni all lanes of a warp take the same way.
      const std::string who = uni.empty() ? "%t" : "%r4";
      const auto out = Go("shr.u32 %r4, %t, 5; rem.u32 %r1, " + who + ", 6;\n" + "and.b32 %r3, " +
                              who + ", 8; setp.eq.u32 %p1, %r3, 0;\n" +
                              R"(
    table: .branchtargets ZERO, ONE, LAST, ONE, FIRST;
    bra START;
  FIRST: mov.u32 %r2, 14; bra.uni DONE;
  START:
    )" + guard + "brx.idx" + uni +
                              R"( %r1, table;
    mov.u32 %r2, 77; bra DONE;
  ZERO: mov.u32 %r2, 10; bra.uni DONE;
  ONE: add.u32 %r2, %r1, 20; bra.uni DONE;
  LAST: mov.u32 %r2, 12;
  DONE: st.global.u32 [%at], %r2; ret;)",
                          512);
      const uint32_t kExpected[] = {10, 21, 12, 23, 14, 77};
      for (uint32_t i = 0; i < 512; ++i) {
        const uint32_t place = uni.empty() ? i : i / 32;
        const bool low = (place & 8) == 0;
        const bool goes = guard.empty() || low == (guard[1] == '%');
        ASSERT_EQ(out[i], goes ? kExpected[place % 6] : 77u) << i;
      }
    }
  }
}

TEST_P(ControlTest, AnIndexMayBeFarOutOfRange) {
  const auto out = Go(R"(
    table: .branchtargets ZERO;
    shl.b32 %r1, %t, 27;
    brx.idx %r1, table;
    st.global.u32 [%at], 1; ret;
  ZERO: st.global.u32 [%at], 2; ret;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i == 0 ? 2u : 1u);
}

// Of the lanes that are there: those of a guard, and in a last warp that is not full.
TEST_P(ControlTest, VotesWithoutSync) {
  std::mt19937 random(Seed());
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  constexpr uint32_t kThreads = 45;
  for (int round = 0; round < 40; ++round) {
    const bool inverted = round % 2 != 0;
    uint32_t says[2], guard[2];
    for (uint32_t warp = 0; warp < 2; ++warp) {
      const uint32_t kPatterns[] = {0, ~0u, 1u << random() % 32, ~(1u << random() % 32),
                                    static_cast<uint32_t>(random())};
      says[warp] = kPatterns[random() % 5];
      guard[warp] = kPatterns[random() % 5];
      device_.Array<uint32_t>(4096)[warp] = says[warp];
      device_.Array<uint32_t>(4096)[2 + warp] = guard[warp];
    }
    const std::string q = inverted ? "!%p1;" : "%p1;";
    const auto out = Go(R"(
    shr.u32 %r1, %t, 5; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %out, %rd1;
    ld.global.u32 %r2, [%rd1+4096]; ld.global.u32 %r3, [%rd1+4104]; and.b32 %r4, %t, 31;
    shr.u32 %r2, %r2, %r4; and.b32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0;
    shr.u32 %r3, %r3, %r4; and.b32 %r3, %r3, 1; setp.ne.u32 %p5, %r3, 0;
    mov.u32 %r5, 99; mov.u32 %r6, 8;
    @%p5 vote.all.pred %p2, )" +
                            q + "@%p5 vote.any.pred %p3, " + q + "@%p5 vote.uni.pred %p4, " + q +
                            "@%p5 vote.ballot.b32 %r5, " + q + R"(
    selp.u32 %r7, 1, 0, %p2; selp.u32 %r8, 2, 0, %p3; selp.u32 %r9, 4, 0, %p4;
    @%p5 add.u32 %r6, %r7, %r8; @%p5 add.u32 %r6, %r6, %r9;
    st.global.u32 [%at], %r6; st.global.u32 [%at+1024], %r5; ret;)",
                        kThreads);
    for (uint32_t i = 0; i < kThreads; ++i) {
      const uint32_t warp = i / 32, live = warp == 0 ? ~0u : (1u << kThreads % 32) - 1;
      const uint32_t there = guard[warp] & live;
      const uint32_t votes = there & (inverted ? ~says[warp] : says[warp]);
      const bool takes_part = (there >> i % 32 & 1) != 0;
      const uint32_t flags =
          (votes == there ? 1 : 0) + (votes != 0 ? 2 : 0) + (votes == there || votes == 0 ? 4 : 0);
      ASSERT_EQ(out[i], takes_part ? flags : 8u) << i;
      ASSERT_EQ(device_.Array<uint32_t>(1024)[i], takes_part ? votes : 99u) << i;
    }
  }
}

// `.T` stands for the type of addresses.
std::string OfWidth(std::string text, bool wide) {
  for (size_t at; (at = text.find(".T")) != std::string::npos;) {
    text.replace(at, 2, wide ? ".u64" : ".u32");
  }
  return text;
}

TEST_P(ControlTest, TheStackHasAddressesOfBothWidths) {
  for (const bool wide : {false, true}) {
    SCOPED_TRACE(wide);
    const auto out = Go(OfWidth(R"(
    .reg .T %a<4>, %n, %top<3>;
    cvt.T.u32 %n, %t; mul.lo.T %n, %n, 12; add.T %n, %n, 4;
    alloca.T %a1, 24, 8;
    stacksave.T %top1;
    alloca.T %a2, %n, 32;
    stacksave.T %top2;
    alloca.T %a3, 16, 128;
    st.local.u32 [%a1+20], 7; st.local.u32 [%a2], %t; st.local.v2.u32 [%a3+8], {%t, %t};
    ld.local.u32 %r1, [%a1+20]; ld.local.u32 %r2, [%a2]; ld.local.u32 %r3, [%a3+12];
    mad.lo.u32 %r1, %r2, 10, %r1; mad.lo.u32 %r1, %r3, 1000, %r1;
    rem.T %a1, %a2, 32; cvt.u32.T %r4, %a1;
    rem.T %a1, %a3, 128; cvt.u32.T %r5, %a1; add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5;
    stackrestore.T %top1;
    alloca.T %a1, 4, 32;
    setp.ne.T %p1, %a1, %a2; @%p1 add.u32 %r1, %r1, 1;
    st.global.u32 [%at], %r1; ret;)",
                                wide));
    for (uint32_t i = 0; i < 32; ++i) ASSERT_EQ(out[i], 1010 * i + 7);
  }
}

// As cooperative groups use it, for barriers of more than one warp.
TEST_P(ControlTest, SharedMemoryHasAReservedPart) {
  std::string text = Body(R"(
    .shared .b32 own;
    mov.u32 %r1, %reserved_smem_offset_1; mov.u32 %r2, %reserved_smem_offset_end;
    mov.u32 %r3, %reserved_smem_offset_begin; mov.u32 %r4, %reserved_smem_offset_cap;
    mov.u32 %r5, %total_smem_size; mov.u32 %r6, %dynamic_smem_size;
    cvt.u64.u32 %rd1, %r1; cvta.shared.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %t, 4; add.u64 %rd1, %rd1, %rd2; st.u32 [%rd1], %t;
    mov.u32 %r8, more; mad.lo.u32 %r8, %t, 4, %r8;
    st.shared.u32 [own], 77; st.shared.u32 [%r8], 88; st.shared.u32 [%r2+-4], 99;
    ld.u32 %r7, [%rd1]; ld.shared.u32 %r9, [own]; add.u32 %r7, %r7, %r9;
    ld.shared.u32 %r9, [%r2+-4]; add.u32 %r7, %r7, %r9;
    sub.u32 %r2, %r2, %r3;
    st.global.u32 [%at], %r7;
    st.global.v4.u32 [%out+4096], {%r2, %r4, %r5, %r6};
    ret;)");
  text.insert(text.find(".visible"), ".extern .shared .align 4 .b8 more[];\n");
  const auto program = MustCompile(text);
  ASSERT_NE(program, nullptr);
  MustRun(*program, device_, {.block = {64, 1, 1}, .shared = 300}, Params().Add(device_.At(0)),
          GetParam());
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(device_.Array<uint32_t>(0)[i], i + 77 + 99);
  const uint32_t* sizes = device_.Array<uint32_t>(4096);
  EXPECT_EQ(std::vector<uint32_t>(sizes, sizes + 4), std::vector<uint32_t>({1024, 1024, 316, 300}));
  EXPECT_EQ(Fails("mov.u32 %r1, %reserved_smem_offset_end; st.shared.u32 [%r1], 1; ret;"),
            Stop::kIllegalAddress);
  EXPECT_EQ(Fails(".shared .b32 own; st.shared.u32 [own+64], 1; ret;"), Stop::kIllegalAddress);
}

TEST_P(ControlTest, InstructionsThatDoNothing) {
  for (const char* instruction : {
           "prefetch.global.L1 [%at];",
           "prefetch.global.L2 [%at+128];",
           "prefetch.global.L2::evict_last [%at];",
           "prefetch.global.L2::evict_normal [%at];",
           "prefetch.local.L1 [own];",
           "prefetch.L2 [%at];",
           "prefetchu.L1 [%at];",
           "applypriority.global.L2::evict_normal [%out], 128;",
           "applypriority.L2::evict_normal [%out], 128;",
           "discard.global.L2 [%out+4096], 128;",
           "discard.L2 [%out+4096], 128;",
           "pmevent 3;",
           "pmevent.mask 5;",
           "nanosleep.u32 4294967295;",
           "nanosleep.u32 %t;",
           "membar.cta; membar.gl; membar.sys;",
           "fence.sc.cta; fence.acq_rel.sys; fence.acquire.gpu; fence.release.cluster;",
           "fence.proxy.alias; fence.proxy.async; fence.proxy.async.global;",
           "cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all;",
           ".pragma \"nounroll\";",
           ".loc 1 2 3",
       }) {
    for (const std::string guard : {"", "@%p1 "}) {
      SCOPED_TRACE(guard + instruction);
      if (!guard.empty() && instruction[0] == '.') continue;
      std::memset(device_.Array<uint8_t>(0), 0x5a, 8192);
      const auto out =
          Go(".local .b32 own; st.local.u32 [own], %t; mov.u32 %r1, %t;\n"
             "setp.lt.u32 %p1, %t, 5; st.global.u32 [%at], 0;\n" +
             guard + instruction + R"(
    ld.local.u32 %r2, [own]; ld.global.u32 %r3, [%at]; selp.u32 %r4, 1000, 0, %p1;
    add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4;
    st.global.u32 [%at], %r1; ret;)");
      for (uint32_t i = 0; i < 32; ++i) ASSERT_EQ(out[i], 2 * i + (i < 5 ? 1000 : 0)) << i;
      EXPECT_EQ(device_.Array<uint32_t>(0)[32], 0x5a5a5a5au);
    }
  }
}

}  // namespace
}  // namespace tandem::ptx
