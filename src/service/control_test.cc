// Orders: suspend, resume, limit. Permissions, targets, and what outlives the daemon.
#include "src/base/json.h"
#include "src/service/service_test.h"

namespace tandem::service {
namespace {

class ControlTest : public ServiceTest {
 protected:
  explicit ControlTest(Bytes foreign = {}) : ServiceTest(foreign) {}
  explicit ControlTest(ServiceConfig config) : ServiceTest(std::move(config)) {}

  static constexpr ConnectionId kPerson = 900;
  static constexpr ConnectionId kGuard = 800;

  // An order on a connection of its own.
  void Order(const char* what, const std::string& target, Bytes limit = {}, unsigned uid = 1000) {
    Connect(kPerson, 999, uid);
    Say(kPerson, wire::Control{what, target, limit.count});
  }
  // The sessions it concerned.
  Json Concerned() { return ParseJson(Heard<wire::Answer>(kPerson).json)["sessions"]; }
  uint64_t BeginRun(const char* name, ConnectionId guard = kGuard) {
    Connect(guard, static_cast<int>(guard));
    Say(guard, wire::RunBegin{"0.1", name, "python3", 0, 0, 0});
    return Heard<wire::RunStarted>(guard).run;
  }
  // Makes it hold the card with 60 MiB on it.
  void Work(ConnectionId id) {
    Say(id, wire::Reserve{1, MiB(60).count});
    Say(id, wire::Ready{MiB(60).count});
    Say(id, wire::Running{Heard<wire::Grant>(id).epoch, 0});
  }
  Json Session(size_t index) { return Ask("sessions")["sessions"].at(index); }
};

TEST_F(ControlTest, ASuspendedSessionLeavesTheCardAndComesBackWhenResumed) {
  Join(1, 11);
  Work(1);
  Order("suspend", "1");
  EXPECT_EQ(Concerned(), Json::array({1}));
  const uint64_t epoch = Heard<wire::Revoke>(1).epoch;
  EXPECT_EQ(Session(0)["state"], "suspending");
  EXPECT_EQ(pages_[0]->decisions_.suspended.load(), 1u);
  Say(1, wire::Released{epoch});
  EXPECT_EQ(Heard<wire::Evict>(1).target_bytes, 0u);
  Want(1, MiB(60));
  EXPECT_EQ(Session(0)["state"], "suspending");
  Say(1, wire::Evicted{0, MiB(60).count});
  EXPECT_EQ(Session(0)["state"], "suspended");
  EXPECT_EQ(Session(0)["reason"], nullptr);
  EXPECT_EQ(Ask("status")["gpus"][0]["suspended"], Json::array({1}));
  EXPECT_EQ(Ask("status")["gpus"][0]["waiting"], Json::array());
  now_ = now_ + Seconds(5);
  Order("resume", "1");
  EXPECT_EQ(Bytes(Heard<wire::Grant>(1).credit_bytes), MiB(60));
  EXPECT_EQ(pages_[0]->decisions_.suspended.load(), 0u);
  EXPECT_EQ(Session(0)["waited_s"], 0.0);  // it did not wait for others
}

TEST_F(ControlTest, WhatCannotBeSwappedStaysAndIsShown) {
  Join(1, 11);
  Say(1, wire::FixedWanted{1, MiB(20).count});
  EXPECT_EQ(Heard<wire::FixedReserved>(1).granted, 1);
  Order("suspend", "1");
  EXPECT_EQ(Concerned(), Json::array({1}));
  EXPECT_EQ(Session(0)["state"], "suspended");
  EXPECT_EQ(Session(0)["fixed_bytes"], MiB(20).count);
}

TEST_F(ControlTest, ARunsNameStandsForAllItHasAndGets) {
  const uint64_t run = BeginRun("mnist");
  Join(1, 11, run);
  Join(2, 12, run);
  Join(3, 13);
  Order("suspend", "mnist");
  EXPECT_EQ(Concerned(), Json::array({1, 2}));
  EXPECT_EQ(Heard<wire::RunChanged>(kGuard).suspended, 1);
  Join(4, 14, run);
  EXPECT_EQ(Session(3)["suspended"], true);
  EXPECT_EQ(Session(2)["suspended"], false);
  Order("resume", "4");  // alone
  EXPECT_EQ(Session(3)["suspended"], false);
  EXPECT_EQ(Session(0)["suspended"], true);
  Order("resume", std::to_string(run));
  EXPECT_EQ(Heard<wire::RunChanged>(kGuard).suspended, 0);
  EXPECT_EQ(Session(0)["suspended"], false);
  Join(5, 15, run);
  EXPECT_EQ(Session(4)["suspended"], false);
}

TEST_F(ControlTest, ALimitIsTheRunsAndShowsAtOnce) {
  const uint64_t run = BeginRun("mnist");
  Join(1, 11, run);
  Join(2, 12, run);
  Say(1, wire::Reserve{1, MiB(60).count});
  Order("limit", "2", MiB(50));
  for (const FakePages* pages : pages_) {
    EXPECT_EQ(Bytes(pages->decisions_.limit_bytes.load()), MiB(50));
  }
  EXPECT_EQ(Bytes(Heard<wire::RunChanged>(kGuard).limit_bytes), MiB(50));
  Say(1, wire::Reserve{2, MiB(61).count});
  EXPECT_EQ(Heard<wire::Reserved>(1).granted, 0);
  Say(1, wire::Ready{MiB(60).count});  // what it has it may use
  Heard<wire::Grant>(1);
  Join(3, 13, run);  // what the run starts later, too
  EXPECT_EQ(Bytes(Heard<wire::Registered>(3).limit_bytes), MiB(50));
  Order("limit", "mnist", MiB(101));
  EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kLimitTooLarge);
  Order("limit", "mnist");  // none any more
  EXPECT_EQ(Bytes(pages_[0]->decisions_.limit_bytes.load()), MiB(100));
}

TEST_F(ControlTest, ASessionOfNoRunHasALimitOfItsOwn) {
  Join(1, 11);
  Join(2, 12);
  Order("limit", "2", MiB(30));
  EXPECT_EQ(Bytes(pages_[0]->decisions_.limit_bytes.load()), MiB(100));
  EXPECT_EQ(Bytes(pages_[1]->decisions_.limit_bytes.load()), MiB(30));
}

TEST_F(ControlTest, OnlyItsUserAndRootGiveOrders) {
  Join(1, 11);
  BeginRun("mnist");
  for (const char* target : {"1", "mnist", "train"}) {
    for (const char* what : {"suspend", "resume", "limit"}) {
      Order(what, target, MiB(1), 1001);
      EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kNotYours) << what << " " << target;
      EXPECT_TRUE(Silent<wire::Answer>(kPerson));
    }
  }
  EXPECT_EQ(Session(0)["suspended"], false);
  EXPECT_EQ(Bytes(pages_[0]->decisions_.limit_bytes.load()), MiB(100));
  Order("suspend", "1", {}, 0);
  EXPECT_EQ(Session(0)["suspended"], true);
}

