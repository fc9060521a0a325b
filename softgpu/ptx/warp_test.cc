// What lanes, warps and blocks do together: barriers, locks, votes and shuffles.
#include <gtest/gtest.h>

#include <set>

#include "softgpu/ptx/code.h"
#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

class WarpTest : public KernelTest {};

INSTANTIATE_TEST_SUITE_P(Paths, WarpTest, ::testing::ValuesIn(Paths()));

TEST_P(WarpTest, BarrierIgnoresThreadsThatHaveLeft) {
  const auto out = Go(R"(
    .shared .align 4 .b32 box[128];
    setp.ge.u32 %p1, %t, 96;
    @%p1 exit;
    shl.b32 %r1, %t, 2; mov.u32 %r2, box; add.u32 %r3, %r2, %r1;
    st.shared.u32 [%r3], %t;
    bar.sync 0;
    sub.u32 %r4, 95, %t; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r2;
    ld.shared.u32 %r5, [%r4];
    bar.sync 0;
    st.global.u32 [%at], %r5;
    ret;)",
                      128);
  for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(out[i], 95 - i);
}

TEST_P(WarpTest, ShufflesAndVotes) {
  const auto out = Go(R"(
    mov.u32 %r1, %t;
    shfl.sync.bfly.b32 %r2, %r1, 16, 31, 0xffffffff; add.u32 %r1, %r1, %r2;
    shfl.sync.bfly.b32 %r2, %r1, 8, 31, 0xffffffff; add.u32 %r1, %r1, %r2;
    shfl.sync.bfly.b32 %r2, %r1, 4, 31, 0xffffffff; add.u32 %r1, %r1, %r2;
    shfl.bfly.b32 %r2, %r1, 2, 31; add.u32 %r1, %r1, %r2;
    shfl.bfly.b32 %r2, %r1, 1, 31; add.u32 %r1, %r1, %r2;
    shfl.up.b32 %r3|%p1, %t, 3, 0;
    @!%p1 add.u32 %r1, %r1, 1000;
    setp.lt.u32 %p2, %t, 7;
    vote.sync.ballot.b32 %r4, %p2, 0xffffffff;
    add.u32 %r1, %r1, %r4;
    st.global.u32 [%at], %r1;
    ret;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], 496u + 127 + (i < 3 ? 1000 : 0));
}

TEST_P(WarpTest, LockInsideAWarpMakesProgress) {
  const auto out = Go(R"(
  SPIN:
    atom.global.cas.b32 %r1, [%out+1024], 0, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra SPIN;
    ld.global.u32 %r2, [%out+1028];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%out+1028], %r2;
    atom.global.exch.b32 %r3, [%out+1024], 0;
    st.global.u32 [%at], %r2;
    ret;)");
  EXPECT_EQ(*device_.Array<uint32_t>(1028), 32u);
  const std::set<uint32_t> places(out.begin(), out.end());
  EXPECT_EQ(places.size(), 32u);
  EXPECT_EQ(*places.begin(), 1u);
  EXPECT_EQ(*places.rbegin(), 32u);
}

TEST_P(WarpTest, ThreeGroupsThatWaitForTheLastOne) {
  // Lane 0 waits for lane 1, which waits for the others.
  const auto out = Go(R"(
    setp.gt.u32 %p1, %t, 1;
    @%p1 bra GO;
    setp.eq.u32 %p2, %t, 1;
    @%p2 bra SECOND;
  FIRST:
    ld.volatile.global.u32 %r1, [%out+1024];
    setp.ne.u32 %p3, %r1, 2;
    @%p3 bra FIRST;
    bra DONE;
  SECOND:
    ld.volatile.global.u32 %r1, [%out+1024];
    setp.ne.u32 %p3, %r1, 1;
    @%p3 bra SECOND;
    st.volatile.global.u32 [%out+1024], 2;
    bra DONE;
  GO:
    mov.u32 %r1, 1;
    st.volatile.global.u32 [%out+1024], %r1;
  DONE:
    st.global.u32 [%at], %r1;
    ret;)");
  EXPECT_EQ(out[0], 2u);
  for (uint32_t i = 1; i < 32; ++i) EXPECT_EQ(out[i], 1u);
}

