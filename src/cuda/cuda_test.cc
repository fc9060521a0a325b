#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string_view>

#include "src/cuda/probe.h"
#include "src/cuda/real_driver.h"
#include "src/cuda/uuid.h"

namespace tandem::cuda {
namespace {

TEST(DriverApiTest, EverySymbolHasOneRow) {
  static constexpr std::string_view kRows[][2] = {
#define CU(symbol, base, since, shim, soft, parameters, arguments) {#symbol, #base},
#include "src/cuda/driver_api.def"
#undef CU
  };
  std::set<std::string_view> seen;
  for (const auto& [symbol, base] : kRows) {
    EXPECT_TRUE(seen.insert(symbol).second) << symbol;
    EXPECT_TRUE(symbol.starts_with(base)) << symbol;
  }
}

TEST(DriverApiTest, LooksUpByVersion) {
  bool known = false;
  EXPECT_STREQ(ResolveProcAddress("cuGetProcAddress", 11030, false, &known), "cuGetProcAddress");
  EXPECT_STREQ(ResolveProcAddress("cuGetProcAddress", 12000, false, &known), "cuGetProcAddress_v2");
  EXPECT_STREQ(ResolveProcAddress("cuMemAlloc", 13000, false, &known), "cuMemAlloc_v2");
  EXPECT_STREQ(ResolveProcAddress("cuMemAlloc", 13000, true, &known), "cuMemAlloc_v2");
  EXPECT_STREQ(ResolveProcAddress("cuLaunchKernel", 12000, false, &known), "cuLaunchKernel");
  EXPECT_STREQ(ResolveProcAddress("cuLaunchKernel", 12000, true, &known), "cuLaunchKernel_ptsz");
  EXPECT_STREQ(ResolveProcAddress("cuMemcpyHtoD", 12000, true, &known), "cuMemcpyHtoD_v2_ptds");
  int since = 0;
  EXPECT_STREQ(ResolveProcAddress("cuGraphInstantiate", 13000, false, &known, &since),
               "cuGraphInstantiate_v2");
  EXPECT_EQ(since, 11000);
  EXPECT_EQ(ResolveProcAddress("cuMemAlloc", 2000, false, &known), nullptr);
  EXPECT_TRUE(known);
  EXPECT_EQ(ResolveProcAddress("cuMemAlloc_v2", 13000, false, &known), nullptr);
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

// A driver of three GPUs of 1000 MiB: an idle one, one that is full but for `room` contexts of 10
// MiB, and one that is broken.
namespace double_driver {
size_t room;
int device;
size_t made;

size_t Free() {
  return device == 0 ? (900 - 10 * made) << 20 : (10 * (room - made)) << 20;
}
CUresult CtxCreate(CUcontext* context, unsigned, CUdevice which) {
  if (which == 2) return CUDA_ERROR_UNKNOWN;
  device = which;
  if (device == 1 && made == room) return CUDA_ERROR_OUT_OF_MEMORY;
  ++made;
  *context = nullptr;
  return CUDA_SUCCESS;
}
RealDriver Make() {
  RealDriver driver{};
  driver.cuInit = [](unsigned) { return CUDA_SUCCESS; };
  driver.cuDeviceGetCount = [](int* count) { return *count = 3, CUDA_SUCCESS; };
  driver.cuDeviceGet = [](CUdevice* at, int ordinal) { return *at = ordinal, CUDA_SUCCESS; };
  driver.cuDeviceGetName = [](char* name, int, CUdevice) { return *name = 'G', CUDA_SUCCESS; };
  driver.cuDeviceGetUuid = [](CUuuid*, CUdevice) { return CUDA_SUCCESS; };
  driver.cuDeviceTotalMem_v2 = [](size_t* total, CUdevice) {
    return *total = size_t{1000} << 20, CUDA_SUCCESS;
  };
  driver.cuCtxCreate_v2 = &CtxCreate;
  driver.cuCtxDestroy_v2 = [](CUcontext) { return --made, CUDA_SUCCESS; };
  driver.cuMemGetInfo_v2 = [](size_t* free, size_t*) { return *free = Free(), CUDA_SUCCESS; };
  return driver;
}
}  // namespace double_driver

TEST(ProbeTest, AFullCardIsACardAndABrokenOneIsLeftOut) {
  for (size_t room = 0; room < 2; ++room) {
    double_driver::room = room;
    const Result<Probed> probed = ProbeDevices(double_driver::Make());
    ASSERT_TRUE(probed.ok()) << probed.error().message;
    ASSERT_EQ(probed->devices.size(), 2u);
    EXPECT_EQ(probed->devices[0].context, MiB(10));
    EXPECT_EQ(probed->devices[0].used, MiB(100));
    EXPECT_EQ(probed->devices[1].context, Bytes());
    EXPECT_EQ(probed->devices[1].used, MiB(1000));
    EXPECT_GT(probed->devices[1].granularity, Bytes());
    ASSERT_EQ(probed->unusable.size(), 1u);
    EXPECT_NE(probed->unusable[0].find("GPU 2: cuCtxCreate failed"), std::string::npos);
    EXPECT_EQ(double_driver::made, 0u);
  }
}

TEST(ProbeTest, WithoutAnyUsableGpuItSaysWhy) {
  RealDriver driver = double_driver::Make();
  driver.cuCtxCreate_v2 = [](CUcontext*, unsigned, CUdevice) { return CUDA_ERROR_UNKNOWN; };
  const Result<Probed> probed = ProbeDevices(driver);
  ASSERT_FALSE(probed.ok());
  EXPECT_NE(probed.error().message.find("CUDA_ERROR_UNKNOWN"), std::string::npos);
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
