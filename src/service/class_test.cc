// What kind of work a run says it is, who may say so, and what its sessions are.
#include "src/service/service_test.h"

namespace tandem::service {
namespace {

class ClassTest : public ServiceTest {
 protected:
  // A run whose first session is on connection `id` + 1.
  void Begin(ConnectionId id, const std::string& of_class, unsigned uid = 0, uint64_t run = 0) {
    Connect(id, static_cast<int>(id), uid);
    wire::RunBegin begin{"0.1", "demo", "train"};
    begin.run = run;
    begin.of_class = of_class;
    Say(id, begin);
  }
  std::string ClassOfFirst() { return Ask("sessions")["sessions"][0]["class"]; }
};

TEST_F(ClassTest, SessionsAreWhatTheirRunIs) {
  Begin(1, "opportunistic");
  Join(2, 12, Heard<wire::RunStarted>(1).run, 0);
  EXPECT_EQ(ClassOfFirst(), "opportunistic");
}

TEST_F(ClassTest, WhereNothingIsSaidItIsInteractive) {
  Begin(1, "");
  Join(2, 12, Heard<wire::RunStarted>(1).run, 0);
  Join(3, 13);
  const Json sessions = Ask("sessions")["sessions"];
  EXPECT_EQ(sessions.size(), 2u);
  for (const Json& session : sessions) EXPECT_EQ(session["class"], "interactive");
}

TEST_F(ClassTest, AClassThereIsNotIsRefusedWithThoseThereAre) {
  Begin(1, "urgent\n");
  EXPECT_EQ(Refusal(1), wire::RefusalCode::kUnknownTarget);
  EXPECT_EQ(Heard<wire::Refused>(1).reason,
            "no class of work is called \"urgent\\x0a\"; there are production, interactive, batch, "
            "opportunistic");
}

TEST_F(ClassTest, OnlyRootAndTheDaemonsOwnUserMaySayWhatIsProduction) {
  Begin(1, "production", 1234);
  EXPECT_EQ(Refusal(1), wire::RefusalCode::kNotYours);
  Begin(2, "production", 0);
  EXPECT_TRUE(Silent<wire::Refused>(2));
  Begin(3, "batch", 1234);
  EXPECT_TRUE(Silent<wire::Refused>(3));
}

TEST_F(ClassTest, ARunThatComesBackAfterItsSessionsMakesThemWhatTheyWere) {
  Connect(2, 12, 0, true);
  Say(2, wire::Register{"0.1", 7, kGpu, "train", MiB(10).count, MiB(10).count, 1});
  EXPECT_EQ(ClassOfFirst(), "interactive");
  Begin(1, "batch", 0, 7);
  EXPECT_EQ(ClassOfFirst(), "batch");
}

// A program may say otherwise of its next work (tandem.h).
TEST_F(ClassTest, ASessionsOwnWordHoldsUntilItSaysOtherwise) {
  Begin(1, "interactive", 1234);
  const uint64_t run = Heard<wire::RunStarted>(1).run;
  Join(2, 12, run, 1234);
  Say(2, wire::Declare{0, 2, 0});
  EXPECT_EQ(ClassOfFirst(), "batch");
  Begin(3, "opportunistic", 1234, run);  // its `tandem run` comes back
  EXPECT_EQ(ClassOfFirst(), "batch");
  Say(2, wire::Declare{0, 0, 0});
  EXPECT_EQ(ClassOfFirst(), "opportunistic");  // production is not for every user
  Say(2, wire::Declare{0, 3, 0});
  Say(2, wire::Declare{0, 77, 0});
  EXPECT_EQ(ClassOfFirst(), "opportunistic");
}

TEST_F(ClassTest, WhatASessionDeclaresItMayAskForAsFarAsItsLimitGoes) {
  Join(1, 11);
  Want(1, MiB(10));
  EXPECT_EQ(Heard<wire::Grant>(1).credit_bytes, MiB(10).count);
  Say(1, wire::Ready{MiB(60).count});  // undeclared
  EXPECT_EQ(Heard<wire::Credit>(1).credit_bytes, MiB(10).count);
  Say(1, wire::Declare{0, wire::Declare::kOfRun, MiB(60).count});
  Say(1, wire::Ready{MiB(60).count});
  EXPECT_EQ(Heard<wire::Credit>(1).credit_bytes, MiB(60).count);
  EXPECT_EQ(pages_.at(0)->decisions_.most_needed_bytes.load(), MiB(100).count);
  Say(1, wire::Declare{UINT64_MAX, wire::Declare::kOfRun, UINT64_MAX});
  Say(1, wire::Ready{MiB(100).count});
  EXPECT_EQ(Heard<wire::Credit>(1).credit_bytes, MiB(100).count);
}

TEST_F(ClassTest, OnlySessionsDeclare) {
  Connect(1, 11);
  Say(1, wire::Declare{});
  EXPECT_EQ(Refusal(1), wire::RefusalCode::kProtocol);
  EXPECT_TRUE(Closed(1));
}

TEST_F(ClassTest, ARunThatComesBackIsNeverRefused) {
  Begin(1, "production", 1234, 7);
  EXPECT_TRUE(Silent<wire::Refused>(1));
  Join(2, 12, 7, 1234);
  EXPECT_EQ(ClassOfFirst(), "interactive");
  Begin(3, "of a later version", 1234, 8);
  EXPECT_TRUE(Silent<wire::Refused>(3));
}

TEST_F(ClassTest, OthersAreAskedToSayWhenTheyPauseAndOpportunisticOnesWait) {
  Connect(900, 999, 0);
  Say(900, wire::Control{"policy", "gpu0", 0, "priority"});
  Join(1, 11);
  Want(1, MiB(40));
  const uint64_t epoch = Heard<wire::Grant>(1).epoch;
  Say(1, wire::Running{epoch, 0});
  EXPECT_EQ(pages_[0]->decisions_.watched.load(), 0u);
  Begin(2, "opportunistic");
  Join(3, 13, Heard<wire::RunStarted>(2).run, 0);
  EXPECT_EQ(pages_[0]->decisions_.watched.load(), 1u);
  EXPECT_EQ(pages_[0]->decisions_.contended.load(), 0u);
  EXPECT_FALSE(Silent<wire::Contended>(1));  // so that it looks
  Want(3, MiB(40));
  EXPECT_TRUE(Silent<wire::Grant>(3));
  EXPECT_EQ(Ask("sessions")["sessions"][1]["reason_code"], "pause_of_others");
  Say(1, wire::Idle{epoch});
  EXPECT_FALSE(Silent<wire::Grant>(3));
}

}  // namespace
}  // namespace tandem::service
