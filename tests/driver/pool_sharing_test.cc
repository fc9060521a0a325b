// Pools that two processes use.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "tests/driver/fixture.h"
#include "tests/driver/other_process.h"

namespace tandem::driver_test {
namespace {

constexpr size_t kLarge = 3 << 20, kSmall = 5000;
constexpr auto kByDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr const char* kPoolDescriptor = "TANDEM_TEST_DESCRIPTOR";
constexpr const char* kLargeOne = "TANDEM_TEST_LARGE";
constexpr const char* kSmallOne = "TANDEM_TEST_SMALL";

void* AsHandle(int fd) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(fd));
}

uint64_t Get(CUmemoryPool pool, CUmemPool_attribute attribute) {
  uint64_t value = ~uint64_t{0};
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}

class PoolSharingTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int types = 0;
    if (Cu().cuDeviceGetAttribute(&types, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0) !=
            CUDA_SUCCESS ||
        (types & kByDescriptor) == 0) {
      GTEST_SKIP() << "the device's pools are not exported by descriptor";
    }
    pool_ = MakePool(kByDescriptor);
    ASSERT_CU(Cu().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  void TearDown() override {
    if (pool_ != nullptr) EXPECT_CU(CUDA_SUCCESS, Cu().cuMemPoolDestroy(pool_));
    DriverTest::TearDown();
  }

  static CUmemoryPool MakePool(CUmemAllocationHandleType types) {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = types;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool pool = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemPoolCreate(&pool, &properties));
    return pool;
  }
  CUdeviceptr From(CUmemoryPool pool, size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAllocFromPoolAsync(&pointer, bytes, pool, stream_));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(stream_));
    return pointer;
  }
  static std::string Exported(CUdeviceptr pointer) {
    CUmemPoolPtrExportData data = {};
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemPoolExportPointer(&data, pointer));
    return InHex(&data, sizeof(data));
  }
  // A descriptor that stays open over exec.
  int ExportedPool() {
    int fd = -1;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemPoolExportToShareableHandle(&fd, pool_, kByDescriptor, 0));
    const int kept = dup(fd);
    close(fd);
    return kept;
  }

  CUmemoryPool pool_ = nullptr;
  CUstream stream_ = nullptr;
};

CUdeviceptr Imported(CUmemoryPool pool, const char* variable) {
  auto data = Given<CUmemPoolPtrExportData>(variable);
  CUdeviceptr pointer = 0;
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemPoolImportPointer(&pointer, pool, &data));
  return pointer;
}

// Looks for one pattern there and leaves another.
void Answer(CUdeviceptr pointer, size_t bytes, uint32_t seed) {
  std::vector<uint8_t> seen(bytes);
  ASSERT_CU(Cu().cuMemcpyDtoH_v2(seen.data(), pointer, bytes));
  EXPECT_EQ(seen, Pattern(bytes, seed));
  const auto answer = Pattern(bytes, seed + 1);
  ASSERT_CU(Cu().cuMemcpyHtoD_v2(pointer, answer.data(), bytes));
}

// What a pool of another process's is not for.
void CannotAllocate(CUmemoryPool pool) {
  CUdeviceptr none = 0;
  int fd = -1;
  EXPECT_NE(Cu().cuMemAllocFromPoolAsync(&none, 4096, pool, nullptr), CUDA_SUCCESS);
  CUstream captured = nullptr;
  CUgraph graph = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_NE(Cu().cuMemAllocFromPoolAsync(&none, 4096, pool, captured), CUDA_SUCCESS);
  Cu().cuStreamEndCapture(captured, &graph);  // a driver may have ended it by then
  if (graph != nullptr) EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphDestroy(graph));
  ASSERT_CU(Cu().cuStreamDestroy_v2(captured));
  EXPECT_NE(Cu().cuDeviceSetMemPool(0, pool), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuMemPoolExportToShareableHandle(&fd, pool, kByDescriptor, 0), CUDA_SUCCESS);
  EXPECT_EQ(none, 0u);
}