TEST_P(WarpTest, AWarpMayWaitForALaterOne) {
  // Warp 0 waits for a flag that warp 2 sets once it has met warp 1 at a barrier.
  const auto out = Go(R"(
    setp.ge.u32 %p1, %t, 32;
    @%p1 bra OTHERS;
  WAIT:
    ld.volatile.global.u32 %r1, [%out+1024];
    setp.eq.u32 %p2, %r1, 0;
    @%p2 bra WAIT;
    bra DONE;
  OTHERS:
    bar.sync 1, 64;
    mov.u32 %r1, 5;
    setp.eq.u32 %p2, %t, 64;
    @%p2 st.volatile.global.u32 [%out+1024], 7;
  DONE:
    st.global.u32 [%at], %r1;
    ret;)",
                      96);
  for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(out[i], i < 32 ? 7 : 5);
}

TEST_P(WarpTest, ArrivingCountsAtABarrierOfTheWholeBlock) {
  const auto out = Go(R"(
    .shared .align 4 .b32 box;
    mov.u32 %r1, 1;
    setp.ge.u32 %p1, %t, 64;
    @%p1 bra PRODUCE;
    bar.sync 2;
    ld.shared.u32 %r1, [box];
    bra DONE;
  PRODUCE:
    st.shared.u32 [box], 9;
    bar.arrive 2, 96;
  DONE:
    st.global.u32 [%at], %r1;
    ret;)",
                      96);
  for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(out[i], i < 64 ? 9 : 1);
}

TEST_P(WarpTest, CountedAndReducingBarriers) {
  const auto out = Go(R"(
    setp.ge.u32 %p1, %t, 64;
    setp.lt.u32 %p2, %t, 40;
    @%p1 bra LAST;
    bar.red.popc.u32 %r1, 3, 64, %p2;
    bar.red.and.pred %p3, 3, 64, %p2;
    bar.red.or.pred %p4, 3, 64, !%p2;
    selp.u32 %r2, 100, 0, %p3; add.u32 %r1, %r1, %r2;
    selp.u32 %r2, 1000, 0, %p4; add.u32 %r1, %r1, %r2;
    bra DONE;
  LAST:
    bar.red.or.pred %p3, 4, 32, %p2;
    selp.u32 %r1, 1, 2, %p3;
  DONE:
    st.global.u32 [%at], %r1;
    ret;)",
                      96);
  for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(out[i], i < 64 ? 1040 : 2);
}

TEST_P(WarpTest, VotesAskOnlyTheirMembers) {
  const auto out = Go(R"(
    setp.lt.u32 %p1, %t, 16;
    selp.b32 %r1, 0xffff, 0xffff0000, %p1;
    setp.lt.u32 %p2, %t, 20;
    vote.sync.all.pred %p3, %p2, %r1;
    vote.sync.any.pred %p4, !%p2, %r1;
    vote.sync.uni.pred %p5, %p2, %r1;
    vote.sync.ballot.b32 %r2, %p2, %r1;
    selp.u32 %r3, 1, 0, %p3; selp.u32 %r4, 2, 0, %p4; selp.u32 %r5, 4, 0, %p5;
    add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; add.u32 %r2, %r2, %r5;
    st.global.u32 [%at], %r2;
    ret;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 16 ? 0xffff + 5 : 0xf0000 + 2);
}

TEST_P(WarpTest, LanesMeetWhereAnyOfThemAsksForIt) {
  // Lane 0 names itself; lanes 1 to 15, which stand beside it, wait for the upper half.
  const auto out = Go(R"(
    setp.ge.u32 %p1, %t, 16;
    @%p1 bra LATE;
  MEET:
    setp.eq.u32 %p2, %t, 0;
    selp.b32 %r1, 1, 0xfffffffe, %p2;
    vote.sync.ballot.b32 %r2, %p1, %r1;
    st.global.u32 [%at], %r2;
    ret;
  LATE:
    bra MEET;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i == 0 ? 0 : 0xffff0000);
}

TEST_P(WarpTest, ALockBetweenWarps) {
  Go(R"(
  SPIN:
    atom.global.cas.b32 %r1, [%out+1024], 0, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra SPIN;
    ld.global.u32 %r2, [%out+1028];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%out+1028], %r2;
    atom.global.exch.b32 %r3, [%out+1024], 0;
    st.global.u32 [%at], %r2;
    ret;)",
     64);
  EXPECT_EQ(*device_.Array<uint32_t>(1028), 64u);
}

