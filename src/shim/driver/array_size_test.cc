#include "src/shim/driver/array_size.h"

#include <gtest/gtest.h>

namespace tandem::shim {
namespace {

// In KiB. By number where no name is declared.
uint64_t KibibytesOf(unsigned int format, unsigned int channels, size_t width, size_t height,
                     size_t depth = 0, unsigned int flags = 0, unsigned int levels = 1) {
  const CUDA_ARRAY3D_DESCRIPTOR array = {
      width, height, depth, static_cast<CUarray_format>(format), channels, flags};
  return ArrayBytes(array, levels).count >> 10;
}

TEST(ArraySizeTest, PlainFormatsHaveTheirChannels) {
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_UNSIGNED_INT8, 1, 1024, 1024), 1024u);
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_HALF, 2, 1024, 1024), 4096u);
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_FLOAT, 4, 256, 256), 1024u);
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_FLOAT, 4, 256, 256, 3), 3072u);
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_FLOAT, 1, 1, 0), 64u);      // no less than a page
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_FLOAT, 1, 1, 1024), 512u);  // nor a row
}

TEST(ArraySizeTest, OtherFormatsHaveABlockOrAPixelOfASize) {
  EXPECT_EQ(KibibytesOf(0x91, 4, 1024, 1024), 512u);   // BC1: 8 bytes for 16
  EXPECT_EQ(KibibytesOf(0x9e, 4, 1024, 1024), 1024u);  // BC7: 16
  EXPECT_EQ(KibibytesOf(0x9e, 4, 1021, 1022), 1024u);  // in whole blocks
  EXPECT_EQ(KibibytesOf(0xc2, 4, 1024, 1024), 4096u);  // UNORM_INT8X4
  EXPECT_EQ(KibibytesOf(0xcb, 4, 1024, 1024), 8192u);  // SNORM_INT16X4
  EXPECT_EQ(KibibytesOf(0xb0, 3, 1024, 1024), 1536u);  // NV12: a half in two colours
  EXPECT_EQ(KibibytesOf(0x9f, 3, 1024, 1024), 3072u);  // P010, of 16 bits
  EXPECT_EQ(KibibytesOf(0x50, 4, 1024, 1024), 4096u);  // 10, 10, 10 and 2 bits
  EXPECT_EQ(KibibytesOf(0x7f, 1, 1024, 1024), 0u);     // an unknown format
}

TEST(ArraySizeTest, LevelsAreHalfAsLargeEach) {
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_FLOAT, 4, 1024, 1024, 0, 0, 3), 16384u + 4096 + 1024);
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_FLOAT, 4, 128, 128, 128, 0, 2), 32768u + 4096);
  // Layers there are as many of each size, and of levels no more than down to one element.
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_FLOAT, 4, 128, 128, 128, CUDA_ARRAY3D_LAYERED, 2),
            32768u + 8192);
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_FLOAT, 4, 1024, 1024, 0, 0, 11),
            KibibytesOf(CU_AD_FORMAT_FLOAT, 4, 1024, 1024, 0, 0, 4000000000u));
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_FLOAT, 4, 1024, 1024, 0, 0, 0), 16384u);  // one at least
}

TEST(ArraySizeTest, WhatTheDriverWillRefuseOrBackLaterTakesNothing) {
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_FLOAT, 4, size_t{1} << 40, 1), 0u);
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_FLOAT, 5, 1024, 1024), 0u);
  EXPECT_EQ(KibibytesOf(CU_AD_FORMAT_FLOAT, 4, 1024, 1024, 0, 0x40), 0u);  // sparse
}

}  // namespace
}  // namespace tandem::shim
