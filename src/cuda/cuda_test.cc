#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "src/cuda/real_driver.h"
#include "src/cuda/uuid.h"

namespace tandem::cuda {
namespace {

TEST(DriverApiTest, EverySymbolHasOneRow) {
  std::set<std::string> seen;
#define CU(symbol, base, since, shim, soft, parameters, arguments) \
  EXPECT_TRUE(seen.insert(#symbol).second) << #symbol;             \
  EXPECT_EQ(std::string(#symbol).rfind(#base, 0), 0u) << #symbol;
#include "src/cuda/driver_api.def"
#undef CU
}

TEST(DriverApiTest, LooksUpByVersion) {
  bool known = false;
  EXPECT_STREQ(ResolveProcAddress("cuGetProcAddress", 11030, &known), "cuGetProcAddress");
  EXPECT_STREQ(ResolveProcAddress("cuGetProcAddress", 12000, &known), "cuGetProcAddress_v2");
  EXPECT_STREQ(ResolveProcAddress("cuMemAlloc", 13000, &known), "cuMemAlloc_v2");
  EXPECT_EQ(ResolveProcAddress("cuMemAlloc", 2000, &known), nullptr);
  EXPECT_TRUE(known);
  EXPECT_EQ(ResolveProcAddress("cuMemAlloc_v2", 13000, &known), nullptr);
  EXPECT_FALSE(known);
}

TEST(DriverApiTest, MissingSymbolsAreNull) {
  const RealDriver driver = LoadRealDriver(nullptr, [](void*, const char* symbol) -> void* {
    static int double_of_the_driver;
    return std::strcmp(symbol, "cuInit") == 0 ? &double_of_the_driver : nullptr;
  });
  EXPECT_NE(driver.cuInit, nullptr);
  EXPECT_EQ(driver.cuMemAlloc_v2, nullptr);
}

TEST(UuidTest, IsWrittenAsTheDriversToolsWriteIt) {
  static constexpr unsigned char kBytes[16] = {0x00, 0x0f, 0xf0, 0xff, 0x12, 0x34, 0x56, 0x78,
                                               0x9a, 0xbc, 0xde, 0x01, 0x02, 0x80, 0x7f, 0xa5};
  CUuuid uuid;
  static_assert(sizeof(uuid.bytes) == sizeof(kBytes));
  std::memcpy(uuid.bytes, kBytes, sizeof(kBytes));
  EXPECT_EQ(FormatUuid(uuid), "GPU-000ff0ff-1234-5678-9abc-de0102807fa5");
}

TEST(DriverApiTest, NamesErrors) {
  EXPECT_STREQ(ErrorName(CUDA_ERROR_OUT_OF_MEMORY), "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_STREQ(ErrorText(CUDA_ERROR_OUT_OF_MEMORY), "out of memory");
  EXPECT_EQ(ErrorName(static_cast<CUresult>(12345)), nullptr);
}

}  // namespace
}  // namespace tandem::cuda
