#include "src/service/service_test.h"

#include "src/wire/codec.h"

namespace tandem::service {
namespace {

TEST_F(ServiceTest, ASessionRegistersRunsAndIsListed) {
  Join(1, 11);
  const auto registered = Heard<wire::Registered>(1);
  EXPECT_EQ(Bytes(registered.card_bytes), MiB(134));
  EXPECT_EQ(Bytes(registered.limit_bytes), MiB(100));
  EXPECT_EQ(said_.front().fds.size(), 2u);
  Say(1, wire::Reserve{5, MiB(10).count});
  EXPECT_EQ(Heard<wire::Reserved>(1).granted, 1);
  Say(1, wire::Ready{MiB(10).count});
  const auto grant = Heard<wire::Grant>(1);
  EXPECT_EQ(Bytes(pages_[0]->decisions_.run_used_bytes.load()), MiB(10));
  pages_[0]->reports_.resident_bytes = ~0ull;  // a claim that cannot be true
  Say(1, wire::Running{grant.epoch, 5});
  const Json session = Ask("sessions")["sessions"][0];
  EXPECT_EQ(session["state"], "running");
  EXPECT_EQ(session["resident_bytes"], MiB(10).count);
  EXPECT_EQ(session["allocated_bytes"], MiB(10).count);
  EXPECT_EQ(session["in_bytes"], 5);
  EXPECT_EQ(session["leases"], 1);
  EXPECT_EQ(session["reason"], nullptr);
  const Json gpu = Ask("status")["gpus"][0];
  EXPECT_EQ(gpu["holders"], Json::array({1}));
  EXPECT_EQ(gpu["charged_bytes"], MiB(10).count);
  EXPECT_EQ(gpu["mode"], "together");
}

TEST_F(ServiceTest, AHandoverIsRecorded) {
  Join(1, 11);
  Join(2, 12);
  Want(1, MiB(60));
  Say(1, wire::Running{1, 0});
  Want(2, MiB(60));
  EXPECT_EQ(pages_[0]->decisions_.contended.load(), 1u);
  EXPECT_EQ(pages_[1]->decisions_.contended.load(), 0u);
  EXPECT_EQ(Ask("sessions")["sessions"][1]["reason"], "1st in line");
  ASSERT_TRUE(service_.wake().has_value());
  now_ = *service_.wake();
  said_ = service_.OnTick(now_);
  EXPECT_EQ(Heard<wire::Revoke>(1).epoch, 1u);
  Say(1, wire::Released{1});
  EXPECT_EQ(Bytes(Heard<wire::Evict>(1).target_bytes), MiB(40));
  Say(1, wire::Evicted{MiB(40).count, MiB(20).count});
  EXPECT_EQ(Bytes(Heard<wire::Credit>(2).credit_bytes), MiB(60));
  Say(2, wire::Running{2, 0});
  const Json record = Ask("handovers")["handovers"][0];
  EXPECT_EQ(record["from"], Json::array({1}));
  EXPECT_EQ(record["to"], 2);
  EXPECT_EQ(record["out_bytes"], MiB(20).count);
  EXPECT_EQ(record["chunk_bytes"], MiB(2).count);
  EXPECT_EQ(Ask("status")["gpus"][0]["handovers"], 1);
  EXPECT_EQ(Ask("sessions")["sessions"][0]["handovers"], 0);
  EXPECT_EQ(Ask("sessions")["sessions"][1]["handovers"], 1);
}

TEST_F(ServiceTest, TheTimeInUseIsListed) {
  Join(1, 11);
  Join(2, 12);
  Want(1, MiB(60));
  now_ = now_ + Seconds(1);  // its memory comes
  Say(1, wire::Running{1, 0});
  now_ = now_ + Seconds(2);
  Say(1, wire::Idle{1});
  now_ = now_ + Seconds(4);
  const Json sessions = Ask("sessions")["sessions"];
  EXPECT_EQ(sessions[0]["active_s"], 2.0);
  EXPECT_EQ(sessions[0]["held_s"], 7.0);
  EXPECT_EQ(sessions[1]["active_s"], 0.0);
  const Json gpu = Ask("status")["gpus"][0];
  EXPECT_EQ(gpu["busy_s"], 2.0);
  EXPECT_EQ(gpu["held_s"], 7.0);
}

TEST_F(ServiceTest, AFreshStartOnAnIdleCardIsNotDelayed) {
  now_ = Instant();
  Join(1, 11);
  Heard<wire::Registered>(1);
  EXPECT_FALSE(service_.wake().has_value());
}

TEST_F(ServiceTest, WhoWaitsForAContextHasWaitedSinceItAsked) {
  Join(1, 11);
  Join(2, 12);
  for (int i = 0; i < 4; ++i) Say(1, wire::ContextWanted{});  // the reserve
  Want(1, MiB(100));
  Say(1, wire::Running{1, 0});
  Say(2, wire::ContextWanted{});
  EXPECT_TRUE(Silent<wire::ContextReserved>(2));
  now_ = now_ + Milliseconds(500);
  const Json session = Ask("sessions")["sessions"][1];
  EXPECT_EQ(session["reason"],
            "no room for one more context; session 1 needs 100 MiB of the card to run at all");
  EXPECT_EQ(session["waited_s"], 0.5);
}

TEST_F(ServiceTest, WhatIsOutOfPlaceClosesThatConnectionOnly) {
  Join(1, 11);
  const std::vector<wire::Message> strays = {
      wire::Ready{1}, wire::Evicted{},    wire::Grant{},      wire::Refused{},
      wire::Answer{}, wire::RunStarted{}, wire::ContextGone{}};
  ConnectionId id = 10;
  for (const wire::Message& stray : strays) {
    Connect(++id, 13);
    Say(id, stray);
    EXPECT_EQ(Refusal(id), wire::RefusalCode::kProtocol);
    EXPECT_TRUE(Closed(id));
    EXPECT_FALSE(Closed(1));
    service_.OnDisconnected(id, now_);
  }
  for (const wire::Message& second :
       std::vector<wire::Message>{wire::Register{}, wire::RunBegin{}, wire::Query{"status"}}) {
    Say(1, second);
    EXPECT_TRUE(Closed(1));
  }
  Connect(50, 50);
  Say(50, wire::Query{"nonsense"});
  EXPECT_EQ(Refusal(50), wire::RefusalCode::kProtocol);
  EXPECT_FALSE(Closed(50));
}

TEST_F(ServiceTest, AClaimThatCannotBeTrueIsABreach) {
  Join(1, 11);
  Say(1, wire::Ready{~0ull});
  EXPECT_EQ(Refusal(1), wire::RefusalCode::kProtocol);
  EXPECT_TRUE(Closed(1));
}

TEST_F(ServiceTest, WhatCannotBeSwappedIsShownAndGoesWithItsProcess) {
  Join(1, 11);
  Say(1, wire::FixedWanted{3, MiB(40).count});
  EXPECT_EQ(Heard<wire::FixedReserved>(1).sequence, 3u);
  EXPECT_EQ(Heard<wire::FixedReserved>(1).granted, 1);
  EXPECT_EQ(Bytes(pages_[0]->decisions_.run_used_bytes.load()), MiB(40));
  EXPECT_EQ(Bytes(pages_[0]->decisions_.run_others_used_bytes.load()), Bytes());
  EXPECT_EQ(Ask("sessions")["sessions"][0]["fixed_bytes"], MiB(40).count);
  Join(2, 12);
  Say(2, wire::Reserve{1, MiB(70).count});  // it could never run beside that
  EXPECT_EQ(Heard<wire::Reserved>(2).granted, 0);
  Say(2, wire::FixedWanted{1, MiB(61).count});
  EXPECT_EQ(Heard<wire::FixedReserved>(2).granted, 0);
  Say(1, wire::FixedGone{MiB(10).count});
  EXPECT_EQ(Ask("status")["gpus"][0]["charged_bytes"], MiB(30).count);
  service_.OnDisconnected(1, now_);
  service_.OnProcessGone(11, now_);
  EXPECT_EQ(Ask("status")["gpus"][0]["charged_bytes"], 0);
}

TEST_F(ServiceTest, RefusesAnUnknownDevice) {
  Connect(1, 11);
  Say(1, wire::Register{"0.1", 0, "GPU-\x1b[2J", "p", 0, 0, 0});
  EXPECT_EQ(Refusal(1), wire::RefusalCode::kUnknownDevice);
  EXPECT_EQ(Heard<wire::Refused>(1).reason.find('\x1b'), std::string::npos);
}

TEST_F(ServiceTest, ARunsLimitHoldsForAllItsSessions) {
  Connect(1, 1);
  Say(1, wire::RunBegin{"0.1", "", "/bin/x", MiB(101).count, 0});
  EXPECT_EQ(Refusal(1), wire::RefusalCode::kLimitTooLarge);
  EXPECT_FALSE(Closed(1));
  EXPECT_NE(Heard<wire::Refused>(1).reason.find("Use 100M or less"), std::string::npos);
  Say(1, wire::RunBegin{"0.1", "demo", "/bin/x", MiB(50).count, 0});
  const uint64_t run = Heard<wire::RunStarted>(1).run;
  Join(2, 12, run);
  EXPECT_EQ(Bytes(Heard<wire::Registered>(2).limit_bytes), MiB(50));
  Join(3, 13, run);
  Say(2, wire::Reserve{1, MiB(30).count});
  EXPECT_EQ(Heard<wire::Reserved>(2).granted, 1);
  Say(3, wire::Reserve{1, MiB(30).count});
  EXPECT_EQ(Heard<wire::Reserved>(3).granted, 0);
  EXPECT_EQ(Bytes(pages_[1]->decisions_.run_used_bytes.load()), MiB(30));
  EXPECT_EQ(Bytes(pages_[0]->decisions_.run_others_used_bytes.load()), Bytes());
  EXPECT_EQ(Bytes(pages_[1]->decisions_.run_others_used_bytes.load()), MiB(30));
  EXPECT_EQ(Ask("sessions")["sessions"][0]["name"], "demo");
  // The token is nothing to another user: that is a run of its own.
  now_ = now_ + kRunPatience;
  Join(4, 14, run, /*uid=*/2000);
  EXPECT_EQ(Bytes(Heard<wire::Registered>(4).limit_bytes), MiB(100));
  // The limit stays as long as a session lives.
  service_.OnDisconnected(1, now_);
  Say(3, wire::Reserve{2, MiB(30).count});
  EXPECT_EQ(Heard<wire::Reserved>(3).granted, 0);
  service_.OnProcessGone(12, now_);
  Say(3, wire::Reserve{3, MiB(30).count});
  EXPECT_EQ(Heard<wire::Reserved>(3).granted, 1);
}

TEST_F(ServiceTest, SessionsOfAUserAreBounded) {
  for (size_t i = 1; i <= kMaxSessionsPerUser; ++i) Join(i, static_cast<int>(i));
  Join(1000, 1000);
  EXPECT_EQ(Refusal(1000), wire::RefusalCode::kTooMany);
  EXPECT_TRUE(Closed(1000));
  Join(1001, 1001, 0, /*uid=*/2000);
  Heard<wire::Registered>(1001);
}

TEST_F(ServiceTest, OnlyTheEndOfTheProcessGivesMemoryBack) {
  Join(1, 11);
  Want(1, MiB(60));
  service_.OnDisconnected(1, now_);
  EXPECT_EQ(Ask("status")["gpus"][0]["charged_bytes"], MiB(60).count);
  EXPECT_TRUE(service_.HasSessions(11));
  service_.OnProcessGone(11, now_);
  EXPECT_EQ(Ask("status")["gpus"][0]["charged_bytes"], 0);
  EXPECT_TRUE(service_.idle());
}

TEST_F(ServiceTest, WhoRegistersAgainTakesItsOwnPlace) {
  Join(1, 11);
  Join(2, 12);
  Want(1, MiB(60));
  Want(2, MiB(60));
  service_.OnDisconnected(1, now_);
  Connect(3, 11);
  Say(3, wire::Register{"0.1", 0, kGpu, "train", MiB(60).count, MiB(50).count, 1});
  // No other session was granted its memory in between.
  const Json status = Ask("status")["gpus"][0];
  EXPECT_EQ(status["charged_bytes"], (MiB(100) + MiB(2)).count);  // a chunk is lent
  EXPECT_EQ(status["restoring"], 2);
  EXPECT_EQ(Ask("sessions")["sessions"].size(), 2u);
  // An old connection that is still open is closed.
  Connect(4, 11);
  Say(4, wire::Register{"0.1", 0, kGpu, "train", 0, 0, 0});
  EXPECT_TRUE(Closed(3));
  Say(3, wire::Ready{1});
  EXPECT_EQ(Refusal(3), wire::RefusalCode::kProtocol);
}

TEST_F(ServiceTest, ARunFromBeforeARestartIsTakenUpAgain) {
  Connect(2, 12, 1000, /*predates=*/true);  // came back before its `tandem run`
  Say(2, wire::Register{"0.1", 500, kGpu, "train", MiB(1).count, 0, 0});
  EXPECT_EQ(Bytes(pages_[0]->decisions_.limit_bytes.load()), MiB(100));
  Connect(1, 1);
  Say(1, wire::RunBegin{"0.1", "demo", "/bin/x", MiB(50).count, 500});
  EXPECT_EQ(Heard<wire::RunStarted>(1).run, 500u);
  EXPECT_EQ(Bytes(pages_[0]->decisions_.limit_bytes.load()), MiB(50));
  Say(2, wire::Reserve{1, MiB(51).count});
  EXPECT_EQ(Heard<wire::Reserved>(2).granted, 0);
  Join(3, 13, 500);
  EXPECT_EQ(Bytes(Heard<wire::Registered>(3).limit_bytes), MiB(50));
  EXPECT_EQ(Ask("sessions")["sessions"][0]["name"], "demo");
  // The token of another user is a run of its own.
  Connect(4, 4, /*uid=*/2000);
  Say(4, wire::RunBegin{"0.1", "other", "/bin/x", MiB(10).count, 500});
  EXPECT_EQ(Bytes(pages_[0]->decisions_.limit_bytes.load()), MiB(50));
  // The same `tandem run` on a new connection; the end of the old one ends nothing.
  Connect(5, 1);
  Say(5, wire::RunBegin{"0.1", "demo", "/bin/x", MiB(50).count, 500});
  service_.OnDisconnected(1, now_);
  service_.OnProcessGone(12, now_);
  service_.OnProcessGone(13, now_);
  Join(6, 16, 500);
  EXPECT_EQ(Bytes(Heard<wire::Registered>(6).limit_bytes), MiB(50));
}

class RestartedServiceTest : public ServiceTest {
 protected:
  RestartedServiceTest() : ServiceTest(MiB(58)) {}  // in use when it started: budget 42 MiB
};

TEST_F(RestartedServiceTest, WhatKnownSessionsHaveIsNotCountedAsOthers) {
  EXPECT_EQ(Ask("status")["gpus"][0]["budget_bytes"], MiB(42).count);
  Connect(1, 11, 1000, /*predates=*/true);
  Say(1, wire::Register{"0.1", 77, kGpu, "train", MiB(60).count, MiB(50).count, 1});
  EXPECT_EQ(Bytes(Heard<wire::Registered>(1).limit_bytes), MiB(100));
  EXPECT_EQ(Ask("status")["gpus"][0]["charged_bytes"], MiB(50).count);
  Connect(2, 12);  // started later: it has nothing, whatever it claims
  Say(2, wire::Register{"0.1", 0, kGpu, "train", MiB(90).count, MiB(90).count, 99999});
  EXPECT_TRUE(Silent<wire::Evict>(2));
  EXPECT_EQ(Ask("status")["gpus"][0]["budget_bytes"], MiB(100).count);
  EXPECT_EQ(Ask("status")["gpus"][0]["charged_bytes"], MiB(50).count);
  EXPECT_EQ(Ask("sessions")["sessions"][1]["contexts"], 0);
  EXPECT_EQ(Ask("sessions")["sessions"][1]["allocated_bytes"], 0);
}

TEST_F(RestartedServiceTest, WhatCannotBeSwappedIsCharged) {
  Connect(3, 13, 1000, true);
  Say(3, wire::Register{"0.1", 0, kGpu, "train", 0, 0, 0, 0, MiB(20).count});
  EXPECT_EQ(Ask("status")["gpus"][0]["charged_bytes"], MiB(20).count);
}

TEST_F(RestartedServiceTest, NothingIsDecidedBeforeTheOthersHadTimeToComeBack) {
  now_ = Instant() + Milliseconds(100);
  Connect(1, 11, 1000, /*predates=*/true);
  Say(1, wire::Register{"0.1", 0, kGpu, "train", MiB(30).count, MiB(30).count, 0});
  // The card is the one it saw before, though only 72 of 100 MiB are accounted for.
  EXPECT_EQ(Bytes(Heard<wire::Registered>(1).limit_bytes), MiB(100));
  EXPECT_EQ(Bytes(pages_[0]->decisions_.limit_bytes.load()), MiB(100));
  Say(1, wire::Reserve{1, MiB(90).count});
  EXPECT_TRUE(said_.empty());
  Say(1, wire::Ready{MiB(90).count});
  EXPECT_TRUE(said_.empty());
  Connect(2, 12);  // a newcomer, in no hurry
  Say(2, wire::Register{"0.1", 0, kGpu, "new", 0, 0, 0});
  EXPECT_TRUE(said_.empty());
  Connect(3, 13);
  Say(3, wire::RunBegin{"0.1", "", "/bin/x", MiB(95).count, 0});
  EXPECT_TRUE(said_.empty());
  Connect(4, 14, 1000, /*predates=*/true);
  Say(4, wire::RunBegin{"0.1", "", "/bin/x", MiB(95).count, 77});
  Heard<wire::RunStarted>(4);
  Connect(5, 15, 1000, /*predates=*/true);
  Say(5, wire::Register{"0.1", 77, kGpu, "train", MiB(28).count, MiB(28).count, 0});
  EXPECT_EQ(Bytes(Heard<wire::Registered>(5).limit_bytes), MiB(95));
  now_ = *service_.wake();
  EXPECT_EQ(now_, Instant() + kSettling);
  said_ = service_.OnTick(now_);
  EXPECT_EQ(Heard<wire::Reserved>(1).granted, 1);
  EXPECT_EQ(Bytes(Heard<wire::Grant>(1).credit_bytes), MiB(72));  // and the rest from 5
  EXPECT_EQ(Bytes(Heard<wire::Evict>(5).target_bytes), MiB(10));
  EXPECT_EQ(Bytes(Heard<wire::Registered>(2).limit_bytes), MiB(100));
  EXPECT_EQ(Bytes(Heard<wire::RunStarted>(3).limit_bytes), MiB(95));
  Say(2, wire::Reserve{1, MiB(1).count});
  EXPECT_EQ(Heard<wire::Reserved>(2).granted, 1);
}

TEST_F(RestartedServiceTest, WhatTrulyIsOthersMemoryIsNotPromised) {
  now_ = Instant() + Milliseconds(100);
  Connect(1, 11, 1000, /*predates=*/true);
  Say(1, wire::Register{"0.1", 0, kGpu, "train", MiB(8).count, MiB(8).count, 0});
  EXPECT_EQ(Bytes(pages_[0]->decisions_.limit_bytes.load()), MiB(100));
  said_ = service_.OnTick(Instant() + kSettling);
  EXPECT_EQ(Bytes(pages_[0]->decisions_.limit_bytes.load()), MiB(50));
}

TEST_F(RestartedServiceTest, WhatIsHeldIsBoundedAndEndsWithItsConnection) {
  now_ = Instant() + Milliseconds(100);
  for (ConnectionId id = 1; id <= 2; ++id) {
    Connect(id, static_cast<int>(10 + id), 1000, /*predates=*/true);
    Say(id, wire::Register{"0.1", 0, kGpu, "train", MiB(8).count, 0, 0});
    Say(id, wire::Ready{MiB(8).count});
  }
  service_.OnDisconnected(2, now_);
  for (size_t i = 1; i < kMaxHeld; ++i) {
    Say(1, wire::Reserve{i, MiB(8).count});
    EXPECT_TRUE(said_.empty());
  }
  Say(1, wire::Reserve{kMaxHeld, MiB(9).count});
  Heard<wire::Grant>(1);
  EXPECT_EQ(Heard<wire::Reserved>(1).sequence, kMaxHeld);
  EXPECT_EQ(Ask("status")["gpus"][0]["waiting"], Json::array());
  EXPECT_EQ(Ask("status")["gpus"][0]["holders"], Json::array({1}));
}

TEST_F(RestartedServiceTest, WhatASessionSwappedOutMeanwhileIsNotCountedAsOthers) {
  Connect(9, 9);
  Say(9, wire::RunBegin{"0.1", "", "x", MiB(90).count, 77});  // above the budget as it looks
  EXPECT_EQ(Heard<wire::RunStarted>(9).run, 77u);
  Connect(1, 11, 1000, /*predates=*/true);
  Say(1, wire::Register{"0.1", 77, kGpu, "train", MiB(80).count, MiB(20).count, 0});
  EXPECT_EQ(Bytes(Heard<wire::Registered>(1).limit_bytes), MiB(90));
  EXPECT_EQ(Bytes(pages_[0]->decisions_.limit_bytes.load()), MiB(90));
  Say(1, wire::Ready{MiB(80).count});
  Heard<wire::Grant>(1);
}

TEST_F(ServiceTest, AProgramOfAKnownRunWaitsForItsLimitAfterARestart) {
  now_ = Instant() + Milliseconds(10);
  Connect(1, 11);
  Say(1, wire::Register{"0.1", 77, kGpu, "train", 0, 0, 0});
  Connect(5, 15, 1000, /*predates=*/true);  // it had not come to use the GPU yet
  Say(5, wire::Register{"0.1", 77, kGpu, "train", 0, 0, 0});
  EXPECT_TRUE(said_.empty());
  Connect(6, 16, 1000, /*predates=*/true);  // what it has is shared: others come and ask for it
  Say(6, wire::Register{"0.1", 77, kGpu, "train", 0, 0, 0, 0, MiB(4).count});
  Heard<wire::Registered>(6);
  Connect(2, 12);
  Say(2, wire::RunBegin{"0.1", "", "x", MiB(40).count, 77});
  EXPECT_EQ(Heard<wire::RunStarted>(2).run, 77u);
  EXPECT_EQ(Bytes(Heard<wire::Registered>(1).limit_bytes), MiB(40));
  EXPECT_EQ(Bytes(Heard<wire::Registered>(5).limit_bytes), MiB(40));
  // A run that does not come back delays its programs for a bounded time, and no others.
  Connect(3, 13);
  Say(3, wire::Register{"0.1", 78, kGpu, "train", 0, 0, 0});
  EXPECT_TRUE(said_.empty());
  Connect(4, 14);
  Say(4, wire::Register{"0.1", 0, kGpu, "train", 0, 0, 0});
  Heard<wire::Registered>(4);
  EXPECT_EQ(service_.wake(), Instant() + kRunPatience);
  said_ = service_.OnTick(Instant() + kRunPatience);
  Heard<wire::Registered>(3);
}

class ChaosServiceTest : public ServiceTest {
 protected:
  ChaosServiceTest() : ServiceTest({}, 9) {}