TEST(Other, DISABLED_ImportsAPool) {
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr, owner = nullptr;
  ASSERT_CU(Cu().cuInit(0));
  ASSERT_CU(Cu().cuCtxCreate_v2(&context, 0, 0));
  const char* text = std::getenv(kPoolDescriptor);
  ASSERT_NE(text, nullptr);
  const int fd = std::atoi(text);
  ASSERT_CU(Cu().cuMemPoolImportFromShareableHandle(&pool, AsHandle(fd), kByDescriptor, 0));
  close(fd);  // the pool has what it needs
  CannotAllocate(pool);
  const CUdeviceptr large = Imported(pool, kLargeOne), small = Imported(pool, kSmallOne);
  Answer(large, kLarge, 61);
  Answer(small, kSmall, 71);
  ASSERT_CU(Cu().cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, small));
  EXPECT_EQ(owner, pool);
  EXPECT_GE(Get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), kLarge + kSmall);
  // Both ways to free them here; the other process keeps them.
  ASSERT_CU(Cu().cuMemFree_v2(large));
  ASSERT_CU(Cu().cuMemFreeAsync(small, nullptr));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(Get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  std::vector<uint8_t> byte(1);
  EXPECT_NE(Cu().cuMemcpyDtoH_v2(byte.data(), large, 1), CUDA_SUCCESS);
  // What was given back can be had again.
  Answer(Imported(pool, kSmallOne), kSmall, 72);
  ASSERT_CU(Cu().cuMemPoolDestroy(pool));
  ASSERT_CU(Cu().cuCtxDestroy_v2(context));
  OtherProcess::TellTheEnd();
}

TEST_F(PoolSharingTest, AnotherProcessUsesItsBlocks) {
  const int fd = ExportedPool();  // before there is anything in it
  const CUdeviceptr first = From(pool_, kSmall), small = From(pool_, kSmall);
  const CUdeviceptr large = From(pool_, kLarge);
  Write(first, Pattern(kSmall, 1));
  Write(small, Pattern(kSmall, 71));
  Write(large, Pattern(kLarge, 61));
  OtherProcess importer("Other.DISABLED_ImportsAPool", {{kPoolDescriptor, std::to_string(fd)},
                                                        {kLargeOne, Exported(large)},
                                                        {kSmallOne, Exported(small)}});
  close(fd);
  EXPECT_TRUE(importer.EndsWell());
  EXPECT_EQ(Read(first, kSmall), Pattern(kSmall, 1));
  EXPECT_EQ(Read(small, kSmall), Pattern(kSmall, 73));
  EXPECT_EQ(Read(large, kLarge), Pattern(kLarge, 62));
  for (const CUdeviceptr each : {first, small, large}) {
    ASSERT_CU(Cu().cuMemFreeAsync(each, stream_));
  }
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_EQ(Get(pool_, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
}

// Its memory counts once, and as long as it is there.
TEST_F(PoolSharingTest, TakesMemoryLikeAnyOther) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  const auto free_bytes = [] {
    size_t free = 0, total = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemGetInfo_v2(&free, &total));
    return free;
  };
  const size_t before = free_bytes();
  const CUdeviceptr pointer = From(pool_, kLarge);
  EXPECT_LE(free_bytes() + kLarge, before);
  EXPECT_GE(Get(pool_, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), kLarge);
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  ASSERT_CU(Cu().cuMemPoolDestroy(std::exchange(pool_, nullptr)));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_TRUE(IsAbout(free_bytes(), before)) << before << " before";
}

TEST_F(PoolSharingTest, ADescriptorThatCannotBeHadIsWantOfMemory) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "a card's driver may need descriptors for something else";
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {0, limit.rlim_max};
  int fd = -1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const CUresult result = Cu().cuMemPoolExportToShareableHandle(&fd, pool_, kByDescriptor, 0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, result);
  EXPECT_EQ(fd, -1);
}

TEST_F(PoolSharingTest, WhatWasNotMadeForItIsNotExported) {
  CUmemPoolPtrExportData data = {};
  CUmemoryPool imported = nullptr;
  int fd = -1;
  CUmemoryPool own = MakePool(CU_MEM_HANDLE_TYPE_NONE);
  const CUdeviceptr pointer = From(own, kSmall);
  EXPECT_NE(Cu().cuMemPoolExportToShareableHandle(&fd, own, kByDescriptor, 0), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuMemPoolExportPointer(&data, pointer), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuMemPoolExportPointer(&data, Allocate(kSmall)), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  ASSERT_CU(Cu().cuMemPoolDestroy(own));
  const int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(other, 0);
  EXPECT_NE(Cu().cuMemPoolImportFromShareableHandle(&imported, AsHandle(other), kByDescriptor, 0),
            CUDA_SUCCESS);
  close(other);
  EXPECT_EQ(imported, nullptr);
}

}  // namespace
}  // namespace tandem::driver_test
