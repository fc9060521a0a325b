// Leases that go to another GPU while programs use them: what the daemon orders, and what it
// counts where.
#include "src/base/json.h"
#include "src/service/service_test.h"

namespace tandem::service {
namespace {

constexpr char kOther[] = "GPU-2";

// Two cards alike: a budget of 100 MiB, contexts of 8.
class LeaseMovesTest : public ServiceTest {
 protected:
  LeaseMovesTest() : ServiceTest(TwoGpus(this)) {
    now_ = now_ + kRunPatience;
    service_.OnTick(now_);
    Connect(500, 500, 0);
    Say(500, wire::Control{"lease", "7", 0,
                           JsonText({{"version", 1},
                                     {"job", "7"},
                                     {"uid", 1000},
                                     {"gpus", {0}},
                                     {"memory_request_bytes", MiB(40).count}})});
    run_ = ParseJson(Heard<wire::Answer>(500).json)["token"];
  }

  static ServiceConfig TwoGpus(LeaseMovesTest* test) {
    ServiceConfig config = Config({}, {}, GiB(1), false, {}, &test->token_);
    config.gpus.push_back(config.gpus[0]);
    config.gpus[1].index = 1;
    config.gpus[1].uuid = kOther;
    return config;
  }
  // A program of the lease with a context, 20 MiB that can be swapped, and 3 that cannot.
  void Start(ConnectionId id, int pid) {
    Join(id, pid, run_);
    Say(id, wire::ContextWanted{});
    Say(id, wire::Reserve{1, MiB(20).count});
    Say(id, wire::FixedWanted{1, MiB(3).count});
    EXPECT_EQ(Heard<wire::FixedReserved>(id).granted, 1);
  }
  void Suspend() { Say(500, wire::Control{"suspend", "job-7", 0, ""}); }
  // The answer; "moving" in it has the processes that are still elsewhere.
  Json Move(int gpu = 1) {
    Say(500, wire::Control{"move-lease", "7", 0, std::to_string(gpu)});
    return ParseJson(Heard<wire::Answer>(500).json);
  }
  std::string RefusedToMove(int gpu = 1) {
    Say(500, wire::Control{"move-lease", "7", 0, std::to_string(gpu)});
    return Heard<wire::Refused>(500).reason;
  }
  // As the program does, on a new connection.
  void Arrive(ConnectionId id, int pid, const char* on = kOther, const char* from = kGpu) {
    Connect(id, pid);
    wire::Register hello{"0.1", run_, on, "train", MiB(20).count, 0, 1, 1, MiB(3).count};
    hello.moved_from = from;
    Say(id, hello);
  }
  // What Start() has given to the program on connection 1, which is closed.
  void ExpectAllOnOtherGpu() {
    EXPECT_TRUE(Closed(1));
    const Json sessions = Ask("sessions")["sessions"];
    ASSERT_EQ(sessions.size(), 1u);
    EXPECT_EQ(sessions[0]["gpu"], 1);
    EXPECT_EQ(sessions[0]["state"], "suspended");
    EXPECT_EQ(sessions[0]["allocated_bytes"], MiB(20).count);
    EXPECT_EQ(sessions[0]["fixed_bytes"], MiB(3).count);
    EXPECT_EQ(sessions[0]["contexts"], 1);
  }
  // Its lease ends on its way; it has all that it had, and can go on.
  void ArriveWithoutLease(uint64_t token) {
    Start(1, 11);
    Suspend();
    Move();
    Say(500, wire::Control{"end-lease", "7", 0, ""});
    EXPECT_EQ(ParseJson(Heard<wire::Answer>(500).json)["sessions"].size(), 1u);
    run_ = token;
    Arrive(2, 11);
    ExpectAllOnOtherGpu();
    Say(500, wire::Control{"resume", "job-7", 0, ""});
    Say(2, wire::Ready{MiB(20).count});
    EXPECT_EQ(Heard<wire::Grant>(2).credit_bytes, MiB(20).count);
  }
  Json LeaseGpus() { return Ask("leases")["leases"][0]["gpus"]; }
  void Pass(Duration time) {
    now_ = now_ + time;
    said_ = service_.OnTick(now_);
  }

