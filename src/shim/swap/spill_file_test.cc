#include "src/shim/swap/spill_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "src/base/bytes.h"

namespace tandem::shim {
namespace {

constexpr uint64_t kPiece = 1 << 20;

UniqueFd MakeFile(uint64_t bytes = 16 * kPiece) {
  std::string path = testing::TempDir() + "tandem-spill-test-XXXXXX";
  UniqueFd fd(mkostemp(path.data(), O_CLOEXEC));
  unlink(path.c_str());
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  return fd;
}

class SpillFileTest : public testing::Test {
 protected:
  SpillFileTest() { file_.Offer(OwnFd(MakeFile())); }

  static std::byte* At(const SpillFile::Piece& piece) {
    return reinterpret_cast<std::byte*>(piece.begin);
  }
  static void Write(const SpillFile::Piece& piece) { std::memset(At(piece), 0x5a, piece.bytes); }
  static bool AllZero(const SpillFile::Piece& piece) {
    return std::all_of(At(piece), At(piece) + piece.bytes,
                       [](std::byte each) { return each == std::byte{}; });
  }

  SpillFile file_;
};

TEST_F(SpillFileTest, PiecesAreOfTheirOwnAndZero) {
  const auto a = file_.Map(kPiece), b = file_.Map(kPiece);
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_NE(a->offset, b->offset);
  Write(*a);
  EXPECT_TRUE(AllZero(*b));
  file_.Unmap(*a);
  const auto again = file_.Map(kPiece);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->offset, a->offset);
  EXPECT_TRUE(AllZero(*again));
}

TEST_F(SpillFileTest, APartIsForgotten) {
  const auto piece = file_.Map(kPiece);
  ASSERT_TRUE(piece.has_value());
  Write(*piece);
  const SpillFile::Piece middle = {piece->begin + 8192, piece->offset + 8192, 8192};
  EXPECT_TRUE(file_.Zero(middle));
  EXPECT_TRUE(AllZero(middle));
  EXPECT_EQ(At(*piece)[8191], std::byte{0x5a});
  EXPECT_EQ(At(*piece)[16384], std::byte{0x5a});
}

TEST_F(SpillFileTest, WithoutAFileNothingIsMapped) {
  SpillFile none;
  EXPECT_FALSE(none.Map(kPiece).has_value());
}

// A daemon that was started again gives another one.
TEST_F(SpillFileTest, ANewFileIsUsedOnceNothingLiesInTheOldOne) {
  const auto piece = file_.Map(kPiece);
  ASSERT_TRUE(piece.has_value());
  Write(*piece);
  UniqueFd next = MakeFile();
  const int watched = dup(next.get());
  const auto blocks = [&] {
    struct stat status {};
    fstat(watched, &status);
    return status.st_blocks;
  };
  file_.Offer(OwnFd(std::move(next)));
  const auto beside = file_.Map(kPiece);
  ASSERT_TRUE(beside.has_value());
  EXPECT_EQ(blocks(), 0);
  file_.Unmap(*piece);
  file_.Unmap(*beside);
  const auto there = file_.Map(kPiece);
  ASSERT_TRUE(there.has_value());
  EXPECT_GT(blocks(), 0);
  close(watched);
}

// A program that becomes a daemon closes what it does not know, and opens files of its own.
TEST_F(SpillFileTest, AProgramMayCloseTheDescriptorAndUseItsNumber) {
  UniqueFd fd = MakeFile();
  const int number = fd.get();
  SpillFile file;
  file.Offer(OwnFd(std::move(fd)));
  const auto piece = file.Map(kPiece);
  ASSERT_TRUE(piece.has_value());
  Write(*piece);
  UniqueFd theirs = MakeFile();
  ASSERT_EQ(pwrite(theirs.get(), "theirs", 6, 0), 6);
  ASSERT_EQ(dup2(theirs.get(), number), number);
  EXPECT_FALSE(file.Map(kPiece).has_value());
  EXPECT_TRUE(file.Zero(*piece));
  EXPECT_TRUE(AllZero(*piece));
  file.Unmap(*piece);
  char read_back[8] = {};
  EXPECT_EQ(pread(number, read_back, 6, 0), 6);
  EXPECT_STREQ(read_back, "theirs");
  close(number);
}

TEST_F(SpillFileTest, NothingIsMappedBeyondTheEndOfTheFile) {
  EXPECT_FALSE(file_.Map(17 * kPiece).has_value());
  ASSERT_TRUE(file_.Map(15 * kPiece).has_value());
  EXPECT_FALSE(file_.Map(2 * kPiece).has_value());
  EXPECT_TRUE(file_.Map(kPiece).has_value());
}

// It would get a signal for a file that grows beyond it.
TEST_F(SpillFileTest, TheProgramsOwnLimitForFilesIsNoneOfOurs) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto piece = file_.Map(kPiece);
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_TRUE(piece.has_value());
  Write(*piece);
}

}  // namespace
}  // namespace tandem::shim
