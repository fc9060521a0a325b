#include "softgpu/driver/fat_binary.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>

namespace tandem::soft {
namespace {

uint64_t MostMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

TEST(FatBinary, AClaimedSizeCostsNothing) {
  constexpr uint64_t kClaimed = uint64_t{1} << 30;
  // A header, one entry for Zstandard that says it is large, and a frame whose block is missing.
  std::string image(16 + 64 + 16, '\0');
  const auto put = [&](size_t at, uint64_t value, size_t bytes) {
    std::memcpy(&image[at], &value, bytes);
  };
  put(0, 0xba55ed50, 4);
  put(4, 1, 2);
  put(6, 16, 2);
  put(8, image.size() - 16, 8);
  put(16, 1, 2);  // PTX
  put(20, 64, 4);
  put(24, 16, 8);
  put(32, 16, 4);  // packed
  put(44, 50, 4);
  put(56, 0x8000, 8);
  put(72, kClaimed, 8);
  put(80, 0xfd2fb528, 4);
  put(84, 0xa0, 1);  // one segment, whose size has four bytes
  put(85, kClaimed, 4);
  const uint64_t before = MostMemory();
  std::string ptx, log;
  EXPECT_EQ(PtxOfFatBinary({image.data(), image.size()}, 86, &ptx, &log),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_NE(log.find("packed in a way"), std::string::npos) << log;
  EXPECT_LT(MostMemory() - before, kClaimed / 2);
}

}  // namespace
}  // namespace tandem::soft