  uint64_t run_ = 0;
};

TEST_F(LeaseMovesTest, AProcessTakesAllItHasToTheOtherGpu) {
  Start(1, 11);
  Suspend();
  EXPECT_EQ(Move()["moving"], Json::array({11}));
  EXPECT_EQ(Heard<wire::Move>(1).device, kOther);
  EXPECT_EQ(LeaseGpus(), Json::array({0, 1}));
  EXPECT_EQ(Move()["moving"], Json::array({11}));
  EXPECT_TRUE(Silent<wire::Move>(1));  // it has been told
  Arrive(2, 11);
  EXPECT_EQ(Heard<wire::Registered>(2).limit_bytes, MiB(40).count);
  ExpectAllOnOtherGpu();
  const Json moved = Move();
  EXPECT_FALSE(moved.contains("moving"));
  EXPECT_EQ(moved["gpus"], Json::array({1}));
  // Its memory counts there, and nothing is left of it here, nor of the room that was kept.
  Suspend();
  Join(3, 12);
  Want(3, MiB(100));
  EXPECT_EQ(Heard<wire::Grant>(3).credit_bytes, MiB(100).count);
  Say(500, wire::Control{"resume", "job-7", 0, ""});
  Say(2, wire::Ready{MiB(20).count});
  EXPECT_EQ(Heard<wire::Grant>(2).credit_bytes, MiB(20).count);
}

TEST_F(LeaseMovesTest, OnlyASuspendedLeaseMovesWithItsPrograms) {
  Start(1, 11);
  EXPECT_EQ(RefusedToMove(), "process 11 uses gpu0: take that away with `tandem detach` first");
  EXPECT_EQ(LeaseGpus(), Json::array({0}));
  EXPECT_FALSE(Move(0).contains("moving"));  // it is there
  Suspend();
  EXPECT_EQ(RefusedToMove(7), "there is no gpu7");
}

TEST_F(LeaseMovesTest, AProcessMovesOnceItsMemoryHasLeft) {
  Start(1, 11);
  Say(1, wire::Ready{MiB(20).count});
  Say(1, wire::Running{Heard<wire::Grant>(1).epoch, 0});
  Suspend();
  EXPECT_EQ(Move()["moving"], Json::array({11}));
  EXPECT_TRUE(Silent<wire::Move>(1));
  Say(1, wire::Released{1});
  Say(1, wire::Evicted{0, MiB(20).count});
  Move();
  EXPECT_EQ(Heard<wire::Move>(1).device, kOther);
}

TEST_F(LeaseMovesTest, RoomForItsContextIsKeptThere) {
  Start(1, 11);
  Suspend();
  Connect(3, 12);
  Say(3, wire::Register{"0.1", 0, kOther, "train", 0, 0, 0});
  Want(3, MiB(95));  // a context of 8 and 3 MiB do not fit beside it
  const auto granted = Heard<wire::Grant>(3);
  Say(3, wire::Running{granted.epoch, 0});
  EXPECT_EQ(Move()["moving"], Json::array({11}));
  EXPECT_TRUE(Silent<wire::Move>(1));
  Pass(Seconds(30));
  EXPECT_EQ(RefusedToMove(),
            "process 11 stays on gpu0: gpu1 has no room for the 11 MiB of it that cannot be "
            "swapped");
  EXPECT_EQ(LeaseGpus(), Json::array({0}));
  service_.OnProcessGone(12, now_);
  Move();
  EXPECT_EQ(Heard<wire::Move>(1).device, kOther);
  // Who comes meanwhile does not get that room.
  Connect(4, 13);
  Say(4, wire::Register{"0.1", 0, kOther, "train", 0, 0, 0});
  EXPECT_EQ(Heard<wire::Registered>(4).limit_bytes, MiB(89).count);
}

TEST_F(LeaseMovesTest, AProcessThatCannotMoveStays) {
  Start(1, 11);
  Suspend();
  Move();
  Say(1, wire::NotMoved{"the driver is too old\n"});
  EXPECT_EQ(RefusedToMove(), "process 11 stays on gpu0: the driver is too old\\x0a");
  EXPECT_EQ(LeaseGpus(), Json::array({0}));
  Connect(4, 13);
  Say(4, wire::Register{"0.1", 0, kOther, "train", 0, 0, 0});
  EXPECT_EQ(Heard<wire::Registered>(4).limit_bytes, MiB(100).count);  // no room is kept
  Say(500, wire::Control{"resume", "job-7", 0, ""});
  Say(1, wire::Ready{MiB(20).count});
  EXPECT_EQ(Heard<wire::Grant>(1).credit_bytes, MiB(20).count);
}

TEST_F(LeaseMovesTest, AProcessThatDoesNotAnswerStays) {
  Start(1, 11);
  Suspend();
  Move();
  ASSERT_TRUE(service_.wake().has_value());
  Pass(Seconds(30));
  EXPECT_EQ(RefusedToMove(),
            "process 11 stays on gpu0: it does not answer. Perhaps it was started with an older "
            "Tandem");
  Move();
  EXPECT_EQ(Heard<wire::Move>(1).device, kOther);  // it is asked again
}

// It was stopped, and obeys once it goes on.
TEST_F(LeaseMovesTest, AProcessThatAnswersLateIsLetIn) {
  Start(1, 11);
  Suspend();
  Move();
  Pass(Seconds(30));
  EXPECT_NE(RefusedToMove(), "");
  EXPECT_EQ(LeaseGpus(), Json::array({0}));
  Arrive(2, 11);
  EXPECT_EQ(Heard<wire::Registered>(2).limit_bytes, MiB(40).count);
  EXPECT_EQ(LeaseGpus(), Json::array({0, 1}));
  EXPECT_EQ(Ask("sessions")["sessions"].size(), 1u);
  EXPECT_EQ(Move()["gpus"], Json::array({1}));
}

TEST_F(LeaseMovesTest, AProcessThatEndsMeanwhileLeavesNothing) {
  Start(1, 11);
  Suspend();
  Move();
  service_.OnProcessGone(11, now_);
  Connect(4, 13);
  Say(4, wire::Register{"0.1", 0, kOther, "train", 0, 0, 0});
  EXPECT_EQ(Heard<wire::Registered>(4).limit_bytes, MiB(100).count);
  EXPECT_EQ(Move()["gpus"], Json::array({1}));
}

TEST_F(LeaseMovesTest, EachProcessOfALeaseMoves) {
  Start(1, 11);
  Start(2, 12);
  Suspend();
  EXPECT_EQ(Move()["moving"], Json::array({11, 12}));
  Arrive(3, 11);
  Say(2, wire::NotMoved{"it shares memory"});
  EXPECT_EQ(RefusedToMove(), "process 12 stays on gpu0: it shares memory");
  EXPECT_EQ(LeaseGpus(), Json::array({0, 1}));  // as its processes are
  EXPECT_EQ(Move(0)["moving"], Json::array({11}));
  EXPECT_EQ(Heard<wire::Move>(3).device, kGpu);
  Arrive(4, 11, kGpu, kOther);
  EXPECT_EQ(Move(0)["gpus"], Json::array({0}));
}

// What it says it had cannot be more than it had.
TEST_F(LeaseMovesTest, AProcessBringsNoMoreThanItHad) {
  Start(1, 11);
  Suspend();
  Move();
  Connect(2, 11);
  wire::Register hello{"0.1",         run_, kOther, "train",      MiB(20).count,
                       MiB(20).count, 5,    1,      MiB(90).count};
  hello.oversubscribes = wire::Register::kDoes;
  hello.moved_from = kGpu;
  Say(2, hello);
  const Json sessions = Ask("sessions")["sessions"];
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0]["contexts"], 1);
  EXPECT_EQ(sessions[0]["fixed_bytes"], MiB(3).count);
  EXPECT_EQ(sessions[0]["resident_bytes"], 0);
  Say(500, wire::Control{"limit", "job-7", MiB(120).count});  // more than the card has
  EXPECT_EQ(Refusal(500), wire::RefusalCode::kLimitTooLarge);
}

