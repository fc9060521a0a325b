#include "src/core/wish_queue.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace tandem::core {
namespace {

// Wishes in a random tree of groups, with many equal ranks.
class WishQueueTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  WishQueueTest() {
    for (GroupId group = 1; group <= kGroups; ++group) {
      queue_.RankGroup(group, Below(group), static_cast<int64_t>(Below(4)));
    }
    for (uint64_t i = 1; i <= kWishes; ++i) {
      Wish wish{SessionId{i}};
      // Groups have tickets of their own, and no two entries of a line are equal.
      wish.ticket = kGroups + i;
      wish.rank = static_cast<int64_t>(Below(4));
      wish.group = Below(kGroups + 1);
      queue_.Add(wish, false);
    }
    queue_.Visit([this](const Wish& wish) {
      line_.push_back(&wish);
      return false;
    });
  }

  uint64_t Below(uint64_t bound) { return random_() % bound; }

  static constexpr uint64_t kGroups = 8, kWishes = 40;
  std::mt19937 random_{GetParam()};
  WishQueue queue_;
  std::vector<const Wish*> line_;
};

TEST_P(WishQueueTest, BehindIsThePartOfTheLineThatFollows) {
  ASSERT_EQ(line_.size(), kWishes);
  for (size_t first = 0; first < line_.size(); ++first) {
    std::set<const Wish*> some;  // ordered by address, which is not the order of the line
    for (const Wish* const wish : line_) {
      if (Below(2) == 0) some.insert(wish);
    }
    std::vector<const Wish*> expected;
    for (size_t i = first + 1; i < line_.size(); ++i) {
      if (some.count(line_[i]) != 0) expected.push_back(line_[i]);
    }
    EXPECT_EQ(queue_.Behind(*line_[first], {some.begin(), some.end()}), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, WishQueueTest, ::testing::Range(1u, 21u));

}  // namespace
}  // namespace tandem::core
