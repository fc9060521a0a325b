#include "src/shim/swap/unleased_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "src/shim/testing/unleased_fixture.h"

namespace tandem::shim {
namespace {

constexpr uint64_t kWidth = 1000, kPitch = 1536, kHeight = 40, kDepth = 3;

// To a device, of rows at 8 bytes in the third row of the second plane.
CUDA_MEMCPY3D ToDevice(CUdeviceptr to, const Data& from) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from.data();
  copy.srcPitch = kWidth;
  copy.srcHeight = kHeight;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.dstPitch = kPitch;
  copy.dstHeight = kHeight + 5;
  copy.dstXInBytes = 8;
  copy.dstY = 2;
  copy.dstZ = 1;
  copy.WidthInBytes = kWidth;
  copy.Height = kHeight;
  copy.Depth = kDepth;
  return copy;
}

CUDA_MEMCPY3D Back(const CUDA_MEMCPY3D& there, Data* to) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = there.dstDevice;
  copy.srcPitch = there.dstPitch;
  copy.srcHeight = there.dstHeight;
  copy.srcXInBytes = there.dstXInBytes;
  copy.srcY = there.dstY;
  copy.srcZ = there.dstZ;
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.dstDevice = reinterpret_cast<CUdeviceptr>(to->data());
  copy.dstPitch = there.srcPitch;
  copy.dstHeight = there.srcHeight;
  copy.WidthInBytes = there.WidthInBytes;
  copy.Height = there.Height;
  copy.Depth = there.Depth;
  return copy;
}

class UnleasedRowsTest : public UnleasedAccessTest {
 protected:
  template <typename Planes>
  bool Copy(const Planes& planes) {
    const auto rows = RowsOf(planes);
    return rows.has_value() && CopyRows(&access(), *rows);
  }
  Data Read(CUdeviceptr from, uint64_t bytes) {
    Data data(bytes);
    EXPECT_TRUE(access().Read(data.data(), from, bytes));
    return data;
  }
};

TEST_F(UnleasedRowsTest, PlanesAreWrittenAndReadBackAndNothingBesideThem) {
  const CUdeviceptr pointer = AllocateAway(MiB(4));
  const Data data = Counted(Bytes(kWidth * kHeight * kDepth));
  const CUDA_MEMCPY3D there = ToDevice(pointer, data);
  EXPECT_TRUE(Copy(there));
  Data back(data.size());
  EXPECT_TRUE(Copy(Back(there, &back)));
  EXPECT_EQ(back, data);

  Data expected(MiB(4).count, 0x5a);
  for (uint64_t z = 0; z < kDepth; ++z) {
    for (uint64_t y = 0; y < kHeight; ++y) {
      const uint64_t at = ((1 + z) * there.dstHeight + 2 + y) * kPitch + 8;
      std::copy_n(data.begin() + static_cast<ptrdiff_t>((z * kHeight + y) * kWidth), kWidth,
                  expected.begin() + static_cast<ptrdiff_t>(at));
    }
  }
  EXPECT_EQ(Read(pointer, expected.size()), expected);
  EXPECT_EQ(driver_.used(), 0u);
}

TEST_F(UnleasedRowsTest, RowsAreMovedWithinTheDevice) {
  const CUdeviceptr pointer = AllocateAway(MiB(4));
  const Data data = Counted(Bytes(kWidth * kHeight));
  EXPECT_TRUE(access().Write(pointer, data.data(), data.size()));
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = pointer;
  copy.dstDevice = pointer + MiB(2).count;
  copy.srcPitch = kWidth;
  copy.dstPitch = kPitch;
  copy.WidthInBytes = kWidth;
  copy.Height = kHeight;
  EXPECT_TRUE(Copy(copy));
  for (uint64_t y = 0; y < kHeight; ++y) {
    const auto row = data.begin() + static_cast<ptrdiff_t>(y * kWidth);
    EXPECT_EQ(Read(copy.dstDevice + y * kPitch, kWidth), Data(row, row + kWidth));
  }
  copy.dstDevice = pointer + kWidth / 2;  // onto itself
  EXPECT_FALSE(Copy(copy));
}

TEST_F(UnleasedRowsTest, RowsAreFilled) {
  const CUdeviceptr pointer = AllocateAway(MiB(4));
  EXPECT_TRUE(FillRows(&access(), {pointer + 16, kPitch}, {0xabcd1234, 4}, kWidth / 4, kHeight));
  const Data all = Read(pointer, kPitch * kHeight);
  for (uint64_t at = 0; at < all.size(); ++at) {
    const uint64_t x = at % kPitch;
    const bool filled = x >= 16 && x < 16 + kWidth;
    const unsigned char pattern[] = {0x34, 0x12, 0xcd, 0xab};
    ASSERT_EQ(all[at], filled ? pattern[x % 4] : 0x5a) << at;
  }
  EXPECT_FALSE(FillRows(&access(), {pointer, kPitch + 1}, {1, 2}, 8, 8));
  EXPECT_FALSE(FillRows(&access(), {pointer, 8}, {1, 4}, 3, 2));
  EXPECT_FALSE(FillRows(&access(), {pointer, MiB(2).count}, {1, 1}, 8, 3));  // beyond its end
}

TEST_F(UnleasedRowsTest, RowsOfTwoBlocksAreTheDriversAffair) {
  const CUdeviceptr a = AllocateAway(MiB(2)), b = Allocate(MiB(2));
  Data data(16);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = std::min(a, b);
  copy.srcPitch = std::max(a, b) - copy.srcDevice;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = data.data();
  copy.dstPitch = copy.WidthInBytes = 8;
  copy.Height = 1;
  EXPECT_TRUE(Copy(copy));
  copy.Height = 2;
  EXPECT_FALSE(Copy(copy));
}

TEST(RowsOfTest, WhatTheDriverMayRefuseIsLeftToIt) {
  const Data data(8);
  const CUDA_MEMCPY3D right = ToDevice(0x10000, data);
  ASSERT_TRUE(RowsOf(right).has_value());
  const auto refused = [&](auto change) {
    CUDA_MEMCPY3D copy = right;
    change(copy);
    return !RowsOf(copy).has_value();
  };
  using Copy = CUDA_MEMCPY3D&;
  EXPECT_TRUE(refused([](Copy copy) { copy.WidthInBytes = 0; }));
  EXPECT_TRUE(refused([](Copy copy) { copy.Height = 0; }));
  EXPECT_TRUE(refused([](Copy copy) { copy.Depth = 0; }));
  EXPECT_TRUE(refused([](Copy copy) { copy.srcPitch = kWidth - 1; }));
  EXPECT_TRUE(refused([](Copy copy) { copy.dstXInBytes = kPitch - kWidth + 1; }));
  EXPECT_TRUE(refused([](Copy copy) { copy.srcHeight = kHeight - 1; }));
  EXPECT_TRUE(refused([](Copy copy) { copy.srcMemoryType = CU_MEMORYTYPE_ARRAY; }));
  EXPECT_TRUE(refused([](Copy copy) { copy.srcLOD = 1; }));
  EXPECT_TRUE(refused([](Copy copy) { copy.reserved1 = &copy; }));
  EXPECT_TRUE(refused([](Copy copy) { copy.dstHeight = copy.dstZ = uint64_t{1} << 30; }));
  EXPECT_TRUE(refused([](Copy copy) { copy.Depth = ~uint64_t{0}; }));
  EXPECT_TRUE(refused([](Copy copy) { copy.dstPitch = ~uint64_t{0}; }));
}

}  // namespace
}  // namespace tandem::shim
