#include "src/shim/swap/hash_worth.h"

#include <gtest/gtest.h>

namespace tandem::shim {
namespace {

constexpr size_t kBatch = 8;

TEST(HashWorthTest, BeginsWithOneChunk) {
  HashWorth worth;
  EXPECT_EQ(worth.Most(kBatch), 1u);
  worth.OnHashed(MiB(2), Microseconds(10), Bytes(), Bytes());
  EXPECT_EQ(worth.Most(kBatch), 1u);  // it is not known what a copy costs
  worth.OnCopied(MiB(2), Microseconds(200));
  EXPECT_EQ(worth.Most(kBatch), 1u);  // nor what is modified
  worth.OnHashed(MiB(2), Microseconds(10), MiB(2), MiB(2));
  EXPECT_EQ(worth.Most(kBatch), kBatch);
}

TEST(HashWorthTest, GivesUpWhatCostsMoreThanACopyAndTriesItAgainEverMoreSeldom) {
  HashWorth worth;
  worth.OnHashed(MiB(2), Microseconds(500), Bytes(), Bytes());
  worth.OnCopied(MiB(2), Microseconds(200));  // now it is known
  int tries = 0;
  constexpr int kCopies = 10000;
  for (int copy = 0; copy < kCopies; ++copy) {
    if (worth.Most(kBatch) != 0) {
      EXPECT_EQ(worth.Most(kBatch), 1u);
      worth.OnHashed(MiB(2), Microseconds(500), Bytes(), Bytes());
      ++tries;
    }
    worth.OnCopied(MiB(2), Microseconds(200));
  }
  // After 40, 80, ... 2560 copies.
  EXPECT_EQ(tries, 8);
  for (int i = 0; i < 30 && worth.Most(kBatch) != kBatch; ++i) {
    worth.OnHashed(MiB(2), Microseconds(10), MiB(2), MiB(2));
    for (int j = 0; j < 3000; ++j) worth.OnCopied(MiB(2), Microseconds(200));
  }
  EXPECT_EQ(worth.Most(kBatch), kBatch);  // the card is faster now
}

// Where a hash takes a tenth of what a copy does.
class HashWorthComparedTest : public testing::Test {
 protected:
  HashWorthComparedTest() { Copy(); }

  void Copy() { worth_.OnCopied(MiB(8), Microseconds(800)); }
  void Hash(Bytes compared, Bytes clean) {
    worth_.OnHashed(MiB(8), Microseconds(80), compared, clean);
  }
  void AwaitTrial() {
    while (worth_.Most(kBatch) == 0) Copy();
    EXPECT_EQ(worth_.Most(kBatch), 1u);
  }
  void GiveUp() {
    for (int i = 0; i < 4; ++i) Hash(MiB(8), Bytes());
    EXPECT_EQ(worth_.Most(kBatch), 0u);
  }

  HashWorth worth_;
};

TEST_F(HashWorthComparedTest, GivesUpWhereTheFirstIsModified) {
  Hash(MiB(2), Bytes());
  EXPECT_EQ(worth_.Most(kBatch), 0u);
}

TEST_F(HashWorthComparedTest, GivesUpWhereAlmostAllIsModified) {
  Hash(MiB(8), MiB(8));
  for (int i = 0; i < 3; ++i) {
    Hash(MiB(8), Bytes());
    EXPECT_EQ(worth_.Most(kBatch), kBatch) << i;
  }
  Hash(MiB(8), Bytes());
  EXPECT_EQ(worth_.Most(kBatch), 0u);
}

TEST_F(HashWorthComparedTest, AFewUnmodifiedOnesAreWorthIt) {
  for (int i = 0; i < 50; ++i) Hash(MiB(8), MiB(2));
  EXPECT_EQ(worth_.Most(kBatch), kBatch);
}

TEST_F(HashWorthComparedTest, OneModifiedChunkEndsATrial) {
  GiveUp();
  AwaitTrial();
  Hash(Bytes(), Bytes());  // which makes the next one comparable
  EXPECT_EQ(worth_.Most(kBatch), 0u);
  AwaitTrial();
  Hash(MiB(2), Bytes());
  EXPECT_EQ(worth_.Most(kBatch), 0u);
}

TEST_F(HashWorthComparedTest, OneUnmodifiedChunkBringsTheOthersBack) {
  GiveUp();
  AwaitTrial();
  Hash(MiB(2), MiB(2));
  EXPECT_EQ(worth_.Most(kBatch), kBatch);
}

}  // namespace
}  // namespace tandem::shim
