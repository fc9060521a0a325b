// The host's memory: who is refused for lack of it, and what people and programs are told.
#include "src/service/service_test.h"

namespace tandem::service {
namespace {

class HostTest : public ServiceTest {
 protected:
  explicit HostTest(Bytes foreign = {}, bool measured = false)
      : ServiceTest(foreign, {}, MiB(40), measured) {}

  bool Reserve(ConnectionId id, Bytes total) {
    Say(id, wire::Reserve{++sequence_, total.count});
    return Heard<wire::Reserved>(id).granted != 0;
  }
  void Suspend(const char* target) {
    Connect(900, 999);
    Say(900, wire::Control{"suspend", target, 0});
  }
  Bytes Promised() { return Bytes(Ask("status")["host_promised_bytes"].get<uint64_t>()); }

  uint64_t sequence_ = 0;
};

TEST_F(HostTest, AProgramIsToldWhyAndTheOthersWhatTheyMayNeed) {
  Join(1, 11);
  Join(2, 12);
  EXPECT_TRUE(Reserve(1, MiB(60)));
  EXPECT_TRUE(Reserve(2, MiB(60)));
  EXPECT_FALSE(Reserve(2, MiB(70)));
  EXPECT_EQ(pages_[0]->decisions_.host_refusals.load(), 0u);
  EXPECT_EQ(pages_[1]->decisions_.host_refusals.load(), 1u);
  for (const FakePages* pages : pages_) {
    EXPECT_EQ(Bytes(pages->decisions_.host_limit_bytes.load()), MiB(40));
    EXPECT_EQ(Bytes(pages->decisions_.host_share_bytes.load()), MiB(20));
  }
  EXPECT_EQ(Ask("status")["host_limit_bytes"], MiB(40).count);
  EXPECT_EQ(Promised(), MiB(40));
  EXPECT_FALSE(Reserve(1, MiB(101)));  // its limit
  EXPECT_EQ(pages_[0]->decisions_.host_refusals.load(), 0u);
}

TEST_F(HostTest, SuspendingIsRefusedWhereTheHostHasNoRoom) {
  Join(1, 11);
  Join(2, 12);
  EXPECT_TRUE(Reserve(1, MiB(41)));
  EXPECT_TRUE(Reserve(2, MiB(30)));
  Suspend("1");
  EXPECT_EQ(Refusal(900), wire::RefusalCode::kHostFull);
  EXPECT_EQ(Promised(), Bytes());
  Suspend("2");
  EXPECT_TRUE(Silent<wire::Refused>(900));
  EXPECT_EQ(Promised(), MiB(30));
  Suspend("2");  // again
  EXPECT_TRUE(Silent<wire::Refused>(900));
}

class RestartedHostTest : public HostTest {
 protected:
  RestartedHostTest() : HostTest(MiB(60), true) { now_ = Instant(); }
  // A session from before, of whose 60 MiB 20 are on the card.
  void Return(ConnectionId id) {
    Connect(id, static_cast<int>(id), 1000, true);
    Say(id, wire::Register{"0.1", 0, kGpu, "train", MiB(60).count, MiB(20).count, 0});
  }
};

TEST_F(RestartedHostTest, WhatSessionsHadBeforeIsNotCountedTwice) {
  Return(1);
  Return(2);
  now_ = now_ + kSettling;
  EXPECT_EQ(Promised(), MiB(80));
  EXPECT_EQ(Ask("status")["host_limit_bytes"], MiB(120).count);
}

}  // namespace
}  // namespace tandem::service
