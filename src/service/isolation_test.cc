// What one user's clients can say, and what it does to another user's session: nothing, and in
// bounded time. A failure of the random test prints its seed; TANDEM_SEED=n runs that one alone.
#include <sys/mman.h>

#include <algorithm>
#include <random>

#include "src/base/json.h"
#include "src/base/testing/descriptors.h"
#include "src/base/testing/rounds.h"
#include "src/base/testing/seed.h"
#include "src/service/service_test.h"
#include "src/wire/testing/any_message.h"

namespace tandem::service {
namespace {

constexpr unsigned kVictimUser = 1000;
constexpr unsigned kStranger = 1001;
constexpr ConnectionId kVictim = 1;
constexpr ConnectionId kGuard = 2;
constexpr ConnectionId kAttacker = 3;

class IsolationTest : public ServiceTest {
 protected:
  explicit IsolationTest(Bytes foreign = {}) : ServiceTest(foreign) {}

  // A run with one session that holds the card, with 60 MiB on it.
  void StartVictim() {
    Connect(kGuard, 21, kVictimUser);
    Say(kGuard, wire::RunBegin{"0.1", "mine", "python3", MiB(70).count, 0, 0});
    token_of_run_ = Heard<wire::RunStarted>(kGuard).run;
    Join(kVictim, 11, token_of_run_, kVictimUser);
    Say(kVictim, wire::Reserve{1, MiB(60).count});
    Say(kVictim, wire::Ready{MiB(60).count});
    epoch_ = Heard<wire::Grant>(kVictim).epoch;
    Say(kVictim, wire::Running{epoch_, 0});
  }
  bool HeardNothing(ConnectionId id) const {
    return std::none_of(said_.begin(), said_.end(),
                        [&](const Outgoing& out) { return out.to == id; });
  }
  // The victim's session as `viewer` sees it.
  Json Victim(unsigned viewer = kVictimUser) {
    Connect(950, 950, viewer);
    Say(950, wire::Query{"sessions"});
    const Json list = ParseJson(Heard<wire::Answer>(950).json)["sessions"];
    said_ = service_.OnDisconnected(950, now_);
    for (const Json& session : list) {
      if (session["pid"] == 11 && session["uid"] == kVictimUser) return session;
    }
    return Json();
  }

