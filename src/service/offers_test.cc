// Memory that one process offers and another fetches: its owner, and its lifetime.
#include <sys/mman.h>

#include "src/service/service_test.h"

namespace tandem::service {
namespace {

class OffersTest : public ServiceTest {
 protected:
  explicit OffersTest(Bytes foreign = {}) : ServiceTest(foreign) {}

  // By the process, on a connection of its own. What was offered, or 0.
  ino_t Offer(int pid, uint64_t token, unsigned uid = 1000, const char* device = kGpu) {
    UniqueFd memory(memfd_create("memory", MFD_CLOEXEC));
    const ino_t file = FileOf(memory);
    Connect(++last_, pid, uid);
    said_ = service_.OnMessage(last_, wire::Offer{1, token, device}, now_, std::move(memory));
    return Silent<wire::Offered>(last_) ? 0 : file;
  }
  // What another process gets, or 0.
  ino_t Fetch(uint64_t token, unsigned uid = 1000) {
    Connect(++last_, 500, uid);
    Say(last_, wire::Fetch{1, token});
    for (const Outgoing& out : said_) {
      if (out.to == last_ && out.memory) return FileOf(out.memory);
    }
    EXPECT_EQ(Refusal(last_), wire::RefusalCode::kUnknownTarget);
    return 0;
  }

  ConnectionId last_ = 100;
};

TEST_F(OffersTest, IsFetchedAsOftenAsOneLikes) {
  Join(1, 11);
  const ino_t memory = Offer(11, 5);
  ASSERT_NE(memory, 0u);
  EXPECT_EQ(Fetch(5), memory);
  EXPECT_EQ(Fetch(5), memory);
  EXPECT_EQ(Fetch(6), 0u);
  const ino_t again = Offer(11, 5);  // after a lost connection it is told again
  EXPECT_EQ(Fetch(5), again);
}

TEST_F(OffersTest, IsItsUsersAlone) {
  Join(1, 11);
  const ino_t memory = Offer(11, 5);
  EXPECT_EQ(Fetch(5, 1001), 0u);
  EXPECT_EQ(Fetch(5, 0), 0u);
  Join(2, 12, 0, 1001);
  EXPECT_EQ(Offer(12, 5, 1001), 0u);  // nor can another user take its place
  EXPECT_EQ(Refusal(last_), wire::RefusalCode::kProtocol);
  Say(2, wire::Withdraw{1, 5});
  EXPECT_EQ(Fetch(5), memory);
}

TEST_F(OffersTest, IsOfASessionAndOfMemory) {
  EXPECT_EQ(Offer(11, 5), 0u);
  EXPECT_EQ(Refusal(last_), wire::RefusalCode::kNoSession);
  EXPECT_TRUE(Closed(last_));
  Join(1, 11);
  EXPECT_EQ(Offer(11, 5, 1000, "GPU-2"), 0u);
  Connect(50, 11);
  Say(50, wire::Offer{1, 5, kGpu});
  EXPECT_EQ(Refusal(50), wire::RefusalCode::kProtocol);
  Say(1, wire::Fetch{1, 5});
  EXPECT_EQ(Refusal(1), wire::RefusalCode::kProtocol);
  Connect(51, 11);
  Say(51, wire::Withdraw{1, 5});
  EXPECT_EQ(Refusal(51), wire::RefusalCode::kProtocol);
}

TEST_F(OffersTest, EndsWithItsProcessOrBefore) {
  Join(1, 11);
  Offer(11, 5);
  Offer(11, 6);
  Say(1, wire::Withdraw{1, 5});
  EXPECT_EQ(Fetch(5), 0u);
  said_ = service_.OnDisconnected(1, now_);
  EXPECT_NE(Fetch(6), 0u);  // its process lives
  said_ = service_.OnProcessGone(11, now_);
  EXPECT_EQ(Fetch(6), 0u);
}

TEST_F(OffersTest, WhatWasWithdrawnUnheardIsNotKept) {
  Join(1, 11);
  Offer(11, 5);
  said_ = service_.OnDisconnected(1, now_);
  Join(2, 11);  // again; what it still offers it says again
  EXPECT_EQ(Fetch(5), 0u);
  EXPECT_NE(Offer(11, 5), 0u);
}

TEST_F(OffersTest, OneUsersAreBounded) {
  Join(1, 11);
  for (uint64_t i = 0; i < kMaxOffersPerUser; ++i) ASSERT_NE(Offer(11, i), 0u);
  EXPECT_EQ(Offer(11, kMaxOffersPerUser), 0u);
  EXPECT_EQ(Refusal(last_), wire::RefusalCode::kTooMany);
  EXPECT_NE(Offer(11, 3), 0u);  // one that there is
  Join(2, 12, 0, 1001);
  EXPECT_NE(Offer(12, kMaxOffersPerUser, 1001), 0u);
}

class OffersSettlingTest : public OffersTest {
 protected:
  OffersSettlingTest() : OffersTest(MiB(20)) {}
};

TEST_F(OffersSettlingTest, WhoAsksTooEarlyAfterARestartWaits) {
  now_ = Instant();
  Connect(30, 500);
  Say(30, wire::Fetch{1, 5});
  EXPECT_TRUE(said_.empty());
  Connect(1, 11, 1000, true);
  Say(1, wire::Register{"0.1", 0, kGpu, "train", MiB(4).count, MiB(4).count, 1});
  EXPECT_NE(Offer(11, 5), 0u);
  now_ = now_ + kSettling;
  said_ = service_.OnTick(now_);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_TRUE(said_[0].memory);
}

}  // namespace
}  // namespace tandem::service
