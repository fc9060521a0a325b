#include "src/shim/swap/fingerprint.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace tandem::shim {
namespace {

class FingerprintTest : public testing::Test {
 protected:
  FingerprintTest() : words_((kBytes) / 4) {
    EXPECT_TRUE(MakeFingerprintKey(&key_));
    std::mt19937 random(7);
    for (uint32_t& word : words_) word = static_cast<uint32_t>(random());
  }

  Fingerprint Take() const {
    std::vector<FingerprintSums> blocks;
    for (uint64_t block = 0; block < FingerprintBlocks(kBytes); ++block) {
      blocks.push_back(SumsOfBlock(key_, words_.data(), kBytes, block));
    }
    return Combine(key_, blocks);
  }

  static constexpr uint64_t kBytes = uint64_t{2} << 20;
  FingerprintKey key_;
  std::vector<uint32_t> words_;
};

TEST_F(FingerprintTest, IsThatOfTheContents) {
  const Fingerprint before = Take();
  for (const size_t at : {size_t{0}, size_t{1}, size_t{8}, words_.size() / 2, words_.size() - 1}) {
    words_[at] ^= 1;
    EXPECT_NE(Take(), before) << at;
    words_[at] ^= 1;
    EXPECT_EQ(Take(), before) << at;
  }
}

TEST_F(FingerprintTest, TellsApartWhatIsOnlyElsewhere) {
  const Fingerprint before = Take();
  for (const size_t other : {size_t{1}, size_t{8}, size_t{8 * 256}, size_t{8 * 1024}}) {
    std::swap(words_[0], words_[other]);
    EXPECT_NE(Take(), before) << other;
    std::swap(words_[0], words_[other]);
  }
}

TEST_F(FingerprintTest, KeysAreNotThoseOfOthers) {
  const Fingerprint before = Take();
  ASSERT_TRUE(MakeFingerprintKey(&key_));
  EXPECT_NE(Take(), before);
}

TEST_F(FingerprintTest, LargeChunksHaveMoreBlocks) {
  EXPECT_EQ(FingerprintBlocks(2 << 20), 4u);
  EXPECT_EQ(FingerprintBlocks(64 << 20), kFingerprintBlocks);
  EXPECT_EQ(FingerprintBlocks(uint64_t{1} << 40), kFingerprintBlocks);
}

}  // namespace
}  // namespace tandem::shim
