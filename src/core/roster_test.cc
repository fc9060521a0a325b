#include "src/core/roster.h"

#include <gtest/gtest.h>

#include <random>

#include "src/base/testing/seed.h"
#include "src/core/wish_queue.h"

namespace tandem::core {
namespace {

class RosterTest : public ::testing::Test {
 protected:
  uint64_t Below(uint64_t most) { return random_() % most; }
  // Something else of what a session's share in the sums depends on.
  void Change(Session& session) {
    session.phase = static_cast<Phase>(Below(4));
    session.stuck = Below(8) == 0;
    session.rooted = Below(8) == 0;
    session.suspended = Below(4) == 0;
    session.wants_lease = Below(2) == 0;
    session.need = MiB(Below(10));
    session.credit = MiB(Below(4));
    session.charge = session.credit + MiB(Below(3));
    session.excess = MiB(Below(2));
    session.allocated = MiB(Below(10));
    session.contexts_wanted.resize(Below(2));
    session.expected_at = Instant(static_cast<int64_t>(Below(100)));
    session.last_used = Instant(static_cast<int64_t>(Below(100)));
  }

  const uint64_t seed_ = RandomSeed();
  std::mt19937_64 random_{seed_};
  Roster roster_;
};

TEST_F(RosterTest, CountsAsIfAllWereGoneThrough) {
  SCOPED_TRACE(seed_);
  uint64_t last = 0;
  for (int event = 0; event < 2000; ++event) {
    for (uint64_t left = Below(4); left > 0; --left) {
      const SessionId id{1 + Below(last + 1)};
      if (id.value > last) {
        Change(roster_.Add(SessionId{++last}));
      } else if (Session* session = roster_.Find(id); session != nullptr) {
        Change(*session);
        if (Below(2) == 0) {
          ASSERT_EQ(roster_.sums(), roster_.Recounted().sums);
        }
        if (Below(10) == 0) roster_.Remove(id);
      }
    }
    roster_.EndEvent();
    ASSERT_TRUE(roster_.touched().empty());
    ASSERT_TRUE(roster_.counted() == roster_.Recounted());
  }
  EXPECT_GT(last, 10u);
}

constexpr SessionId kOne{1}, kTwo{2}, kThree{3};

std::vector<uint64_t> Tickets(const WishQueue& queue) {
  std::vector<uint64_t> tickets;
  queue.Visit([&](const Wish& wish) {
    tickets.push_back(wish.ticket);
    return false;
  });
  return tickets;
}

TEST(WishQueueTest, TheLowestRankIsFirstAndOfEqualsWhoCameFirst) {
  WishQueue queue;
  queue.Add({kOne, Wish::Kind::kLease, Instant(1), 1, 5}, false);
  queue.Add({kTwo, Wish::Kind::kLease, Instant(1), 2, 3}, false);
  queue.Add({kThree, Wish::Kind::kGrowth, Instant(1), 3, 3}, false);
  queue.Add({kThree, Wish::Kind::kFixed, Instant(1), 4, -1}, false);
  EXPECT_EQ(Tickets(queue), (std::vector<uint64_t>{4, 2, 3, 1}));
  EXPECT_EQ(queue.growing().size(), 1u);
  EXPECT_EQ(queue.lasting(), 1u);
  queue.Remove(kThree, Wish::Kind::kFixed);
  queue.Remove(kThree, Wish::Kind::kContext);  // which it has not
  EXPECT_EQ(Tickets(queue), (std::vector<uint64_t>{2, 3, 1}));
  EXPECT_EQ(queue.lasting(), 0u);
  EXPECT_FALSE(queue.Has(kThree, Wish::Kind::kFixed));
}

TEST(WishQueueTest, AGroupIsServedWholeInThePlaceOfItsRank) {
  constexpr GroupId kA = 7, kB = 8, kInA = 9;
  WishQueue queue;
  queue.RankGroup(kA, kNoGroup, 10);
  queue.RankGroup(kB, kNoGroup, 20);
  queue.RankGroup(kInA, kA, 5);
  EXPECT_EQ(queue.First(), nullptr);
  queue.Add({kOne, Wish::Kind::kLease, Instant(1), 1, 0, kB}, false);
  queue.Add({kTwo, Wish::Kind::kLease, Instant(1), 2, 6, kA}, false);
  queue.Add({kThree, Wish::Kind::kLease, Instant(1), 3, 0, kInA}, false);
  queue.Add({kThree, Wish::Kind::kGrowth, Instant(1), 4, 15}, false);
  EXPECT_EQ(Tickets(queue), (std::vector<uint64_t>{3, 2, 4, 1}));
  EXPECT_EQ(queue.active(), 4u);
  std::vector<uint64_t> backwards;
  queue.VisitLastFirst([&](const Wish& wish) {
    backwards.push_back(wish.ticket);
    return backwards.size() == 3;
  });
  EXPECT_EQ(backwards, (std::vector<uint64_t>{1, 4, 2}));
  queue.RankGroup(kInA, kA, 7);
  queue.RankGroup(kB, kNoGroup, 1);
  EXPECT_EQ(Tickets(queue), (std::vector<uint64_t>{1, 2, 3, 4}));
  queue.Remove(kOne, Wish::Kind::kLease);
  queue.RankGroup(kB, kNoGroup, 2);  // an empty one
  queue.RemoveGroup(kB);
  queue.Remove(kThree, Wish::Kind::kLease);
  queue.RemoveGroup(kInA);
  EXPECT_EQ(queue.First()->ticket, 2u);
  queue.Rerank([] {}, [](Wish* wish) { wish->rank = -static_cast<int64_t>(wish->ticket); });
  EXPECT_EQ(Tickets(queue), (std::vector<uint64_t>{4, 2}));
}

TEST(WishQueueTest, WhatIsParkedKeepsItsPlace) {
  WishQueue queue;
  queue.Add({kOne, Wish::Kind::kLease, Instant(1), 1, 0}, false);
  queue.Add({kTwo, Wish::Kind::kLease, Instant(1), 2, 0}, true);
  queue.Add({kThree, Wish::Kind::kLease, Instant(1), 3, 0}, false);
  queue.Park(kOne, true, Instant(5));
  EXPECT_EQ(Tickets(queue), (std::vector<uint64_t>{3}));
  EXPECT_TRUE(queue.Has(kOne, Wish::Kind::kLease));
  EXPECT_EQ(queue.FindActive(kOne, Wish::Kind::kLease), nullptr);
  queue.Park(kTwo, false, Instant(6));
  queue.Park(kOne, false, Instant(7));
  EXPECT_EQ(Tickets(queue), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(queue.FindActive(kOne, Wish::Kind::kLease)->since, Instant(7));
  queue.Park(kOne, true, Instant(8));
  queue.Remove(kOne, Wish::Kind::kLease);
  EXPECT_EQ(queue.size(), 2u);
}

}  // namespace
}  // namespace tandem::core
