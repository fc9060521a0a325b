#include "src/shim/swap/slab_pages.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "src/shim/driver/address_regions.h"

namespace tandem::shim {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr auto kFitting = SlabPages::Slots::kFitting;
constexpr auto kAnyLarger = SlabPages::Slots::kAnyLarger;

class SlabPagesTest : public testing::Test {
 protected:
  Extent* NewPage(CUcontext context) {
    made_.push_back(std::make_unique<Extent>());
    made_.back()->address = made_.size() << 32;
    made_.back()->bytes = kGranule;
    made_.back()->context = context;
    return made_.back().get();
  }
  // A page that was given back empty.
  Extent* KeepNew(CUcontext context) {
    Extent* const page = NewPage(context);
    pages_.Return(pages_.Add(page, 5000));
    pages_.Close(page);
    EXPECT_TRUE(pages_.Keep(page).empty());
    return page;
  }

  int contexts_[2] = {};
  const CUcontext a_ = reinterpret_cast<CUcontext>(&contexts_[0]);
  const CUcontext b_ = reinterpret_cast<CUcontext>(&contexts_[1]);
  std::vector<std::unique_ptr<Extent>> made_;
  SlabPages pages_;
};

TEST_F(SlabPagesTest, APageGivesEachSlotOnce) {
  Extent* const page = NewPage(a_);
  std::set<CUdeviceptr> addresses = {pages_.Add(page, 100 * kKiB).address()};
  while (const auto slot = pages_.Take(100 * kKiB, a_, kFitting)) {
    EXPECT_EQ(slot->extent, page);
    EXPECT_EQ(slot->bytes(), 128 * kKiB);
    EXPECT_TRUE(addresses.insert(slot->address()).second);
  }
  EXPECT_EQ(addresses.size(), kGranule / (128 * kKiB));
  EXPECT_EQ(*addresses.rbegin(), page->address + kGranule - 128 * kKiB);
  pages_.Return({page, 3});
  EXPECT_EQ(pages_.Take(100 * kKiB, a_, kFitting)->slot, 3u);
  EXPECT_FALSE(pages_.Take(100 * kKiB, a_, kAnyLarger).has_value());
}

TEST_F(SlabPagesTest, ASlotIsOfTheBlocksContextAndSizeOrLarger) {
  pages_.Add(NewPage(a_), 4 * kKiB);
  EXPECT_FALSE(pages_.Take(4 * kKiB, b_, kAnyLarger).has_value());
  EXPECT_FALSE(pages_.Take(5 * kKiB, a_, kAnyLarger).has_value());
  EXPECT_FALSE(pages_.Take(512, a_, kFitting).has_value());
  EXPECT_EQ(pages_.Take(512, a_, kAnyLarger)->bytes(), 4 * kKiB);
}

TEST_F(SlabPagesTest, NothingIsTakenFromAClosedPage) {
  Extent* const page = NewPage(a_);
  pages_.Add(page, 4 * kKiB);
  pages_.Close(page);
  pages_.Close(page);
  EXPECT_FALSE(pages_.Take(4 * kKiB, a_, kFitting).has_value());
}

TEST_F(SlabPagesTest, AKeptPageIsCutAnewUnlessItIsLost) {
  Extent* const page = KeepNew(a_);
  KeepNew(a_)->lost = true;
  EXPECT_EQ(pages_.kept(), Bytes(2 * kGranule));
  const auto slot = pages_.Take(100 * kKiB, a_, kFitting);
  EXPECT_EQ(slot->extent, page);
  EXPECT_EQ(slot->bytes(), 128 * kKiB);
  EXPECT_EQ(pages_.kept(), Bytes(kGranule));
}

TEST_F(SlabPagesTest, TheLongestKeptGoFirst) {
  std::vector<Extent*> kept;
  for (size_t i = 0; i < SlabPages::kMostKept; ++i) kept.push_back(KeepNew(i == 1 ? b_ : a_));
  Extent* const last = NewPage(a_);
  EXPECT_EQ(pages_.Keep(last), std::vector<Extent*>{kept[0]});
  EXPECT_EQ(pages_.TakeKeptOf(b_), std::vector<Extent*>{kept[1]});
  EXPECT_EQ(pages_.TakeKept(1), (std::vector<Extent*>{kept[2], kept[3]}));
  EXPECT_EQ(pages_.kept(), Bytes(kGranule));
}

TEST_F(SlabPagesTest, PagesThatWereTakenSinceTheLastLookStay) {
  std::vector<Extent*> kept = {KeepNew(a_), KeepNew(a_)};
  bool more = false;
  EXPECT_TRUE(pages_.TakeUntaken(&more).empty());
  EXPECT_TRUE(more);
  const auto slot = pages_.Take(512, a_, kFitting);
  pages_.Return(*slot);
  pages_.Close(slot->extent);
  pages_.Keep(slot->extent);
  EXPECT_EQ(pages_.TakeUntaken(&more), std::vector<Extent*>{kept[0]});
  EXPECT_TRUE(more);
  EXPECT_EQ(pages_.TakeUntaken(&more), std::vector<Extent*>{kept[1]});
  EXPECT_FALSE(more);
}

}  // namespace
}  // namespace tandem::shim
