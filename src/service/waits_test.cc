// How sessions stand, and what those who watch a wait are told of it.
#include <algorithm>
#include <regex>

#include "src/service/service_test.h"

namespace tandem::service {
namespace {

class WaitsTest : public ServiceTest {
 protected:
  static constexpr ConnectionId kGuard = 800;

  uint64_t BeginRun(const char* name) {
    Connect(kGuard, 80);
    Say(kGuard, wire::RunBegin{"0.1", name, "python3", 0, 0, 0});
    const uint64_t run = Heard<wire::RunStarted>(kGuard).run;
    Say(kGuard, wire::WatchWaits{run});
    return run;
  }
  // Connection 1 holds the card, all of it, as "film", for as long as it works.
  void Hold() {
    Connect(900, 90, 0);
    Say(900, wire::Control{"policy", "gpu0", 0, "fcfs"});
    Connect(700, 70);
    Say(700, wire::RunBegin{"0.1", "film", "ffmpeg", 0, 0, 0});
    Join(1, 11, Heard<wire::RunStarted>(700).run);
    Want(1, MiB(90));
    epoch_ = Heard<wire::Grant>(1).epoch;
    Say(1, wire::Running{epoch_, 0});
  }
  void Later(Duration duration) {
    now_ = now_ + duration;
    ASSERT_TRUE(service_.wake().has_value());
    said_ = service_.OnTick(now_);
  }
  Json Session(size_t index) { return Ask("sessions")["sessions"].at(index); }