// The order to go on comes before the program has arrived.
TEST_F(LeaseMovesTest, AProcessThatIsResumedOnItsWayGoesOnThere) {
  Start(1, 11);
  Suspend();
  Move();
  Say(500, wire::Control{"resume", "job-7", 0, ""});
  Arrive(2, 11);
  Say(2, wire::Ready{MiB(20).count});
  EXPECT_EQ(Heard<wire::Grant>(2).credit_bytes, MiB(20).count);
  const Json sessions = Ask("sessions")["sessions"];
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0]["allocated_bytes"], MiB(20).count);
}

TEST_F(LeaseMovesTest, AProcessArrivesAlthoughItsLeaseHasEnded) {
  ArriveWithoutLease(run_);
}

TEST_F(LeaseMovesTest, AProcessThatDoesNotKnowItsTokenDoesSoToo) {
  ArriveWithoutLease(0);
}

// Nothing is taken over by a program that no lease lets move.
TEST_F(LeaseMovesTest, AProcessCannotMoveByItself) {
  Join(1, 21);
  Say(1, wire::ContextWanted{});
  Connect(2, 21);
  wire::Register hello{"0.1", 0, kOther, "train", 0, 0, 1};
  hello.moved_from = kGpu;
  Say(2, hello);
  const Json sessions = Ask("sessions")["sessions"];
  ASSERT_EQ(sessions.size(), 2u);
  EXPECT_EQ(sessions[1]["contexts"], 0);
  Say(1, wire::NotMoved{"no order was given"});
  EXPECT_TRUE(Silent<wire::Refused>(1));
}

}  // namespace
}  // namespace tandem::service