TEST_F(ControlTest, WhatIsNotClearIsAskedFor) {
  Order("suspend", "99");
  EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kUnknownTarget);
  Order("suspend", "");
  EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kUnknownTarget);
  EXPECT_FALSE(Closed(kPerson));
  Join(1, 11, BeginRun("twice"));
  Join(2, 12, BeginRun("twice", 801));
  Order("suspend", "twice");
  EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kUnknownTarget);
  EXPECT_NE(Heard<wire::Refused>(kPerson).reason.find(": 1 2"), std::string::npos);
  EXPECT_EQ(Session(0)["suspended"], false);
  Order("explode", "1");
  EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kProtocol);
  Say(1, wire::Control{"suspend", "2", 0});  // a session is no person
  EXPECT_TRUE(Closed(1));
}

TEST_F(ControlTest, RunsThatUseNoGpuYetAreTakenByTheirOwnNumbers) {
  const uint64_t first = BeginRun("twice");
  const uint64_t second = BeginRun("twice", 801);
  Order("suspend", "twice");
  const std::string reason = Heard<wire::Refused>(kPerson).reason;
  EXPECT_NE(reason.find(": " + std::to_string(first) + " " + std::to_string(second)),
            std::string::npos)
      << reason;
  Order("suspend", std::to_string(second));
  EXPECT_EQ(Heard<wire::RunChanged>(801).suspended, 1);
}

