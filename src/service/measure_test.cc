// What the cards say of their memory, and what follows for the budget.
#include "src/base/json.h"
#include "src/service/service_test.h"

namespace tandem::service {
namespace {

// 30 MiB are in use at the start: the budget is 70 MiB.
class MeasureTest : public ServiceTest {
 protected:
  MeasureTest() : ServiceTest(Measuring()) { now_ = Instant(); }

  static ServiceConfig Measuring() {
    ServiceConfig config = Config(MiB(30), {}, GiB(1), false, {}, nullptr);
    config.measures = true;
    config.random_token = [] { return uint64_t{7}; };
    return config;
  }
  // `used` of the card are in use, of which `ours` are of process 11.
  void Measured(Bytes used, CardUse::Range ours, Instant asked_at) {
    CardUses uses;
    uses.asked_at = asked_at;
    uses.of[kGpu] = {MiB(134) - used, {{11, ours}, {4711, {MiB(1), MiB(1)}}}};
    said_ = service_.OnMeasured(uses, now_);
  }
  void Measured(Bytes used, Bytes ours) { Measured(used, {ours, ours}, now_); }
  Bytes Budget() { return Bytes(Ask("status")["gpus"][0]["budget_bytes"].get<uint64_t>()); }
  Bytes Foreign() { return Bytes(Ask("status")["gpus"][0]["foreign_bytes"].get<uint64_t>()); }
  void Pass(Duration time) {
    now_ = now_ + time;
    said_ = service_.OnTick(now_);
  }
};

TEST_F(MeasureTest, TheBudgetFollowsWhatOthersHold) {
  EXPECT_EQ(Budget(), MiB(70));
  Measured(MiB(10), Bytes());
  EXPECT_EQ(Budget(), MiB(90));
  EXPECT_EQ(Foreign(), MiB(10));
  Measured(MiB(50), Bytes());
  EXPECT_EQ(Budget(), MiB(50));
  EXPECT_TRUE(service_.WantsMeasurement(now_ + Seconds(5)));  // a change may be short-lived
}

TEST_F(MeasureTest, AGpuThatTheDriverHasLostIsNotHealthy) {
  const auto healthy = [&] { return Ask("status")["gpus"][0]["healthy"].get<bool>(); };
  service_.OnMeasured({now_, {}}, now_);
  EXPECT_TRUE(healthy());  // the driver may never tell its use
  Measured(MiB(30), Bytes());
  EXPECT_TRUE(healthy());
  service_.OnMeasured({now_, {}}, now_);
  EXPECT_FALSE(healthy());
  Measured(MiB(30), Bytes());
  EXPECT_TRUE(healthy());
}

TEST_F(MeasureTest, WhatSessionsHaveIsNotOthers) {
  Pass(kSettling);
  Join(1, 11);
  Want(1, MiB(40));
  Measured(MiB(78), MiB(48));  // with its context
  EXPECT_EQ(Budget(), MiB(70));
  Measured(MiB(48), MiB(48));
  EXPECT_EQ(Budget(), MiB(100));
  EXPECT_EQ(Bytes(pages_[0]->decisions_.limit_bytes.load()), MiB(100));
}

TEST_F(MeasureTest, WhatMovesMeanwhileChangesNothing) {
  Pass(kSettling);
  Join(1, 11);
  Measured(MiB(70), {MiB(30), MiB(50)}, now_);  // 20 to 40 are others'
  EXPECT_EQ(Foreign(), MiB(30));
  Measured(MiB(70), {MiB(42), MiB(50)}, now_);
  EXPECT_EQ(Foreign(), MiB(28));
}

TEST_F(MeasureTest, WhereTheNumbersOfProcessesAreOthersNothingFollows) {
  Pass(kSettling);
  Join(1, 11);
  Join(2, 12);
  Say(1, wire::ContextWanted{});
  Measured(MiB(40), MiB(20));
  EXPECT_EQ(Foreign(), MiB(20));
  Say(2, wire::ContextWanted{});  // of process 12 NVML says nothing
  Measured(MiB(80), MiB(20));
  EXPECT_EQ(Foreign(), MiB(20));
  EXPECT_EQ(Budget(), MiB(80));
}

TEST_F(MeasureTest, APromiseIsKept) {
  Pass(kSettling);
  Join(1, 11);
  Want(1, MiB(60));
  Measured(MiB(134), MiB(60));  // others have taken all that was left
  EXPECT_EQ(Budget(), MiB(60));
  Join(2, 12);
  Measured(MiB(134), MiB(60));
  Say(2, wire::Reserve{1, MiB(61).count});
  Measured(MiB(134), MiB(60));
  EXPECT_EQ(Heard<wire::Reserved>(2).granted, 0);
  Say(2, wire::Reserve{2, MiB(60).count});
  EXPECT_EQ(Heard<wire::Reserved>(2).granted, 1);
  Measured(MiB(60), MiB(60));
  EXPECT_EQ(Budget(), MiB(100));
}

TEST_F(MeasureTest, WhenItIsMeasured) {
  EXPECT_TRUE(service_.WantsMeasurement(now_));  // at the start
  service_.OnMeasuring(now_);
  EXPECT_FALSE(service_.WantsMeasurement(now_ + Seconds(9)));
  EXPECT_TRUE(service_.WantsMeasurement(now_ + Seconds(10)));
  Pass(kSettling);
  Join(1, 11);
  service_.OnProcessGone(11, now_);
  EXPECT_TRUE(service_.WantsMeasurement(now_));
  const Instant asked_at = now_;
  service_.OnMeasuring(now_);
  Pass(Milliseconds(1));
  Join(2, 12);
  Say(2, wire::ContextWanted{});
  service_.OnProcessGone(12, now_);  // its memory may be in the answer
  Measured(MiB(100), {}, asked_at);
  EXPECT_EQ(Foreign(), MiB(30));
  EXPECT_TRUE(service_.WantsMeasurement(now_ + Milliseconds(200)));
  // And while a session waits.
  service_.OnMeasuring(now_);
  Join(3, 13);
  Join(4, 14);
  Want(3, MiB(60));
  EXPECT_FALSE(service_.WantsMeasurement(now_ + Seconds(5)));
  Want(4, MiB(60));
  EXPECT_TRUE(service_.WantsMeasurement(now_ + Seconds(5)));
}

TEST_F(MeasureTest, ASessionBeginsWithWhatOthersHoldNow) {
  Measured(MiB(30), Bytes());
  Pass(Seconds(4));
  Join(1, 11);
  EXPECT_TRUE(Silent<wire::Registered>(1));
  EXPECT_TRUE(service_.WantsMeasurement(now_));
  service_.OnMeasuring(now_);
  Measured(Bytes(), Bytes());  // they have ended
  EXPECT_EQ(Bytes(Heard<wire::Registered>(1).limit_bytes), MiB(100));
}

TEST_F(MeasureTest, ASessionBeginsAtOnceWhereOthersHoldNothing) {
  Measured(Bytes(), Bytes());
  Pass(Seconds(4));
  Join(1, 11);
  EXPECT_EQ(Bytes(Heard<wire::Registered>(1).limit_bytes), MiB(100));
}

TEST_F(MeasureTest, ACardThatDoesNotAnswerIsNotWaitedForLongerThanASecond) {
  Measured(MiB(30), Bytes());
  Pass(Seconds(4));
  Join(1, 11);
  ASSERT_TRUE(service_.wake().has_value());
  EXPECT_LE(*service_.wake(), now_ + kMeasurementPatience);
  Pass(kMeasurementPatience);
  EXPECT_EQ(Bytes(Heard<wire::Registered>(1).limit_bytes), MiB(70));
}

TEST_F(MeasureTest, AnAnswerToAnOlderQuestionIsNotFresh) {
  Measured(MiB(30), Bytes());
  Pass(Seconds(4));
  const Instant before = now_;
  Pass(Milliseconds(10));
  Join(1, 11);
  Measured(MiB(30), {Bytes(), Bytes()}, before);
  EXPECT_TRUE(Silent<wire::Registered>(1));
  EXPECT_TRUE(service_.WantsMeasurement(now_));
  Measured(Bytes(), Bytes());
  EXPECT_EQ(Bytes(Heard<wire::Registered>(1).limit_bytes), MiB(100));
}

TEST_F(MeasureTest, MemoryIsRefusedForOthersOnlyIfTheyStillHoldIt) {
  Pass(kSettling);
  Join(1, 11);
  Measured(MiB(30), Bytes());
  service_.OnMeasuring(now_);
  Pass(Seconds(1));
  Say(1, wire::Reserve{1, MiB(60).count});
  EXPECT_EQ(Heard<wire::Reserved>(1).granted, 1);  // fits beside them
  Say(1, wire::Reserve{2, MiB(90).count});
  EXPECT_TRUE(Silent<wire::Reserved>(1));
  service_.OnMeasuring(now_);
  Measured(MiB(30), Bytes());
  EXPECT_EQ(Heard<wire::Reserved>(1).granted, 0);
  Pass(Seconds(1));
  Say(1, wire::Reserve{3, MiB(90).count});
  service_.OnMeasuring(now_);
  Measured(Bytes(), Bytes());
  EXPECT_EQ(Heard<wire::Reserved>(1).granted, 1);
}

TEST_F(MeasureTest, ALimitThatOthersMemoryForbidsIsMeasuredFirst) {
  Pass(kSettling);
  Measured(MiB(30), Bytes());
  Connect(7, 70);
  wire::RunBegin begin;
  begin.limit_bytes = MiB(90).count;
  Say(7, begin);
  EXPECT_TRUE(said_.empty());
  EXPECT_TRUE(service_.WantsMeasurement(now_));
  now_ = now_ + Milliseconds(10);
  Measured(Bytes(), Bytes());
  EXPECT_EQ(Bytes(Heard<wire::RunStarted>(7).limit_bytes), MiB(90));
}

TEST_F(MeasureTest, ALimitThatOthersMemoryAllowsIsNotMeasured) {
  Pass(kSettling);
  Measured(MiB(30), Bytes());
  Connect(7, 70);
  wire::RunBegin begin;
  begin.limit_bytes = MiB(60).count;
  Say(7, begin);
  EXPECT_EQ(Bytes(Heard<wire::RunStarted>(7).limit_bytes), MiB(60));
}

// A container gets all that can be shared, which its runtime asks for.
TEST_F(MeasureTest, WhatLeasesCanHaveIsMeasuredFirst) {
  Pass(kSettling);
  Measured(MiB(30), Bytes());
  Connect(7, 70);
  Say(7, wire::Query{"leases"});
  EXPECT_TRUE(said_.empty());
  EXPECT_TRUE(service_.WantsMeasurement(now_));
  now_ = now_ + Milliseconds(10);
  Measured(Bytes(), Bytes());
  const Json leases = ParseJson(Heard<wire::Answer>(7).json);
  EXPECT_EQ(Bytes(leases["gpus"][0]["budget_bytes"].get<uint64_t>()), MiB(100));
}

}  // namespace
}  // namespace tandem::service