  uint64_t token_of_run_ = 0;
  uint64_t epoch_ = 0;
};

TEST_F(IsolationTest, WhatASessionSaysIsAboutItselfWhateverNumbersItNames) {
  StartVictim();
  const Json before = Victim();
  const std::vector<wire::Message> lies = {
      wire::Released{epoch_},     wire::Busy{epoch_},           wire::Idle{epoch_},
      wire::Active{epoch_},       wire::Running{epoch_, ~0ull}, wire::Evicted{0, MiB(60).count},
      wire::FixedGone{1},         wire::ContextGone{},          wire::Reserve{1, 0},
      wire::Reserve{1, ~0ull},    wire::Ready{~0ull},           wire::Evicted{~0ull, ~0ull},
      wire::FixedWanted{1, ~0ull}};
  for (const wire::Message& lie : lies) {
    Join(kAttacker, 31, 0, kStranger);
    Say(kAttacker, lie);
    EXPECT_TRUE(HeardNothing(kVictim)) << "message " << lie.index();
    said_ = service_.OnDisconnected(kAttacker, now_);
    said_ = service_.OnProcessGone(31, now_);
    EXPECT_EQ(Victim(), before) << "message " << lie.index();
  }
}

TEST_F(IsolationTest, ATokenOpensNothingForAnotherUser) {
  StartVictim();
  // It is a run of the stranger's own that it opens, with that number.
  Connect(kAttacker, 31, kStranger);
  Say(kAttacker, wire::RunBegin{"0.1", "mine", "x", MiB(1).count, token_of_run_, 1});
  Heard<wire::RunStarted>(kAttacker);
  EXPECT_TRUE(HeardNothing(kVictim) && HeardNothing(kGuard));
  Join(40, 32, token_of_run_, kStranger);
  EXPECT_EQ(Bytes(Heard<wire::Registered>(40).limit_bytes), MiB(1));
  EXPECT_EQ(Victim()["limit_bytes"], MiB(70).count);
  EXPECT_EQ(Victim()["suspended"], false);
  // Nor does it show what the run has.
  Connect(41, 33, kStranger + 1);
  Say(41, wire::RunQuery{token_of_run_, kGpu});
  EXPECT_EQ(Refusal(41), wire::RefusalCode::kUnknownTarget);
  // Its owner still answers for it.
  Connect(42, 22, kVictimUser);
  Say(42, wire::Control{"limit", "mine", MiB(80).count});
  EXPECT_EQ(Heard<wire::RunChanged>(kGuard).limit_bytes, MiB(80).count);
  EXPECT_TRUE(HeardNothing(kAttacker));
}

TEST_F(IsolationTest, OnlyTheOwnerAndRootSeeARunsToken) {
  StartVictim();
  EXPECT_EQ(Victim(kVictimUser)["run"], token_of_run_);
  EXPECT_EQ(Victim(0)["run"], token_of_run_);
  const Json seen = Victim(kStranger);
  EXPECT_EQ(seen["run"], nullptr);
  EXPECT_EQ(seen["name"], "mine");
}

// A connection that outlived its process, whose number is now another user's process's.
TEST_F(IsolationTest, ANumberThatHasChangedHandsTakesNoSession) {
  StartVictim();
  const Json before = Victim();
  Join(kAttacker, 11, 0, kStranger);
  Heard<wire::Registered>(kAttacker);
  EXPECT_TRUE(HeardNothing(kVictim));
  EXPECT_EQ(Victim(), before);
}

TEST_F(IsolationTest, ASecondRegistrationIsNoWayToMoreMemory) {
  Connect(kGuard, 21, kStranger);
  Say(kGuard, wire::RunBegin{"0.1", "theirs", "x", MiB(40).count, 0, 0});
  const uint64_t run = Heard<wire::RunStarted>(kGuard).run;
  Join(kAttacker, 31, run, kStranger);
  Say(kAttacker, wire::Reserve{1, MiB(30).count});
  const auto register_again = [&](ConnectionId id, Bytes allocated) {
    Connect(id, 31, kStranger);
    Say(id, wire::Register{"0.1", run, kGpu, "x", allocated.count, MiB(90).count, 50, 0,
                           MiB(20).count});
  };
  register_again(40, MiB(41));
  EXPECT_EQ(Refusal(40), wire::RefusalCode::kTooMany);
  EXPECT_TRUE(HeardNothing(kAttacker));
  register_again(41, MiB(40));  // what its limit leaves: that may have come to it meanwhile
  Heard<wire::Registered>(41);
  Connect(950, 950, kStranger);
  Say(950, wire::Query{"sessions"});
  const Json list = ParseJson(Heard<wire::Answer>(950).json)["sessions"];
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["allocated_bytes"], MiB(40).count);
  EXPECT_EQ(list[0]["credit_bytes"], 0u);
  EXPECT_EQ(list[0]["contexts"], 0u);
  EXPECT_EQ(list[0]["fixed_bytes"], 0u);
}

TEST_F(IsolationTest, NobodyNeedsWhatItWasNotGranted) {
  StartVictim();
  Join(kAttacker, 31, 0, kStranger);
  Say(kAttacker, wire::Reserve{1, MiB(10).count});
  Say(kAttacker, wire::Ready{MiB(90).count});
  EXPECT_EQ(Bytes(Heard<wire::Grant>(kAttacker).credit_bytes), MiB(10));  // beside the victim
  EXPECT_TRUE(HeardNothing(kVictim));
}

TEST_F(IsolationTest, OrdersAboutOthersAreRefusedHoweverTheyAreNamed) {
  StartVictim();
  const std::string id = std::to_string(Victim()["id"].get<uint64_t>());
  const Json before = Victim();
  for (const std::string& target : {id, std::string("mine"), std::to_string(token_of_run_)}) {
    for (const char* what : {"suspend", "resume", "limit"}) {
      Connect(kAttacker, 31, kStranger);
      Say(kAttacker, wire::Control{what, target, MiB(1).count});
      EXPECT_EQ(Refusal(kAttacker), wire::RefusalCode::kNotYours) << what << " " << target;
      EXPECT_TRUE(HeardNothing(kVictim) && HeardNothing(kGuard));
    }
  }
  // A run of the same name is the stranger's own business.
  Connect(40, 32, kStranger);
  Say(40, wire::RunBegin{"0.1", "mine", "x", 0, 0, 0});
  Say(kAttacker, wire::Control{"suspend", "mine", 0});
  EXPECT_EQ(Heard<wire::Answer>(kAttacker).json, R"({"sessions":[]})");
  EXPECT_EQ(Victim(), before);
}

TEST_F(IsolationTest, OneUsersSessionsAreBoundedAndOthersComeInAllTheSame) {
  for (size_t i = 0; i < kMaxSessionsPerUser; ++i) {
    Join(1000 + i, static_cast<int>(1000 + i), 0, kStranger);
    Heard<wire::Registered>(1000 + i);
  }
  Join(kAttacker, 31, 0, kStranger);
  EXPECT_EQ(Refusal(kAttacker), wire::RefusalCode::kTooMany);
  StartVictim();
  EXPECT_EQ(Victim()["state"], "running");
}

// Contexts and arrays stay on the card: asked for without end they leave what others have
// allocated its room.
TEST_F(IsolationTest, WhatCannotBeSwappedNeverBarsWhoIsThereAlready) {
  StartVictim();
  Join(kAttacker, 31, 0, kStranger);
  for (int i = 0; i < 100; ++i) {
    Say(kAttacker, wire::ContextWanted{});
    Say(kAttacker, wire::FixedWanted{static_cast<uint64_t>(i), MiB(1).count});
  }
  Say(kVictim, wire::Released{epoch_});
  Say(kVictim, wire::Evicted{0, 0});
  Say(kVictim, wire::Ready{MiB(60).count});
  EXPECT_EQ(Bytes(Heard<wire::Grant>(kVictim).credit_bytes), MiB(60));
}

class RestartIsolationTest : public IsolationTest {
 protected:
  RestartIsolationTest() : IsolationTest(MiB(50)) {}
};

TEST_F(RestartIsolationTest, AFloodDoesNotHurryADaemonThatWaitsForItsSessions) {
  now_ = Instant() + Milliseconds(100);
  Connect(kAttacker, 31, kStranger);
  for (size_t i = 0; i < kMaxHeldOfOthers; ++i) {
    Say(kAttacker, wire::Control{"suspend", "1", 0});
    EXPECT_TRUE(said_.empty());
  }
  Say(kAttacker, wire::Control{"suspend", "1", 0});
  EXPECT_EQ(Refusal(kAttacker), wire::RefusalCode::kTooMany);
  EXPECT_TRUE(Closed(kAttacker));
  service_.OnDisconnected(kAttacker, now_);
  Join(kVictim, 11, 0, kVictimUser);
  EXPECT_TRUE(said_.empty()) << "still waiting";
  said_ = service_.OnTick(Instant() + kSettling);
  Heard<wire::Registered>(kVictim);
}

// ---- Whatever a stranger says

class Storm : public IsolationTest {
 protected:
  void SetSeed(uint64_t seed) { random_.seed(seed); }
  uint64_t Draw(uint64_t below) { return random_() % below; }