TEST_F(ControlTest, ALimitByTheNumberOfOneSessionNamesAllItConcerns) {
  const uint64_t run = BeginRun("mnist");
  Join(1, 11, run);
  Join(2, 12, run);
  Order("limit", "2", MiB(50));
  EXPECT_EQ(Concerned(), Json::array({1, 2}));
}

TEST_F(ControlTest, RegisteringAgainIsNoWayOutOfALimit) {
  Join(1, 11);
  Order("limit", "1", MiB(30));
  Join(2, 11);
  EXPECT_EQ(Bytes(Heard<wire::Registered>(2).limit_bytes), MiB(30));
  EXPECT_EQ(Bytes(pages_[1]->decisions_.limit_bytes.load()), MiB(30));
  const uint64_t run = BeginRun("mnist");
  Join(3, 13, run);
  Order("limit", "mnist", MiB(40));
  Join(4, 13);  // and none out of its run
  EXPECT_EQ(Bytes(Heard<wire::Registered>(4).limit_bytes), MiB(40));
  Order("limit", "mnist", MiB(20));
  EXPECT_EQ(Bytes(pages_[3]->decisions_.limit_bytes.load()), MiB(20));
}

TEST_F(ControlTest, AnOrderGivenBeforeTheGuardIsBackStands) {
  Connect(1, 11, 1000, true);
  Say(1, wire::Register{"0.1", 77, kGpu, "train", MiB(10).count, 0, 1, 0});
  Order("limit", "1", MiB(30));
  Order("suspend", "77");
  Connect(kGuard, 80, 1000, true);
  Say(kGuard, wire::RunBegin{"0.1", "mnist", "python3", MiB(70).count, 77, 0});
  EXPECT_EQ(Bytes(Heard<wire::RunStarted>(kGuard).limit_bytes), MiB(30));
  EXPECT_EQ(Bytes(Heard<wire::RunChanged>(kGuard).limit_bytes), MiB(30));
  EXPECT_EQ(Heard<wire::RunChanged>(kGuard).suspended, 1);
  EXPECT_EQ(Bytes(pages_[0]->decisions_.limit_bytes.load()), MiB(30));
  EXPECT_EQ(Session(0)["suspended"], true);
}

TEST_F(ControlTest, WhatNoOrderWasAboutTheGuardSays) {
  Connect(1, 11, 1000, true);
  Say(1, wire::Register{"0.1", 77, kGpu, "train", MiB(10).count, 0, 1, 0});
  Order("suspend", "77");
  Connect(kGuard, 80, 1000, true);
  Say(kGuard, wire::RunBegin{"0.1", "mnist", "python3", MiB(70).count, 77, 0});
  EXPECT_EQ(Bytes(Heard<wire::RunChanged>(kGuard).limit_bytes), MiB(70));
  EXPECT_EQ(Bytes(pages_[0]->decisions_.limit_bytes.load()), MiB(70));
}

