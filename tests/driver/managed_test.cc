// Managed memory: one address for the host and the device.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

constexpr CUdevice kNoDevice = 999;

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

constexpr char kAddSystem[] = R"(.version 6.0
.target sm_60
.address_size 64
.visible .entry add_system(.param .u64 words, .param .u32 rounds) {
  .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, 0;
LOOP:
  red.sys.add.u32 [%rd1], 1;
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p, %r2, %r1;
  @%p bra LOOP;
  ret;
})";

TEST_F(ManagedTest, AtomicsOfSystemScopeLoseNoUpdateOfTheHost) {
  if (concurrent_ == 0) GTEST_SKIP() << "the device does not share its memory meanwhile";
  constexpr uint32_t kThreads = 256, kBlocks = 8;
  CUmodule module = nullptr;
  CUfunction add = nullptr;
  uint32_t rounds = 1000, added = 0;
  ASSERT_CU(Cu().cuModuleLoadData(&module, kAddSystem));
  ASSERT_CU(Cu().cuModuleGetFunction(&add, module, "add_system"));
  auto* const word = reinterpret_cast<uint32_t*>(memory_);
  *word = 0;
  ASSERT_CU(Launch(add, kBlocks, kThreads, nullptr, {&memory_, &rounds}));
  for (; Cu().cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY; added += 1000) {
    for (int i = 0; i < 1000; ++i) __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
  }
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(*word, added + kBlocks * kThreads * rounds);
}

// Each writes after the other, all over it, and finds what the other wrote.
TEST_F(ManagedTest, HostAndDeviceTakeTurns) {
  constexpr uint32_t kWords = 2048;
  auto* words = reinterpret_cast<volatile uint32_t*>(memory_);
  uint32_t value = 0x1'0001, count = kWords;
  for (uint32_t i = 0; i < kWords; ++i) words[i] = i;
  for (uint32_t round = 1; round <= 3; ++round) {
    ASSERT_CU(Launch(Kernel("add"), kWords / 256, 256, nullptr, {&memory_, &value, &count}));
    ASSERT_CU(Cu().cuCtxSynchronize());
    for (uint32_t i = 0; i < kWords; ++i) {
      ASSERT_EQ(words[i], i + round * (value + 3) - 3) << round << ", " << i;
      words[i] = words[i] + 3;
    }
  }
  // Copies take it for memory of the host and of the device.
  std::vector<uint32_t> out(kWords), in(kWords, 5);
  ASSERT_CU(Cu().cuMemcpy(reinterpret_cast<CUdeviceptr>(out.data()), memory_, 4 * kWords));
  EXPECT_EQ(out[kWords - 1], kWords - 1 + 3 * (value + 3));
  ASSERT_CU(Cu().cuMemcpyHtoD_v2(memory_, in.data(), 4 * kWords));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(words[kWords - 1], 5u);
  void* host = nullptr;
  ASSERT_CU(Cu().cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory_ + 4));
  EXPECT_EQ(host, &words[1]);
}

TEST_F(ManagedTest, ThereIsAsMuchAsTheDeviceHas) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  const CUfunction add = Kernel("add");  // which takes memory, too
  size_t free = 0, left = 0, total = 0;
  ASSERT_CU(Cu().cuMemGetInfo_v2(&free, &total));
  const size_t most = free / 2 / kPage * kPage;
  CUdeviceptr first = 0, second = 0, more = 0;
  ASSERT_CU(Cu().cuMemAllocManaged(&first, most, CU_MEM_ATTACH_GLOBAL));
  ASSERT_CU(Cu().cuMemAllocManaged(&second, most, CU_MEM_ATTACH_GLOBAL));
  uint32_t value = 2, count = 1;
  for (CUdeviceptr last : {first + most - 4, second + most - 4}) {
    *reinterpret_cast<volatile uint32_t*>(last) = 40;
    ASSERT_CU(Launch(add, 1, 32, nullptr, {&last, &value, &count}));
    ASSERT_CU(Cu().cuCtxSynchronize());
    EXPECT_EQ(*reinterpret_cast<volatile uint32_t*>(last), 42u);
  }
  if (OnSoftwareGpu()) {  // a card moves what is too much to the host
    EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY,
              Cu().cuMemAllocManaged(&more, 2 * kPage, CU_MEM_ATTACH_GLOBAL));
    EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY,
              Cu().cuMemAllocManaged(&more, total + kPage, CU_MEM_ATTACH_HOST));
    EXPECT_EQ(more, 0u);
    ASSERT_CU(Cu().cuMemGetInfo_v2(&left, &total));
    EXPECT_LT(left, 2 * kPage);
  }
  ASSERT_CU(Cu().cuMemFree_v2(first));
  ASSERT_CU(Cu().cuMemFree_v2(second));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&left, &total));
  EXPECT_TRUE(IsAbout(left, free)) << left << " after, " << free << " before";
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

