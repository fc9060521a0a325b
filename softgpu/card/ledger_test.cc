#include "softgpu/card/ledger.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace tandem::soft {
namespace {

class LedgerTest : public testing::Test {
 protected:
  LedgerTest() : page_(std::make_unique<SharedPage>()), ledger_(page_.get()) {
    page_->vram_bytes = MiB(64).count;
  }
  Bytes SumOfShares() {
    Bytes sum;
    for (int slot = 0; slot < kSlotCount; ++slot) sum += ledger_.held_by(slot);
    return sum;
  }
  std::unique_ptr<SharedPage> page_;
  Ledger ledger_;
};

TEST_F(LedgerTest, ChargesUpToTheTotal) {
  EXPECT_TRUE(ledger_.Charge(0, MiB(40)));
  EXPECT_FALSE(ledger_.Charge(1, MiB(25)));
  EXPECT_TRUE(ledger_.Charge(1, MiB(24)));
  EXPECT_EQ(ledger_.used(), MiB(64));
  ledger_.Return(0, MiB(40));
  EXPECT_EQ(ledger_.used(), MiB(24));
  EXPECT_EQ(ledger_.held_by(0), Bytes());
  EXPECT_EQ(ledger_.held_by(1), MiB(24));
  EXPECT_FALSE(ledger_.Charge(2, Bytes(~uint64_t{0})));
}

TEST_F(LedgerTest, TheDeadAreReaped) {
  ASSERT_TRUE(ledger_.Charge(3, MiB(50)));
  ledger_.Reap(3, [](int) { return false; });
  EXPECT_EQ(ledger_.used(), MiB(50));
  ledger_.Reap(3, [](int) { return true; });
  EXPECT_EQ(ledger_.used(), Bytes());
  ledger_.Reap(3, [](int) { return true; });
  EXPECT_EQ(ledger_.used(), Bytes());
}

// A process that dies after its change to the sum, before its share was brought up to date.
TEST_F(LedgerTest, AHalfDoneChangeIsFinishedByOthers) {
  ASSERT_TRUE(ledger_.Charge(3, MiB(10)));
  const uint64_t share_before = page_->slots[3].used.load();
  ASSERT_TRUE(ledger_.Charge(3, MiB(20)));
  page_->slots[3].used.store(share_before);
  EXPECT_EQ(ledger_.held_by(3), MiB(10));
  ledger_.Complete();
  EXPECT_EQ(ledger_.held_by(3), MiB(30));
  page_->slots[3].used.store(share_before);
  ASSERT_TRUE(ledger_.Charge(5, MiB(1)));
  EXPECT_EQ(ledger_.held_by(3), MiB(30));
  EXPECT_EQ(SumOfShares(), ledger_.used());
}

// A process that dies between its change to the sum, which a reaper has looked at before, and its
// share.
TEST_F(LedgerTest, AReaperSeesAChangeThatCameBeforeTheDeath) {
  ASSERT_TRUE(ledger_.Charge(3, MiB(10)));
  const uint64_t share_before = page_->slots[3].used.load();
  const uint64_t joint_before = page_->ledger.load();
  ASSERT_TRUE(ledger_.Charge(3, MiB(20)));
  const uint64_t joint_after = page_->ledger.load();
  page_->slots[3].used.store(share_before);
  page_->ledger.store(joint_before);  // announced, and no more than that
  bool asked = false;
  ledger_.Reap(3, [&](int) {
    if (!asked) page_->ledger.store(joint_after);
    asked = true;
    return true;
  });
  EXPECT_EQ(ledger_.used(), Bytes());
  EXPECT_EQ(SumOfShares(), Bytes());
}

// A reaper that found the old owner dead, slept, and wakes when the slot has a new owner.
TEST_F(LedgerTest, ALateReaperTakesNothingFromTheNewOwner) {
  ASSERT_TRUE(ledger_.Charge(3, MiB(10)));
  bool changed_hands = false;
  ledger_.Reap(3, [&](int) {
    if (changed_hands) return false;  // asked again, it sees a living owner
    changed_hands = true;
    ledger_.Claim(3);
    EXPECT_TRUE(ledger_.Charge(3, MiB(10)));
    return true;  // the answer from before
  });
  EXPECT_EQ(ledger_.held_by(3), MiB(10));
  EXPECT_EQ(ledger_.used(), MiB(10));
}

TEST_F(LedgerTest, ManyAtOnceNeverOvercommit) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::vector<std::thread> threads;
  for (int slot = 0; slot < 4; ++slot) {
    threads.emplace_back([this, slot, seed] {
      std::mt19937_64 random(seed + slot);
      std::vector<Bytes> held;
      for (int step = 0; step < 5000; ++step) {
        const Bytes bytes = KiB(64 * (1 + random() % 400));
        if (random() % 2 == 0 && ledger_.Charge(slot, bytes)) held.push_back(bytes);
        if (ledger_.used() > ledger_.total()) ADD_FAILURE() << "overcommitted";
        if (random() % 2 == 0 && !held.empty()) {
          ledger_.Return(slot, held.back());
          held.pop_back();
        }
      }
      for (const Bytes bytes : held) ledger_.Return(slot, bytes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger_.used(), Bytes());
  EXPECT_EQ(SumOfShares(), Bytes());
}

TEST_F(LedgerTest, ReapersRaceAndOneWins) {
  for (int round = 0; round < 200; ++round) {
    ASSERT_TRUE(ledger_.Charge(9, MiB(30)));
    std::vector<std::thread> reapers;
    for (int i = 0; i < 3; ++i) {
      reapers.emplace_back([this] { ledger_.Reap(9, [](int) { return true; }); });
    }
    ASSERT_TRUE(ledger_.Charge(1, MiB(1)));
    for (std::thread& reaper : reapers) reaper.join();
    ledger_.Return(1, MiB(1));
    ASSERT_EQ(ledger_.used(), Bytes()) << round;
  }
}

}  // namespace
}  // namespace tandem::soft