  uint64_t Amount() {
    constexpr uint64_t kEdges[] = {
        0, 1, ~0ull, ~0ull - 1, 1ull << 63, MiB(134).count, MiB(100).count};
    return Draw(2) == 0 ? kEdges[Draw(std::size(kEdges))] : Draw(MiB(120).count);
  }
  uint64_t Token() { return Draw(2) == 0 ? token_of_run_ : Draw(100); }
  uint64_t Number() {
    const uint64_t numbers[] = {Amount(), Token(), epoch_, latest_};
    return numbers[Draw(std::size(numbers))];
  }
  std::string Word() {
    const std::string words[] = {"mine",     "1",       std::to_string(token_of_run_),
                                 "",         "suspend", "limit",
                                 "sessions", kGpu,      std::string(4096, '\x1b')};
    return words[Draw(std::size(words))];
  }
  void Fill(std::string& field) { field = Word(); }
  void Fill(uint8_t& field) { field = static_cast<uint8_t>(Draw(4) - 1); }
  template <typename T>
  void Fill(T& field) {
    if (Draw(2) == 0) last_ = Number();
    field = static_cast<T>(last_);
  }

  wire::Message Anything() {
    wire::Message message = kinds_[Draw(kinds_.size())];
    wire::FillFields(message, [this](auto& field) { Fill(field); });
    // Few would get any further with just any name.
    auto* const registers = std::get_if<wire::Register>(&message);
    if (registers != nullptr && Draw(4) != 0) registers->device = kGpu;
    auto* const offer = std::get_if<wire::Offer>(&message);
    if (offer != nullptr && Draw(4) != 0) offer->device = kGpu;
    return message;
  }

