// Two users at one daemon, as real sockets show them: one cannot use up what both need. The kernel
// notes the effective user of a process that connects, so that root can connect as any user.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/daemon/daemon_test.h"

namespace tandem::daemon {
namespace {

constexpr uid_t kStranger = 65534;

class UsersTest : public DaemonTest {
 protected:
  void SetUp() override {
    if (getuid() != 0) GTEST_SKIP() << "needs root, to be two users";
    ASSERT_EQ(chmod(dir_.c_str(), 0711), 0);
    Open({});
  }
  void Open(const ServerLimits& limits) {
    Start(limits);
    ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  }
  wire::Channel ConnectAsStranger() {
    EXPECT_EQ(seteuid(kStranger), 0);
    Result<wire::Channel> channel = wire::ConnectDaemon(path_);
    EXPECT_EQ(seteuid(0), 0);
    EXPECT_TRUE(channel.ok());
    server_->RunOnce(Duration());
    return std::move(*channel);
  }
  // The number of requests on the channel that are answered by now.
  static size_t Answered(wire::Channel& channel) {
    size_t count = 0;
    while (channel.Receive(Duration()).ok()) ++count;
    return count;
  }
};

TEST_F(UsersTest, TheKernelSaysWhoseASessionIs) {
  wire::Channel session = ConnectAsStranger();
  ASSERT_TRUE(session.Send(wire::Register{"0.1", 0, "GPU-1", "test", 0, 0, 0}).ok());
  Expect<wire::Registered>(session);
  EXPECT_EQ(Ask("sessions")["sessions"][0]["uid"], kStranger);
}

TEST_F(UsersTest, OneUsersConnectionsAreBounded) {
  Open({.max_connections_per_user = 3});
  std::vector<wire::Channel> flood;
  for (int i = 0; i < 10; ++i) flood.push_back(ConnectAsStranger());
  EXPECT_EQ(server_->connections(), 3u);
  EXPECT_EQ(Ask("status")["gpus"][0]["uuid"], "GPU-1");
  ExpectClosed(flood.back());
  flood.clear();
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == 0; }));
  wire::Channel back = ConnectAsStranger();
  ASSERT_TRUE(back.Send(wire::Query{"status"}).ok());
  Expect<wire::Answer>(back);
}

TEST_F(UsersTest, WhoSendsTheMostNewcomersLosesThem) {
  Open({.max_newcomers = 4, .newcomer_patience = Seconds(1000)});
  wire::Channel slow = Connect();  // has not said what it is yet
  std::vector<wire::Channel> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(ConnectAsStranger());
  EXPECT_EQ(server_->connections(), 4u);
  ASSERT_TRUE(slow.Send(wire::Query{"status"}).ok());
  Expect<wire::Answer>(slow);
}

// Of a storm that would take many rounds' shares to answer, only a share is answered before the
// other user is.
TEST_F(UsersTest, AStormWaitsForItsTurn) {
  constexpr size_t kChannels = 64, kAsked = 150;  // so few that the sockets take all answers
  std::vector<std::byte> questions;
  for (size_t i = 0; i < kAsked; ++i) {
    const std::vector<std::byte> question = wire::Encode(wire::Query{"sessions"});
    questions.insert(questions.end(), question.begin(), question.end());
  }
  std::vector<wire::Channel> storm;
  for (size_t i = 0; i < kChannels; ++i) storm.push_back(ConnectAsStranger());
  wire::Channel other = Connect();
  for (const wire::Channel& channel : storm) SendRaw(channel, questions);
  ASSERT_TRUE(other.Send(wire::Query{"status"}).ok());
  server_->RunOnce(Seconds(1));
  EXPECT_TRUE(other.Receive(Duration()).ok()) << "in the first round";
  size_t answered = 0;
  for (wire::Channel& channel : storm) answered += Answered(channel);
  EXPECT_LT(answered, kChannels * kAsked);
  // Nothing is lost: the rest comes in later rounds.
  EXPECT_TRUE(RunUntil([&] {
    for (wire::Channel& channel : storm) answered += Answered(channel);
    return answered == kChannels * kAsked;
  }));
}

TEST_F(UsersTest, MemoryIsOfferedToNobodyElse) {
  wire::Channel session = Join();
  const UniqueFd memory(memfd_create("memory", MFD_CLOEXEC));
  wire::Channel offerer = Connect();
  ASSERT_TRUE(offerer.Send(wire::Offer{1, 2, "GPU-1"}, kPatience, {memory.get()}).ok());
  Expect<wire::Offered>(offerer);
  wire::Channel stranger = ConnectAsStranger();
  ASSERT_TRUE(stranger.Send(wire::Fetch{1, 2}).ok());
  const auto refused = Expect<wire::Refused>(stranger);
  ASSERT_TRUE(stranger.Send(wire::Fetch{1, 3}).ok());
  EXPECT_EQ(Expect<wire::Refused>(stranger).reason, refused.reason);  // as one that there is not
  EXPECT_TRUE(stranger.TakeFds().empty());
}

// Each answer has a few bytes, and takes more than a hundred of the daemon's memory.
TEST_F(UsersTest, SmallAnswersThatAreNotReadCountWithWhatTheyTake) {
  wire::Channel deaf = ConnectAsStranger();
  ASSERT_TRUE(deaf.Send(wire::Register{"0.1", 0, "GPU-1", "test", 0, 0, 0}).ok());
  Expect<wire::Registered>(deaf);
  uint64_t asked = 0;
  for (; asked < 100000 && server_->connections() > 0; ++asked) {
    const std::vector<std::byte> question = wire::Encode(wire::Reserve{asked, asked + 1});
    send(deaf.fd(), question.data(), question.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    server_->RunOnce(Duration());
  }
  EXPECT_LT(asked, 4000u);  // what the socket takes, and 256 KiB
}

TEST_F(UsersTest, WhatOneUserDoesNotReadIsBounded) {
  const auto asked_until_dropped = [&](const ServerLimits& limits) {
    Open(limits);
    wire::Channel deaf = ConnectAsStranger();
    const std::vector<std::byte> question = wire::Encode(wire::Query{"status"});
    int asked = 0;
    for (; asked < 100000 && server_->connections() > 0; ++asked) {
      send(deaf.fd(), question.data(), question.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      server_->RunOnce(Duration());
    }
    return asked;
  };
  const int many = asked_until_dropped({});  // one connection's bound
  EXPECT_LT(asked_until_dropped({.max_unread_per_user = 1}), many);
  wire::Channel other = ConnectAsStranger();  // reads
  ASSERT_TRUE(other.Send(wire::Query{"status"}).ok());
  Expect<wire::Answer>(other);
}

}  // namespace
}  // namespace tandem::daemon
