// Runs whose limit may be above the budget.
#include "src/service/service_test.h"

namespace tandem::service {
namespace {

class OversubscribeTest : public ServiceTest {
 protected:
  uint64_t Begin(ConnectionId id, Bytes limit, uint64_t run = 0) {
    Connect(id, 500 + static_cast<int>(id));
    wire::RunBegin begin{"0.1", "big", "train", limit.count, run};
    begin.oversubscribes = 1;
    Say(id, begin);
    return Heard<wire::RunStarted>(id).run;
  }
  void JoinAs(ConnectionId id, uint64_t run, uint8_t oversubscribes, Bytes allocated = {}) {
    Connect(id, static_cast<int>(id) + 10, 1000, allocated != Bytes());
    wire::Register hello{"0.1", run, kGpu, "train", allocated.count, 0, 0};
    hello.oversubscribes = oversubscribes;
    Say(id, hello);
  }
  const wire::DecisionsPage& page(size_t index) { return pages_[index]->decisions_; }
};

TEST_F(OversubscribeTest, ItsSessionsMayHaveMoreThanTheBudget) {
  const uint64_t run = Begin(1, MiB(300));
  JoinAs(2, run, wire::Register::kCan);
  EXPECT_EQ(Bytes(Heard<wire::Registered>(2).limit_bytes), MiB(300));
  EXPECT_EQ(Bytes(page(0).limit_bytes.load()), MiB(300));
  EXPECT_EQ(Bytes(page(0).most_resident_bytes.load()), MiB(100));
  Say(2, wire::Reserve{1, MiB(250).count});
  EXPECT_EQ(Heard<wire::Reserved>(2).granted, 1);
  Say(2, wire::Ready{MiB(100).count});
  EXPECT_EQ(Bytes(Heard<wire::Grant>(2).credit_bytes), MiB(100));
  EXPECT_EQ(Ask("sessions")["sessions"][0]["limit_bytes"], MiB(300).count);
  Connect(3, 13);
  Say(3, wire::RunQuery{run, kGpu});
  EXPECT_EQ(Bytes(Heard<wire::RunShown>(3).limit_bytes), MiB(300));
}

TEST_F(OversubscribeTest, WhatCannotBeSwappedLeavesThemLessOfTheCard) {
  JoinAs(2, Begin(1, MiB(300)), wire::Register::kCan);
  Join(3, 13);
  Say(3, wire::FixedWanted{1, MiB(40).count});
  EXPECT_EQ(Bytes(page(0).most_resident_bytes.load()), MiB(60));
  EXPECT_EQ(page(0).most_allocated_bytes.load(), 0u);  // its limit alone bounds that
  EXPECT_EQ(Bytes(page(1).most_allocated_bytes.load()), MiB(60));
}

TEST_F(OversubscribeTest, OneWhoseDriverCannotHasTheBudgetAndIsToldWhy) {
  JoinAs(2, Begin(1, MiB(300)), 0);
  EXPECT_EQ(Bytes(Heard<wire::Registered>(2).limit_bytes), MiB(100));
  EXPECT_EQ(page(0).most_resident_bytes.load(), 0u);
  EXPECT_EQ(page(0).run_oversubscribes.load(), 1u);
  Say(2, wire::Reserve{1, MiB(101).count});
  EXPECT_EQ(Heard<wire::Reserved>(2).granted, 0);
}

// It tries with a session of its own, whose seat is still there.
TEST_F(OversubscribeTest, OneWhoseDriverTurnsOutNotToIsAsIfItCouldNot) {
  const uint64_t run = Begin(1, MiB(300));
  JoinAs(2, run, wire::Register::kCan);
  service_.OnDisconnected(2, now_);
  Connect(3, 12);
  Say(3, wire::Register{"0.1", run, kGpu, "train", 0, 0, 0});
  EXPECT_EQ(Bytes(Heard<wire::Registered>(3).limit_bytes), MiB(100));
  EXPECT_EQ(page(1).most_resident_bytes.load(), 0u);
  EXPECT_EQ(page(1).run_oversubscribes.load(), 1u);
  EXPECT_EQ(Bytes(page(1).limit_bytes.load()), MiB(100));
}

TEST_F(OversubscribeTest, OneThatHasMemoryGoesOnAsItDid) {
  const uint64_t run = Begin(1, MiB(300));
  JoinAs(2, run, wire::Register::kCan);
  Say(2, wire::Reserve{1, MiB(250).count});
  Connect(3, 12);
  Say(3, wire::Register{"0.1", run, kGpu, "train", MiB(120).count, 0, 0});
  EXPECT_EQ(Bytes(page(1).most_resident_bytes.load()), MiB(100));
}

TEST_F(OversubscribeTest, NobodyDoesWhoseRunWasNotToldTo) {
  Connect(1, 501);
  Say(1, wire::RunBegin{"0.1", "small", "train", MiB(50).count, 0});
  JoinAs(2, Heard<wire::RunStarted>(1).run, wire::Register::kCan);
  EXPECT_EQ(page(0).most_resident_bytes.load(), 0u);
  JoinAs(3, 0, wire::Register::kCan);
  JoinAs(4, 0, wire::Register::kDoes);  // it has no run
  EXPECT_EQ(page(1).most_resident_bytes.load(), 0u);
  EXPECT_EQ(page(2).most_resident_bytes.load(), 0u);
}

TEST_F(OversubscribeTest, ItsLimitHasABoundAndAnOrderMayChangeIt) {
  Connect(9, 9);
  wire::RunBegin begin{"0.1", "huge", "train", MiB(1601).count, 0};
  begin.oversubscribes = 1;
  Say(9, begin);
  EXPECT_EQ(Refusal(9), wire::RefusalCode::kLimitTooLarge);
  JoinAs(2, Begin(1, MiB(300)), wire::Register::kCan);
  Connect(10, 10);
  Say(10, wire::Control{"limit", "big", MiB(500).count});
  EXPECT_EQ(Bytes(Heard<wire::RunChanged>(1).limit_bytes), MiB(500));
  EXPECT_EQ(Bytes(page(0).limit_bytes.load()), MiB(500));
  Say(10, wire::Control{"limit", "big", 0});  // all that can be shared
  EXPECT_EQ(Bytes(page(0).limit_bytes.load()), MiB(100));
}

// Its `tandem run` comes back after it.
TEST_F(OversubscribeTest, OneFromBeforeARestartGoesOn) {
  JoinAs(2, 77, wire::Register::kDoes, MiB(250));
  EXPECT_GE(Bytes(page(0).limit_bytes.load()), MiB(250));
  EXPECT_EQ(Bytes(page(0).most_resident_bytes.load()), MiB(100));
  EXPECT_EQ(Ask("sessions")["sessions"][0]["allocated_bytes"], MiB(250).count);
  Begin(1, MiB(300), 77);
  EXPECT_EQ(Bytes(page(0).limit_bytes.load()), MiB(300));
  JoinAs(3, 77, wire::Register::kCan);
  EXPECT_EQ(Bytes(page(1).most_resident_bytes.load()), MiB(100));
}

}  // namespace
}  // namespace tandem::service