// Advice is about the pages that it names.
TEST_F(ManagedTest, AdvisesOfAPart) {
  if (concurrent_ == 0) GTEST_SKIP() << "the device does not take advice";
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), bytes = 4 * page;
  CUdeviceptr memory = 0;
  ASSERT_CU(Cu().cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_GLOBAL));
  const auto ask = [&](CUmem_range_attribute attribute, size_t begin, size_t size) {
    int answer = -7;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemRangeGetAttribute(&answer, sizeof(answer), attribute,
                                                        memory + begin, size));
    return answer;
  };
  constexpr auto kReadMostly = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
  constexpr auto kPreferred = CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION;
  constexpr auto kPrefetched = CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
  EXPECT_EQ(ask(kReadMostly, 0, bytes), 0);
  EXPECT_EQ(ask(kPreferred, 0, bytes), CU_DEVICE_INVALID);
  EXPECT_EQ(ask(kPrefetched, 0, bytes), CU_DEVICE_INVALID);
  ASSERT_CU(Cu().cuMemAdvise(memory + page, page, CU_MEM_ADVISE_SET_READ_MOSTLY, kNoDevice));
  EXPECT_EQ(ask(kReadMostly, page, page), 1);
  EXPECT_EQ(ask(kReadMostly, 0, page), 0);
  EXPECT_EQ(ask(kReadMostly, 0, bytes), 0);  // not all of it
  ASSERT_CU(Cu().cuMemAdvise(memory, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
  EXPECT_EQ(ask(kReadMostly, 0, bytes), 1);
  ASSERT_CU(Cu().cuMemAdvise(memory, page, CU_MEM_ADVISE_UNSET_READ_MOSTLY, kNoDevice));
  EXPECT_EQ(ask(kReadMostly, 0, bytes), 0);
  EXPECT_EQ(ask(kReadMostly, page, 3 * page), 1);
  ASSERT_CU(Cu().cuMemAdvise(memory, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0));
  EXPECT_EQ(ask(kPreferred, 0, bytes), 0);
  ASSERT_CU(Cu().cuMemAdvise(memory, page, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
  EXPECT_EQ(ask(kPreferred, 0, page), CU_DEVICE_CPU);
  EXPECT_EQ(ask(kPreferred, 0, bytes), CU_DEVICE_INVALID);  // not one for all of it
  ASSERT_CU(Cu().cuMemAdvise(memory, bytes, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, kNoDevice));
  EXPECT_EQ(ask(kPreferred, page, page), CU_DEVICE_INVALID);
  ASSERT_CU(Cu().cuMemPrefetchAsync(memory + 2 * page, page, CU_DEVICE_CPU, nullptr));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(ask(kPrefetched, 2 * page, page), CU_DEVICE_CPU);
  EXPECT_EQ(ask(kPrefetched, 0, bytes), CU_DEVICE_INVALID);
  ASSERT_CU(Cu().cuMemFree_v2(memory));
}

TEST_F(ManagedTest, NamesWhoAccessesIt) {
  if (concurrent_ == 0) GTEST_SKIP() << "the device does not take advice";
  const auto ask = [&] {
    std::vector<int> answer(3, -7);
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuMemRangeGetAttribute(answer.data(), 3 * sizeof(int),
                                          CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory_, 8192));
    std::ranges::sort(answer);
    return answer;
  };
  constexpr int kNone = CU_DEVICE_INVALID;
  EXPECT_EQ(ask(), (std::vector<int>{kNone, kNone, kNone}));
  ASSERT_CU(Cu().cuMemAdvise(memory_, 8192, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
  ASSERT_CU(Cu().cuMemAdvise(memory_, 8192, CU_MEM_ADVISE_SET_ACCESSED_BY, CU_DEVICE_CPU));
  EXPECT_EQ(ask(), (std::vector<int>{kNone, CU_DEVICE_CPU, 0}));
  ASSERT_CU(Cu().cuMemAdvise(memory_, 8192, CU_MEM_ADVISE_UNSET_ACCESSED_BY, 0));
  EXPECT_EQ(ask(), (std::vector<int>{kNone, kNone, CU_DEVICE_CPU}));
  int answer = 0;
  EXPECT_CU(
      CUDA_ERROR_INVALID_VALUE,
      Cu().cuMemRangeGetAttribute(&answer, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory_, 8192));
}

TEST_F(ManagedTest, RefusesWrongPlacesAndRanges) {
  if (concurrent_ == 0) GTEST_SKIP() << "the device does not take advice";
  for (const CUmem_advise advice :
       {CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_SET_ACCESSED_BY,
        CU_MEM_ADVISE_UNSET_ACCESSED_BY}) {
    EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, Cu().cuMemAdvise(memory_, 8192, advice, kNoDevice));
  }
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, Cu().cuMemPrefetchAsync(memory_, 8192, kNoDevice, nullptr));
  for (const size_t bytes : {size_t{0}, size_t{1} << 60}) {
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemPrefetchAsync(memory_, bytes, 0, nullptr));
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
              Cu().cuMemAdvise(memory_, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
  }
  const CUdeviceptr nobodys = memory_ + (CUdeviceptr{1} << 50);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemPrefetchAsync(nobodys, 8192, 0, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuMemAdvise(nobodys, 8192, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
  for (const unsigned int flags : {0u, unsigned{CU_MEM_ATTACH_SINGLE}, 3u, 8u}) {
    CUdeviceptr pointer = 0;
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemAllocManaged(&pointer, 4096, flags));
  }
}

// A prefetch is work like any other, after what came before it.
TEST_F(ManagedTest, PrefetchesInTheOrderOfAStream) {
  if (concurrent_ == 0) GTEST_SKIP() << "the device does not prefetch";
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  {
    Door door;
    door.HoldIn(stream);
    ASSERT_CU(Cu().cuMemsetD8Async(memory_, 7, 8192, stream));
    ASSERT_CU(Cu().cuMemPrefetchAsync(memory_, 8192, CU_DEVICE_CPU, stream));
    EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(stream));
  }
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  EXPECT_EQ(*reinterpret_cast<volatile uint8_t*>(memory_ + 8191), 7);
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
}

TEST_F(ManagedTest, BelongsToStreams) {
  CUstream stream = nullptr;
  CUdeviceptr of_host = 0;
  uint32_t value = 3;
  ASSERT_CU(Cu().cuStreamCreate(&stream, 0));
  ASSERT_CU(Cu().cuMemAllocManaged(&of_host, 8192, CU_MEM_ATTACH_HOST));
  *reinterpret_cast<volatile uint32_t*>(of_host) = 2;
  for (CUdeviceptr memory : {memory_, of_host}) {
    ASSERT_CU(Cu().cuStreamAttachMemAsync(stream, memory, 0, CU_MEM_ATTACH_SINGLE));
    ASSERT_CU(Cu().cuStreamSynchronize(stream));
    ASSERT_CU(Launch(Kernel("store"), 1, 1, stream, {&memory, &value}));
    ASSERT_CU(Cu().cuStreamSynchronize(stream));
    EXPECT_EQ(*reinterpret_cast<volatile uint32_t*>(memory), 3u);
    ASSERT_CU(Cu().cuStreamAttachMemAsync(stream, memory, 8192, CU_MEM_ATTACH_HOST));
    ASSERT_CU(Cu().cuStreamAttachMemAsync(nullptr, memory, 0, CU_MEM_ATTACH_GLOBAL));
    ASSERT_CU(Cu().cuCtxSynchronize());
  }
  for (const unsigned int flags : {0u, 3u, 99u}) {
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuStreamAttachMemAsync(stream, memory_, 0, flags));
  }
  // Only managed memory, all of it, and not to the default stream.
  for (const auto& [to, memory, bytes] : {std::tuple{stream, memory_, size_t{4096}},
                                          {static_cast<CUstream>(nullptr), memory_, size_t{0}},
                                          {stream, Allocate(4096), size_t{0}}}) {
    at = {__FILE__, __LINE__};
    CUresult result = CUDA_ERROR_UNKNOWN;
    Survives(
        [&, to = to, memory = memory, bytes = bytes] {
          return Cu().cuStreamAttachMemAsync(to, memory, bytes, CU_MEM_ATTACH_SINGLE);
        },
        &result);
    EXPECT_NE(result, CUDA_SUCCESS);
  }
  ASSERT_CU(Cu().cuMemFree_v2(of_host));
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
}

const char kManagedVariable[] = PTX_HEAD R"(
.visible .global .attribute(.managed) .align 4 .u32 word = 7;
.visible .global .attribute(.managed) .align 8 .u64 other = 8;
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
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, 0));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamAttachMemAsync(stream, word, bytes, CU_MEM_ATTACH_SINGLE));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamAttachMemAsync(stream, word, 0, CU_MEM_ATTACH_GLOBAL));
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
  ASSERT_CU(Cu().cuLibraryGetKernel(&kernel, library, "raise"));
  ASSERT_CU(Launch(reinterpret_cast<CUfunction>(kernel), 1, 1, nullptr, {}));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(*reinterpret_cast<volatile uint32_t*>(word), 8u);
  ASSERT_CU(Cu().cuLibraryUnload(library));
}

}  // namespace
}  // namespace tandem::driver_test