  uint64_t epoch_ = 0;
};

TEST_F(WaitsTest, AfterASecondTheRunIsToldWhatItsSessionWaitsFor) {
  Hold();
  Join(2, 12, BeginRun("mnist"));
  Want(2, MiB(50));
  EXPECT_TRUE(Silent<wire::Waiting>(kGuard));
  EXPECT_LE(*service_.wake(), now_ + Seconds(1));
  Later(Seconds(1));
  const auto waiting = Heard<wire::Waiting>(kGuard);
  EXPECT_EQ(waiting.state, "waiting");
  EXPECT_EQ(waiting.reason, "turn");
  EXPECT_EQ(waiting.gpu, "gpu0");
  EXPECT_EQ(waiting.name, "mnist");
  EXPECT_EQ(waiting.session, 2u);
  EXPECT_EQ(waiting.pid, 12u);
  EXPECT_EQ(waiting.place, 1u);
  EXPECT_EQ(waiting.holder, "film");
  EXPECT_EQ(waiting.holders, 1u);
  EXPECT_EQ(waiting.waited_ms, 1000u);
}

TEST_F(WaitsTest, TheEndOfAWaitIsToldAtOnce) {
  Hold();
  Join(2, 12, BeginRun("mnist"));
  Want(2, MiB(50));
  Later(Seconds(30));
  EXPECT_EQ(Heard<wire::Waiting>(kGuard).state, "waiting");
  Say(1, wire::Released{epoch_});
  const uint64_t epoch = Heard<wire::Grant>(2).epoch;
  EXPECT_TRUE(Silent<wire::Waiting>(kGuard));  // its memory is still to come
  EXPECT_EQ(Session(1)["state"], "waiting");
  Say(1, wire::Evicted{0, 0});
  EXPECT_EQ(Session(1)["state"], "restoring");
  Say(2, wire::Running{epoch, 0});
  EXPECT_EQ(Heard<wire::Waiting>(kGuard).state, "");
  EXPECT_EQ(Session(1)["state"], "running");
}

TEST_F(WaitsTest, AProcessThatEndsWaitsNoMore) {
  Hold();
  Join(2, 12, BeginRun("mnist"));
  Want(2, MiB(50));
  Later(Seconds(2));
  said_ = service_.OnProcessGone(12, now_);
  EXPECT_EQ(Heard<wire::Waiting>(kGuard).state, "");
}

TEST_F(WaitsTest, AShortWaitIsNotTold) {
  Hold();
  Join(2, 12, BeginRun("mnist"));
  Want(2, MiB(50));
  Say(2, wire::Reserve{2, 0});
  Later(Milliseconds(500));
  EXPECT_TRUE(Silent<wire::Waiting>(kGuard));
}

TEST_F(WaitsTest, AProcessMayWatchItself) {
  Hold();
  Join(2, 12);
  Connect(3, 12);
  Say(3, wire::WatchWaits{});
  Connect(4, 13);
  Say(4, wire::WatchWaits{});
  Want(2, MiB(50));
  Later(Seconds(1));
  EXPECT_EQ(Heard<wire::Waiting>(3).session, 2u);
  EXPECT_TRUE(Silent<wire::Waiting>(4));  // another process
}

TEST_F(WaitsTest, WhatHasNotChangedIsNotToldAgain) {
  Hold();
  Join(2, 12, BeginRun("mnist"));
  Want(2, MiB(50));
  Later(Seconds(1));
  EXPECT_EQ(Heard<wire::Waiting>(kGuard).expected_ms, wire::Waiting::kUnknown);
  Later(Seconds(1));
  EXPECT_TRUE(Silent<wire::Waiting>(kGuard));
}

TEST_F(WaitsTest, SuspendedSessionsAreToldByWhom) {
  const uint64_t run = BeginRun("mnist");
  Connect(901, 91, 0);
  Say(901, wire::Control{"suspend", "mnist"});
  Join(2, 12, run);
  Want(2, MiB(50));
  Later(Seconds(1));
  const auto waiting = Heard<wire::Waiting>(kGuard);
  EXPECT_EQ(waiting.state, "suspended");
  EXPECT_EQ(waiting.suspended_by, 0u);
  EXPECT_EQ(Session(0)["suspended_by_uid"], 0);
}

TEST_F(WaitsTest, TheUserMayEndTheWait) {
  Hold();
  const uint64_t run = BeginRun("mnist");
  Join(2, 12, run);
  Join(3, 13, run);
  Want(2, MiB(50));
  Say(kGuard, wire::EndWait{run});
  Heard<wire::EndProgram>(2);
  EXPECT_TRUE(Silent<wire::EndProgram>(3));  // it does not wait
  Connect(801, 81, 2000);
  Say(801, wire::EndWait{run});
  EXPECT_TRUE(Silent<wire::EndProgram>(2));  // another user's
}

TEST_F(WaitsTest, WaitingUnderALeaseIsWaiting) {
  Join(1, 11);
  Want(1, MiB(50));
  Say(1, wire::Running{Heard<wire::Grant>(1).epoch, 0});
  Join(2, 12);
  Want(2, MiB(50));
  Say(2, wire::Running{Heard<wire::Grant>(2).epoch, 0});
  EXPECT_EQ(Ask("status")["gpus"][0]["holders"], Json::array({1, 2}));
  Want(1, MiB(70));
  now_ = now_ + Seconds(3);
  const Json session = Session(0);
  EXPECT_EQ(session["state"], "waiting");
  EXPECT_EQ(session["reason_code"], "turn");
  EXPECT_EQ(session["waited_s"], 3.0);
  EXPECT_EQ(session["held_by"], Json::array({2}));
  EXPECT_EQ(Ask("status")["gpus"][0]["holders"], Json::array({2}));
  EXPECT_EQ(Ask("status")["gpus"][0]["waiting"], Json::array({1}));
  said_ = service_.OnTick(now_);
  Heard<wire::Revoke>(2);
  EXPECT_EQ(Session(0)["reason_code"], "memory");
  EXPECT_EQ(Session(0)["reason"], "others are still freeing memory");
}

TEST_F(WaitsTest, ARunIsListedFromItsStart) {
  const uint64_t run = BeginRun("mnist");
  now_ = now_ + Seconds(5);
  const Json runs = Ask("sessions")["runs"];
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["name"], "mnist");
  EXPECT_EQ(runs[0]["state"], "unused");
  EXPECT_EQ(runs[0]["run"], run);
  EXPECT_EQ(runs[0]["elapsed_s"], 5.0);
  Join(2, 12, run);
  EXPECT_EQ(Ask("sessions")["runs"], Json::array());
}

TEST_F(WaitsTest, TimesAreRfc3339) {
  Join(1, 11);
  const std::string since = Session(0)["since"];
  EXPECT_EQ(since, "1970-01-01T00:00:01.000000Z");
}

}  // namespace
}  // namespace tandem::service