TEST_F(ControlTest, AProgramThatCannotSayItIsSuspendedIsAsItsRun) {
  for (const ConnectionId id : {1, 2}) {  // of version 2, from before a restart
    Connect(id, 10 + static_cast<int>(id), 1000, true);
    Say(id, wire::Register{"0.1", 77, kGpu, "train", MiB(10).count, 0, 1});
  }
  Order("resume", "2");  // before the service knows of the run
  Connect(kGuard, 80, 1000, true);
  Say(kGuard, wire::RunBegin{"0.1", "mnist", "python3", 0, 77, 1});
  EXPECT_EQ(Session(0)["suspended"], true);
  EXPECT_EQ(Session(1)["suspended"], false);
  Connect(3, 13, 1000, true);
  Say(3, wire::Register{"0.1", 77, kGpu, "train", MiB(10).count, 0, 1});
  EXPECT_EQ(Session(2)["suspended"], true);
}

TEST_F(ControlTest, WhatRootSuspendsOnlyRootResumes) {
  const uint64_t run = BeginRun("mnist");
  Join(1, 11, run);
  Order("suspend", "mnist", {}, 0);
  EXPECT_EQ(Concerned(), Json::array({1}));
  Order("resume", "mnist");
  EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kNotYours);
  EXPECT_EQ(Heard<wire::Refused>(kPerson).reason,
            "root has suspended \"mnist\": only root can resume it");
  Order("suspend", "1");  // does not make it the user's order
  Order("resume", "1");
  EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kNotYours);
  EXPECT_EQ(Session(0)["suspended_by_uid"], 0);
  Order("resume", "mnist", {}, 0);
  EXPECT_EQ(Session(0)["suspended"], false);
  Order("suspend", "1");
  EXPECT_EQ(Session(0)["suspended_by_uid"], 1000);
  Order("resume", "1");
  EXPECT_EQ(Session(0)["suspended"], false);
}

class LoggedControlTest : public ControlTest {
 protected:
  LoggedControlTest() : ControlTest(Noting(&lines_)) {}
  static ServiceConfig Noting(std::vector<std::string>* lines) {
    ServiceConfig config = Config({}, {}, GiB(1), false, {}, nullptr);
    config.note = [lines](const std::string& line) { lines->push_back(line); };
    return config;
  }
  std::vector<std::string> lines_;
};

TEST_F(LoggedControlTest, EveryOrderIsInTheLogWithItsResult) {
  Join(1, 11);
  lines_.clear();
  Order("suspend", "1");
  Order("limit", "1", MiB(40));
  Order("resume", "train", {}, 2000);
  Order("policy", "all");
  EXPECT_EQ(lines_,
            (std::vector<std::string>{
                "order of user 1000, process 999: suspend \"1\": obeyed",
                "order of user 1000, process 999: limit \"1\" 40 MiB: obeyed",
                "order of user 2000, process 999: resume \"train\": refused, \"train\" belongs "
                "to user 1000: only that user and root may do this",
                "order of user 1000, process 999: policy \"all\": refused, only root or the "
                "daemon's owner can change the policy",
            }));
  lines_.clear();
  for (int i = 0; i < 1000; ++i) Order("suspend", "nothing");
  EXPECT_LE(lines_.size(), size_t{LogRate::kBurst});
  Order("suspend", "1", {}, 2000);
  EXPECT_NE(lines_.back().find("order of user 2000"), std::string::npos);
}

TEST_F(ControlTest, WhatRootLimitsOnlyRootLimitsAgain) {
  const uint64_t run = BeginRun("mnist");
  Join(1, 11, run);
  Join(2, 12);
  EXPECT_EQ(Session(0)["limited_by_uid"], nullptr);
  for (const char* target : {"mnist", "2"}) {
    const size_t index = *target == '2' ? 1 : 0;
    Order("limit", target, MiB(50));
    EXPECT_EQ(Session(index)["limited_by_uid"], 1000);
    Order("limit", target, MiB(40), 0);
    Order("limit", target, MiB(60));
    EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kNotYours);
    EXPECT_EQ(Session(index)["limit_bytes"], MiB(40).count);
    EXPECT_EQ(Session(index)["limited_by_uid"], 0);
    EXPECT_TRUE(Session(index)["limited_since"].is_string());
  }
}

