#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "src/cuda/probe.h"
#include "src/cuda/real_driver.h"
#include "src/cuda/uuid.h"

namespace tandem::cuda {
namespace {

TEST(DriverApiTest, EverySymbolHasOneRow) {
  static constexpr std::string_view kRows[][2] = {
#define CU(symbol, base, since, shim, soft, parameters, arguments) {#symbol, #base},
#define CU_PASS(symbol, base, since, why) {#symbol, #base},
#define CU_REFUSE(symbol, base, since, why) {#symbol, #base},
#include "src/cuda/driver_api.def"
#undef CU_REFUSE
#undef CU_PASS
#undef CU
  };
  std::set<std::string_view> seen;
  for (const auto& [symbol, base] : kRows) {
    EXPECT_TRUE(seen.insert(symbol).second) << symbol;
    EXPECT_TRUE(symbol.starts_with(base)) << symbol;
  }
}

std::string Resolved(const char* base, int version, bool per_thread = false) {
  const ProcAddress found = ResolveProcAddress(base, version, per_thread);
  return found.symbol != nullptr ? found.symbol : found.known ? "another version" : "unknown";
}

TEST(DriverApiTest, LooksUpByVersion) {
  EXPECT_EQ(Resolved("cuGetProcAddress", 11030), "cuGetProcAddress");
  EXPECT_EQ(Resolved("cuGetProcAddress", 12000), "cuGetProcAddress_v2");
  EXPECT_EQ(Resolved("cuMemAlloc", 3010), "cuMemAlloc");
  EXPECT_EQ(Resolved("cuMemAlloc", 13000), "cuMemAlloc_v2");
  EXPECT_EQ(Resolved("cuStreamGetCtx", 13000), "cuStreamGetCtx_v2");
  EXPECT_EQ(Resolved("cuGraphInstantiate", 13000), "cuGraphInstantiate_v2");
  EXPECT_EQ(ResolveProcAddress("cuGraphInstantiate", 13000, false).since, 11000);
  EXPECT_EQ(Resolved("cuMemAlloc", 1000), "another version");
  EXPECT_EQ(Resolved("cuMemAlloc_v2", 13000), "unknown");
}

TEST(DriverApiTest, LooksUpVariantsForDefaultStreamsOfOnePerThread) {
  EXPECT_EQ(Resolved("cuLaunchKernel", 12000, true), "cuLaunchKernel_ptsz");
  EXPECT_EQ(Resolved("cuMemcpyHtoD", 12000, true), "cuMemcpyHtoD_v2_ptds");
  EXPECT_EQ(Resolved("cuStreamGetCtx", 13000, true), "cuStreamGetCtx_v2_ptsz");
  EXPECT_EQ(Resolved("cuMemAlloc", 13000, true), "cuMemAlloc_v2") << "it takes no stream";
  EXPECT_EQ(Resolved("cuLaunchKernel", 6050, true), "cuLaunchKernel") << "older than the variant";
}

TEST(DriverApiTest, LooksUpOnlyWhatExists) {
  const auto no_v4 = [](const char* symbol) { return std::strcmp(symbol, "cuCtxCreate_v4") != 0; };
  EXPECT_STREQ(ResolveProcAddress("cuCtxCreate", 13000, false, no_v4).symbol, "cuCtxCreate_v3");
  const auto none = [](const char*) { return false; };
  EXPECT_FALSE(ResolveProcAddress("cuCtxCreate", 13000, false, none).known);
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