  // What honest sessions say, so that the stranger has its turns.
  wire::Message Sensible() {
    const wire::Message messages[] = {wire::Reserve{1, MiB(Draw(101)).count},
                                      wire::Ready{MiB(Draw(101)).count},
                                      wire::Running{latest_, 0},
                                      wire::Idle{latest_},
                                      wire::Active{latest_},
                                      wire::Released{latest_},
                                      wire::Busy{latest_},
                                      wire::Evicted{0, 0},
                                      wire::ContextWanted{},
                                      wire::Withdraw{token_of_run_, token_of_run_},
                                      wire::FixedWanted{1, MiB(Draw(10)).count}};
    return messages[Draw(std::size(messages))];
  }

  // The victim has memory for its user's other processes, under a token that the stranger hits
  // upon.
  void OfferVictims() {
    UniqueFd memory(memfd_create("victim's", MFD_CLOEXEC));
    offered_ = FileOf(memory);
    Connect(kOfferer, 11, kVictimUser);
    said_ = service_.OnMessage(kOfferer, wire::Offer{token_of_run_, token_of_run_, kGpu}, now_,
                               std::move(memory));
    Heard<wire::Offered>(kOfferer);
    said_ = service_.OnDisconnected(kOfferer, now_);
  }
  bool StillOffered() {
    Connect(kOfferer, 12, kVictimUser);
    Say(kOfferer, wire::Fetch{token_of_run_, token_of_run_});
    const bool there = said_.size() == 1 && said_[0].memory && FileOf(said_[0].memory) == offered_;
    said_ = service_.OnDisconnected(kOfferer, now_);
    return there;
  }

  // The victim does as it is told, as libtandem does; nothing else may come to it.
  void Obey() {
    for (const Outgoing& out : std::exchange(said_, {})) {
      if (out.to == kGuard) ADD_FAILURE() << "the guard was told something";
      if (out.to == kVictim) {
        ObeyOne(out);
      } else if (out.memory) {
        EXPECT_NE(FileOf(out.memory), offered_);
      } else if (out.message && std::holds_alternative<wire::Grant>(*out.message)) {
        latest_ = std::get<wire::Grant>(*out.message).epoch;
      }
    }
  }
  void ObeyOne(const Outgoing& out) {
    ASSERT_FALSE(out.close);
    ASSERT_TRUE(out.message.has_value());
    if (const auto* revoke = std::get_if<wire::Revoke>(&*out.message)) {
      ++revoked_;
      Say(kVictim, wire::Released{revoke->epoch});
      Obey();
      Say(kVictim, wire::Ready{MiB(60).count});
      Obey();
    } else if (const auto* evict = std::get_if<wire::Evict>(&*out.message)) {
      Say(kVictim, wire::Evicted{evict->target_bytes, 0});
      Obey();
    } else if (const auto* grant = std::get_if<wire::Grant>(&*out.message)) {
      epoch_ = grant->epoch;
    } else {
      ASSERT_TRUE(std::holds_alternative<wire::Credit>(*out.message) ||
                  std::holds_alternative<wire::Contended>(*out.message))
          << out.message->index();
    }
  }