TEST_P(WarpTest, ShufflesWithinSegments) {
  // Segments of 8: the mask in bits 8 to 12 of the fourth operand, the clamp below.
  const auto out = Go(R"(
    shfl.sync.down.b32 %r1|%p1, %t, 3, 0x1807, -1;
    shfl.sync.up.b32 %r2|%p2, %t, 2, 0x1800, -1;
    shfl.sync.idx.b32 %r3|%p3, %t, 5, 0x1807, -1;
    shfl.sync.bfly.b32 %r4|%p4, %t, 9, 0x1807, -1;
    shfl.idx.b32 %r5, %t, 33, 31;
    selp.u32 %r6, 1, 0, %p1; selp.u32 %r7, 2, 0, %p2; selp.u32 %r8, 4, 0, %p3;
    selp.u32 %r9, 8, 0, %p4;
    add.u32 %r6, %r6, %r7; add.u32 %r6, %r6, %r8; add.u32 %r6, %r6, %r9;
    mad.lo.u32 %r6, %r5, 16, %r6;
    shl.b32 %r4, %r4, 24; shl.b32 %r3, %r3, 18; shl.b32 %r2, %r2, 12;
    shl.b32 %r1, %r1, 6;
    or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3; or.b32 %r1, %r1, %r4; or.b32 %r1, %r1, %r6;
    st.global.u32 [%at], %r1;
    ret;)");
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t place = i % 8, start = i - place;
    const bool down = place + 3 < 8, up = place >= 2, bfly = (i ^ 9) <= (start | 7);
    const uint32_t flags = (down ? 1 : 0) + (up ? 2 : 0) + 4 + (bfly ? 8 : 0);
    const uint32_t expected = 16 + flags + ((down ? i + 3 : i) << 6) + ((up ? i - 2 : i) << 12) +
                              ((start + 5) << 18) + ((bfly ? i ^ 9 : i) << 24);
    EXPECT_EQ(out[i], expected) << i;
  }
}

TEST_P(WarpTest, VotesOfLanesThatWentApart) {
  const auto out = Go(R"(
    setp.lt.u32 %p1, %t, 10;
    setp.eq.u32 %p2, %t, 3;
    @%p1 bra LOW;
    vote.any.pred %p3, %p2;
    vote.all.pred %p4, !%p2;
    bra OUT;
  LOW:
    vote.any.pred %p3, %p2;
    vote.all.pred %p4, !%p2;
    vote.ballot.b32 %r1, %p2;
  OUT:
    selp.u32 %r2, 1, 0, %p3; selp.u32 %r3, 2, 0, %p4;
    add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r1;
    st.global.u32 [%at], %r2;
    ret;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 10 ? 1 + 8 : 2);
}

TEST_P(WarpTest, ABarrierThatNobodyWaitedForBeginsAnew) {
  // Two warps arrive at a barrier for 64, which is then empty again: the third waits for the
  // fourth.
  const auto out = Go(R"(
    .shared .align 4 .b32 box;
    shr.u32 %r1, %t, 5;
    setp.lt.u32 %p1, %r1, 2;
    @%p1 bra ARRIVE;
    setp.eq.u32 %p2, %r1, 3;
    @%p2 bra LAST;
    bar.sync 1, 64;
    ld.shared.u32 %r2, [box];
    st.global.u32 [%at], %r2;
    ret;
  ARRIVE:
    bar.arrive 1, 64;
    st.global.u32 [%at], 1;
    ret;
  LAST:
    mov.u32 %r3, 0;
  LOOP:
    add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 40000;
    @%p3 bra LOOP;
    st.shared.u32 [box], 9;
    bar.sync 1, 64;
    st.global.u32 [%at], 3;
    ret;)",
                      128);
  for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], i < 64 ? 1 : i < 96 ? 9 : 3);
}

TEST_P(WarpTest, WhoComesTooLateIsOfTheNextGeneration) {
  // The barrier is for 64 threads; the third warp to come stays until the fourth has, which comes
  // after a barrier of its own with the first.
  const auto out = Go(R"(
    .shared .align 4 .b32 box;
    shr.u32 %r1, %t, 5;
    setp.eq.u32 %p1, %r1, 3;
    @%p1 bra LATE;
    bar.sync 1, 64;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra READ;
    bar.sync 2, 64;
  READ:
    ld.shared.u32 %r2, [box];
    st.global.u32 [%at], %r2;
    ret;
  LATE:
    bar.sync 2, 64;
    st.shared.u32 [box], 9;
    bar.sync 1, 64;
    ret;)",
                      128);
  for (uint32_t i = 64; i < 96; ++i) EXPECT_EQ(out[i], 9u);
}

