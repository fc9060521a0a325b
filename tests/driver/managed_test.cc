// Managed memory: one address for the host and the device.
#include <cstring>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

class ManagedTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int managed = 0;
    ASSERT_CU(Cu().cuDeviceGetAttribute(&managed, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0));
    if (managed == 0) GTEST_SKIP() << "the device has no managed memory";
    ASSERT_CU(
        Cu().cuDeviceGetAttribute(&concurrent_, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
    ASSERT_CU(Cu().cuMemAllocManaged(&memory_, 8192, CU_MEM_ATTACH_GLOBAL));
  }
  int concurrent_ = 0;
  CUdeviceptr memory_ = 0;
};

TEST_F(ManagedTest, HostAndDeviceSeeTheSame) {
  auto* words = reinterpret_cast<volatile uint32_t*>(memory_);
  words[0] = 40;
  uint32_t value = 2, count = 1;
  ASSERT_CU(Launch(Kernel("add"), 1, 32, nullptr, {&memory_, &value, &count}));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(words[0], 42u);
  int is_managed = 0;
  ASSERT_CU(Cu().cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory_));
  EXPECT_EQ(is_managed, 1);
  ASSERT_CU(Cu().cuMemFree_v2(memory_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemAllocManaged(&memory_, 4096, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemAllocManaged(nullptr, 4096, CU_MEM_ATTACH_GLOBAL));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemAllocManaged(&memory_, 0, CU_MEM_ATTACH_GLOBAL));
}

TEST_F(ManagedTest, RemembersAdvice) {
  if (concurrent_ == 0) GTEST_SKIP() << "the device does not take advice";
  int answer = -7;
  ASSERT_CU(Cu().cuMemAdvise(memory_, 8192, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
  ASSERT_CU(Cu().cuMemRangeGetAttribute(&answer, sizeof(answer), CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                        memory_, 8192));
  EXPECT_EQ(answer, 1);
  ASSERT_CU(Cu().cuMemAdvise(memory_, 8192, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
  int preferred = 0, read_mostly = 0;
  void* data[] = {&preferred, &read_mostly};
  size_t sizes[] = {sizeof(int), sizeof(int)};
  CUmem_range_attribute attributes[] = {CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                        CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY};
  ASSERT_CU(Cu().cuMemRangeGetAttributes(data, sizes, attributes, 2, memory_, 8192));
  EXPECT_EQ(preferred, CU_DEVICE_CPU);
  EXPECT_EQ(read_mostly, 1);
  ASSERT_CU(Cu().cuMemPrefetchAsync(memory_, 8192, 0, nullptr));
  ASSERT_CU(Cu().cuCtxSynchronize());
  ASSERT_CU(Cu().cuMemRangeGetAttribute(
      &answer, sizeof(answer), CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory_, 8192));
  EXPECT_EQ(answer, 0);
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, Cu().cuMemPrefetchAsync(memory_, 8192, 999, nullptr));
  const CUdeviceptr plain = Allocate(4096);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemPrefetchAsync(plain, 4096, 0, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuMemAdvise(plain, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuMemAdvise(memory_, 8192, static_cast<CUmem_advise>(99), 0));
}

TEST_F(ManagedTest, AnAbsurdSizeOfAnAnswerIsRefused) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "a card may believe it";
  int answer = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuMemRangeGetAttribute(&answer, size_t{1} << 60,
                                        CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory_, 8192));
}

TEST_F(ManagedTest, BelongsToStreams) {
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, 0));
  ASSERT_CU(Cu().cuStreamAttachMemAsync(stream, memory_, 0, CU_MEM_ATTACH_SINGLE));
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuStreamAttachMemAsync(stream, memory_, 0, 99));
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
}

const char kManagedVariable[] = R"(
.version 6.3
.target sm_50
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 word = 7;
.visible .entry raise()
{
  .reg .b32 %r<2>;
  ld.global.u32 %r0, [word];
  add.u32 %r1, %r0, 1;
  st.global.u32 [word], %r1;
  ret;
}
)";

TEST_F(ManagedTest, AModulesVariableMayBeManaged) {
  if (Cu().cuLibraryGetManaged == nullptr) GTEST_SKIP() << "a driver before CUDA 12";
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUdeviceptr word = 0;
  size_t bytes = 0;
  ASSERT_CU(
      Cu().cuLibraryLoadData(&library, kManagedVariable, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(Cu().cuLibraryGetManaged(&word, &bytes, library, "word"));
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(*reinterpret_cast<volatile uint32_t*>(word), 7u);
  int is_managed = 0;
  ASSERT_CU(Cu().cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, word));
  EXPECT_EQ(is_managed, 1);
  ASSERT_CU(Cu().cuLibraryGetKernel(&kernel, library, "raise"));
  ASSERT_CU(Launch(reinterpret_cast<CUfunction>(kernel), 1, 1, nullptr, {}));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(*reinterpret_cast<volatile uint32_t*>(word), 8u);
  ASSERT_CU(Cu().cuLibraryUnload(library));
}

}  // namespace
}  // namespace tandem::driver_test