  // The stranger's process has a session and another connection, speaks for a while and ends.
  void Rage(int pid, int messages) {
    Enter(kSession, pid);
    Enter(kAttacker, pid);
    for (int i = 0; i < messages; ++i) {
      const ConnectionId from = Draw(2) == 0 ? kSession : kAttacker;
      UniqueFd memory(Draw(2) == 0 ? memfd_create("stranger's", MFD_CLOEXEC) : -1);
      const bool sensible = from == kSession && Draw(8) != 0;
      said_ = service_.OnMessage(from, sensible ? Sensible() : Anything(), now_, std::move(memory));
      const bool session_closed = Closed(kSession), attacker_closed = Closed(kAttacker);
      Obey();
      if (session_closed) ComeAgain(kSession, pid);
      if (attacker_closed) ComeAgain(kAttacker, pid);
      now_ = now_ + Microseconds(static_cast<int64_t>(Draw(20000)));
      if (service_.wake().has_value() && *service_.wake() <= now_) {
        said_ = service_.OnTick(now_);
        Obey();
      }
    }
    Leave(kSession);
    Leave(kAttacker);
    said_ = service_.OnProcessGone(pid, now_);
    Obey();
  }
  void Enter(ConnectionId id, int pid) {
    Connect(id, pid, kStranger, Draw(4) == 0);
    if (id != kSession) return;
    Say(id, wire::Register{"0.1", 0, kGpu, "x", Amount(), Amount(), 0});
    Obey();
  }
  void Leave(ConnectionId id) {
    said_ = service_.OnDisconnected(id, now_);
    Obey();
  }
  void ComeAgain(ConnectionId id, int pid) {
    Leave(id);
    Enter(id, pid);
  }

  static constexpr ConnectionId kSession = 4, kOfferer = 5;
  const std::vector<wire::Message> kinds_ = wire::EveryKind();
  std::mt19937_64 random_;
  uint64_t last_ = 0;    // number that was drawn: tokens are two, and it may be twice the same
  uint64_t latest_ = 0;  // the stranger's epoch
  ino_t offered_ = 0;    // by the victim
  int revoked_ = 0;      // as often the victim has lost the card
};

TEST_F(Storm, OfAnyMessagesLeavesTheVictimItsSessionAndTheCard) {
  const uint64_t seed = RandomSeed();
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
  SetSeed(seed);
  StartVictim();
  OfferVictims();
  said_.clear();
  const size_t descriptors = OpenDescriptors();
  for (uint64_t round = 0; round < Rounds(500) && !HasFailure(); ++round) {
    Rage(31, 1 + static_cast<int>(Draw(40)));
    // Now that the stranger is gone, the card is the victim's for the asking.
    Say(kVictim, wire::Ready{MiB(60).count});
    Obey();
    now_ = now_ + Seconds(200);
    said_ = service_.OnTick(now_);
    Obey();
    const Json victim = Victim();
    ASSERT_TRUE(victim["state"] == "restoring" || victim["state"] == "running") << victim;
    EXPECT_EQ(victim["credit_bytes"], MiB(60).count);
    EXPECT_EQ(victim["limit_bytes"], MiB(70).count);
    EXPECT_EQ(Ask("status")["gpus"][0]["charged_bytes"], MiB(60).count);
    EXPECT_TRUE(StillOffered());
    EXPECT_EQ(OpenDescriptors(), descriptors);
    Say(kVictim, wire::Running{epoch_, 0});
    Obey();
  }
  EXPECT_TRUE(revoked_ > 0 || HasFailure()) << "the stranger had no turns";
}

}  // namespace
}  // namespace tandem::service