class RestartedControlTest : public ControlTest {
 protected:
  RestartedControlTest() : ControlTest(MiB(76)) {}
};

TEST_F(RestartedControlTest, WhatASessionAndARunBringFromBeforeARestartHolds) {
  Connect(1, 11, 1000, true);
  Say(1, wire::Register{"0.1", 77, kGpu, "train", MiB(60).count, MiB(60).count, 1, 1});
  EXPECT_EQ(Heard<wire::Evict>(1).target_bytes, 0u);
  Connect(2, 12, 1000, true);  // resumed alone, before
  Say(2, wire::Register{"0.1", 77, kGpu, "train", MiB(10).count, 0, 1, 0});
  Connect(kGuard, 80, 1000, true);
  Say(kGuard, wire::RunBegin{"0.1", "mnist", "python3", MiB(70).count, 77, 1});
  EXPECT_EQ(Session(0)["suspended"], true);
  EXPECT_EQ(Session(1)["suspended"], false);
  Join(3, 13, 77);
  EXPECT_EQ(Session(2)["suspended"], true);
}

TEST_F(ControlTest, WhoeverComesBackToTheSameDaemonIsAsItWas) {
  Join(1, 11);
  Order("suspend", "1");
  Connect(2, 11);
  Say(2, wire::Register{"0.1", 0, kGpu, "train", 0, 0, 0, 0});
  EXPECT_EQ(Session(0)["suspended"], true);
}

TEST_F(ControlTest, WaitersAreToldWhoDoesNotAnswerAndWhatItKeeps) {
  Join(1, 11);
  Work(1);
  Join(2, 12);
  Want(2, MiB(60));
  Join(3, 13);
  Want(3, MiB(30));  // fits beside it
  now_ = now_ + Seconds(10);
  said_ = service_.OnTick(now_);
  Heard<wire::Revoke>(1);
  now_ = now_ + Seconds(10);
  service_.OnTick(now_);
  EXPECT_EQ(Session(0)["state"], "stuck");
  const std::string why = Session(1)["reason"];
  EXPECT_NE(why.find("session 1 does not answer and keeps 60 MiB"), std::string::npos) << why;
  EXPECT_EQ(Session(2)["reason"], nullptr);
}

// For programs that ask NVML.
TEST_F(ControlTest, ARunIsShownItsLimitAndItsOwnProcesses) {
  const uint64_t run = BeginRun("mnist");
  Join(1, 11, run);
  Join(2, 12, run);
  Join(3, 13);
  Say(1, wire::Reserve{1, MiB(20).count});
  Say(2, wire::Reserve{1, MiB(10).count});
  Say(3, wire::Reserve{1, MiB(30).count});
  Order("limit", "mnist", MiB(50));
  Connect(4, 11);  // the same process, beside its session
  Say(4, wire::RunQuery{run, kGpu});
  const auto shown = Heard<wire::RunShown>(4);
  EXPECT_EQ(Bytes(shown.limit_bytes), MiB(50));
  EXPECT_EQ(Bytes(shown.used_bytes), MiB(30));
  const std::string twenty = std::to_string(MiB(20).count), ten = std::to_string(MiB(10).count);
  EXPECT_EQ(shown.processes, "11 " + twenty + "\n12 " + ten + "\n");
  Say(4, wire::RunQuery{run, "GPU-none"});
  EXPECT_EQ(Refusal(4), wire::RefusalCode::kUnknownDevice);
  Connect(5, 99, /*uid=*/2000);  // another user's run of that number is another run
  Say(5, wire::RunQuery{run, kGpu});
  EXPECT_EQ(Refusal(5), wire::RefusalCode::kUnknownTarget);
}

}  // namespace
}  // namespace tandem::service
