#include "src/shim/os/populate.h"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tandem::shim {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class PopulateTest : public testing::TestWithParam<unsigned int> {};

// Every page is there afterwards, also where the last piece is a small one.
TEST_P(PopulateTest, MakesEveryPage) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = 37 * kMiB + 3 * page;
  void* const begin =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(begin, MAP_FAILED);
  if (madvise(begin, page, MADV_POPULATE_WRITE) != 0) GTEST_SKIP() << "a kernel before 5.14";
  EXPECT_TRUE(Populate(reinterpret_cast<uint64_t>(begin), bytes, GetParam()));
  std::vector<unsigned char> resident((bytes + page - 1) / page);
  ASSERT_EQ(mincore(begin, bytes, resident.data()), 0);
  EXPECT_TRUE(std::ranges::all_of(resident, [](unsigned char each) { return (each & 1) != 0; }));
  munmap(begin, bytes);
}

// A page that no thread may write to stands for memory that the kernel has not got.
TEST_P(PopulateTest, SaysWhenAPageCannotBeMade) {
  const size_t bytes = 64 * kMiB;
  void* const begin =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(begin, MAP_FAILED);
  if (madvise(begin, kMiB, MADV_POPULATE_WRITE) != 0) GTEST_SKIP() << "a kernel before 5.14";
  ASSERT_EQ(munmap(static_cast<std::byte*>(begin) + 50 * kMiB, kMiB), 0);
  EXPECT_FALSE(Populate(reinterpret_cast<uint64_t>(begin), bytes, GetParam()));
  munmap(begin, bytes);
}

INSTANTIATE_TEST_SUITE_P(Threads, PopulateTest, testing::Values(1u, 3u, 8u, 100u));

TEST(PopulateThreadsTest, AreFewerThanTheProcessors) {
  EXPECT_GE(PopulateThreads(), 1u);
  EXPECT_LE(PopulateThreads(), 8u);
}

}  // namespace
}  // namespace tandem::shim