  template <typename M>
  M WaitToHear(ConnectionId id) {
    for (int tick = 0; Silent<M>(id) && tick < 100; ++tick) {
      now_ = *service_.wake();
      said_ = service_.OnTick(now_);
    }
    return Heard<M>(id);
  }
};

TEST_F(ChaosServiceTest, AnEmptyCardWakesNobody) {
  now_ = *service_.wake();
  service_.OnTick(now_);
  EXPECT_FALSE(service_.wake().has_value());
  Join(1, 11);
  EXPECT_FALSE(service_.wake().has_value());
  Want(1, MiB(10));
  EXPECT_GT(service_.wake().value(), now_);
}

TEST_F(ChaosServiceTest, AProgramLosesTheCardToNobodyWhoIsListed) {
  Join(1, 11);
  Bytes out;
  for (int turn = 0; turn < 20; ++turn) {
    Want(1, MiB(10));
    Say(1, wire::Running{WaitToHear<wire::Grant>(1).epoch, 0});
    Say(1, wire::Released{WaitToHear<wire::Revoke>(1).epoch});
    const Bytes left(Heard<wire::Evict>(1).target_bytes);
    EXPECT_LT(left, MiB(10));
    Say(1, wire::Evicted{left.count, (MiB(10) - left).count});
    out += MiB(10) - left;
    const Json status = Ask("status");
    EXPECT_EQ(status["gpus"][0]["holders"], Json::array());
    EXPECT_EQ(status["chaos_seed"], "9");
    EXPECT_EQ(Ask("sessions")["sessions"].size(), 1u);
  }
  EXPECT_EQ(Ask("status")["gpus"][0]["out_bytes"], out.count);
  service_.OnDisconnected(1, now_);
  service_.OnProcessGone(11, now_);
  EXPECT_TRUE(service_.idle());
}

TEST_F(ServiceTest, NamesAreMadeHarmless) {
  EXPECT_EQ(Printable("a\nb\x1b[31m\x7f"), "a\\x0ab\\x1b[31m\\x7f");
  EXPECT_EQ(Printable("Ünïcode 猫"), "Ünïcode 猫");
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xc2\\x9b");  // a C1 control
  EXPECT_LT(Printable(std::string(10000, 'x')).size(), 300u);
  Connect(1, 11);
  Say(1, wire::Register{"0.1", 0, kGpu, "evil\n\xff", 0, 0, 0});
  const Json session = Ask("sessions")["sessions"][0];
  EXPECT_EQ(session["program"], "evil\\x0a\\xff");
}

TEST_F(ServiceTest, AVersionMismatchNamesBothVersions) {
  Connect(1, 11);
  wire::FrameReader reader;
  std::vector<std::byte> bytes = wire::Encode(wire::Query{"status"});
  bytes[4] = std::byte{99};
  reader.Append(bytes);
  said_ = service_.OnBroken(1, reader.Next().error());
  EXPECT_EQ(Refusal(1), wire::RefusalCode::kVersion);
  EXPECT_NE(Heard<wire::Refused>(1).reason.find("99"), std::string::npos);
  EXPECT_EQ(Heard<wire::Refused>(1).version, wire::kVersion);
  EXPECT_TRUE(Closed(1));
}

}  // namespace
}  // namespace tandem::service