TEST_P(WarpTest, WithoutSyncLanesStillMeet) {
  // The block that lane 5 makes its detour through lies last and jumps back to where all meet.
  const auto out = Go(R"(
    mov.u32 %r1, %t;
    setp.eq.u32 %p1, %t, 5;
    @%p1 bra COLD;
  BACK:
    shfl.bfly.b32 %r2, %r1, 1, 31;
    setp.gt.u32 %p2, %r1, 100;
    vote.ballot.b32 %r3, %p2;
    add.u32 %r2, %r2, %r3;
    st.global.u32 [%at], %r2;
    ret;
  COLD:
    add.u32 %r1, %r1, 100;
    bra BACK;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], (i ^ 1) + (i == 4 ? 100 : 0) + 32);
}

TEST_P(WarpTest, LongLoopsDoNotKeepLanesApartLater) {
  const auto out = Go(R"(
    mov.u32 %r1, 0;
  FIRST:
    add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 10000;
    @%p1 bra FIRST;
    mov.u32 %r1, 0;
  SECOND:
    add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 10000;
    @%p1 bra SECOND;
    mul.lo.u32 %r2, %t, 450; mov.u32 %r1, 0;
  APART:
    add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, %r2;
    @%p1 bra APART;
    activemask.b32 %r3;
    st.global.u32 [%at], %r3;
    ret;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], ~0u);
}

// Runs one warp and returns the instructions that the model's clock counts.
int64_t Counted(const std::string& text, TestDevice* device, Path path) {
  const auto program = MustCompile(text);
  if (program == nullptr) return 0;
  Progress progress;
  Launch launch;
  launch.program = program.get();
  launch.kernel = &program->kernels().front();
  launch.block[0] = kLanes;
  launch.params = Params().Add(device->At(0)).bytes();
  launch.progress = &progress;
  Execution execution(launch, device->map(), path);
  EXPECT_EQ(execution.Run(Never), Stop::kDone) << execution.fault().what;
  return progress.instructions;
}

TEST_P(WarpTest, ALockIsHandedOnSoon) {
  const int64_t counted = Counted(Body(R"(
  SPIN:
    atom.global.cas.b32 %r1, [%out+1024], 0, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra SPIN;
    atom.global.exch.b32 %r3, [%out+1024], 0;
    ret;)"),
                                  &device_, GetParam());
  EXPECT_LT(counted, 32 * 64 * 4);
}

// As compilers write it without optimising: what looks at the lock lies in a function's function.
TEST_P(WarpTest, ALockThatFunctionsTryIsHandedOnSoon) {
  std::string text = Body(R"(
  SPIN:
    call (%r1), attempt, (%out);
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra SPIN;
    atom.global.exch.b32 %r3, [%out+1024], 0;
    ret;)");
  text.insert(text.find(".visible"), R"(
.func (.reg .b32 old) attempt_once(.reg .b64 at)
{ atom.global.cas.b32 old, [at+1024], 0, 1; ret; }
.func (.reg .b32 old) attempt(.reg .b64 at) { call (old), attempt_once, (at); ret; }
)");
  EXPECT_LT(Counted(text, &device_, GetParam()), 32 * 64 * 12);
}

TEST_P(WarpTest, ACallCostsNothingForItsDistance) {
  std::string far = ".func far { .reg .b32 %r1; mov.u32 %r1, 0;\n";
  for (int i = 0; i < 1000; ++i) far += "add.u32 %r1, %r1, 1;\n";
  std::string calls = "call near;\ncall far;\n";
  for (int i = 0; i < 100; ++i) calls += "call near;\n";
  const std::string text = ".version 6.3\n.target sm_70\n.address_size 64\n.func near { ret; }\n" +
                           far + "ret; }\n.entry k(.param .u64 result) {" + calls + "ret; }";
  EXPECT_LT(Counted(text, &device_, GetParam()), 1500);
}

}  // namespace
}  // namespace tandem::ptx
