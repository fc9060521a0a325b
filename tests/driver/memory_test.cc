// Device and page-locked memory.
#include <sys/mman.h>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

using MemoryTest = DriverTest;

TEST_F(MemoryTest, BlocksAreAligned) {
  const CUdeviceptr one = Allocate(1), two = Allocate(100), three = Allocate(3 * kPage + 5);
  EXPECT_EQ(one % 512, 0u);
  EXPECT_EQ(two % 512, 0u);
  EXPECT_EQ(three % 512, 0u);
  EXPECT_NE(one, two);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(one));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(two));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(three));
}

TEST_F(MemoryTest, RefusesNonsense) {
  CUdeviceptr pointer = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemAlloc_v2(nullptr, 16));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemAlloc_v2(&pointer, 0));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemAlloc_v2(&pointer, size_t{1} << 50));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemAlloc_v2(&pointer, ~size_t{0} - 4096));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(0));
}

TEST_F(MemoryTest, FreesOnlyOnceAndOnlyItsOwn) {
  const CUdeviceptr pointer = Allocate(3 * kPage);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemFree_v2(pointer + 512));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(pointer));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemFree_v2(pointer));
  int host = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemFree_v2(reinterpret_cast<CUdeviceptr>(&host)));
}

TEST_F(MemoryTest, AModulesVariablesAreNotTheProgramsToFree) {
  const CUfunction bump = Kernel("bump");
  CUdeviceptr counter = 0;
  size_t bytes = 0;
  ASSERT_CU(Cu().cuModuleGetGlobal_v2(&counter, &bytes, module_, "counter"));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemFree_v2(counter));
  ASSERT_CU(Launch(bump, 1, 1, nullptr, {}));
  EXPECT_EQ(Read(counter, 1)[0], 8);
}

TEST_F(MemoryTest, RunsOutAndRecovers) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  size_t free = 0, total = 0;
  ASSERT_CU(Cu().cuMemGetInfo_v2(&free, &total));
  ASSERT_LE(free, total);
  CUdeviceptr pointer = 0;
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemAlloc_v2(&pointer, total + kPage));
  const CUdeviceptr half = Allocate(free / 2);
  size_t left = 0;
  ASSERT_CU(Cu().cuMemGetInfo_v2(&left, &total));
  EXPECT_LE(left, free - free / 2);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(half));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&left, &total));
  EXPECT_TRUE(IsAbout(left, free)) << left << " after, " << free << " before";
}

TEST_F(MemoryTest, PitchIsAligned) {
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  ASSERT_CU(Cu().cuMemAllocPitch_v2(&pointer, &pitch, 1000, 37, 4));
  EXPECT_GE(pitch, 1000u);
  EXPECT_EQ(pitch % 256, 0u);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemsetD2D8_v2(pointer, pitch, 1, 1000, 37));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(pointer));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemAllocPitch_v2(&pointer, &pitch, 0, 37, 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemAllocPitch_v2(&pointer, &pitch, 100, 37, 3));
}

TEST_F(MemoryTest, DescribesAddresses) {
  const CUdeviceptr pointer = Allocate(5000);
  CUdeviceptr base = 0;
  size_t size = 0;
  ASSERT_CU(Cu().cuMemGetAddressRange_v2(&base, &size, pointer + 4999));
  EXPECT_EQ(base, pointer);
  EXPECT_EQ(size, 5000u);
  CUmemorytype type = {};
  ASSERT_CU(Cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
  CUcontext context = nullptr;
  ASSERT_CU(Cu().cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
  EXPECT_EQ(context, context_);
  // Freed beside another block, its address is in no allocation, like any other.
  const CUdeviceptr neighbour = Allocate(5000);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(pointer));
  const CUresult nobodys = Cu().cuMemGetAddressRange_v2(&base, &size, 4096);
  EXPECT_NE(nobodys, CUDA_SUCCESS);
  EXPECT_CU(nobodys, Cu().cuMemGetAddressRange_v2(&base, &size, pointer));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
  CUpointer_attribute start = CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
  void* data[] = {&base};
  ASSERT_CU(Cu().cuPointerGetAttributes(1, &start, data, pointer));
  EXPECT_EQ(base, 0u);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(neighbour));
}

TEST_F(MemoryTest, DescribesManyThingsAtOnceAndWritesNoMore) {
  struct {
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    int after_type = 77;
    int rdma = 77;
    int after_rdma = 77;
    CUdeviceptr start = 77;
  } answers;
  void* data[] = {&answers.type, &answers.rdma, &answers.start};
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      static_cast<CUpointer_attribute>(12345),
                                      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
  // Memory that the driver does not know: all its attributes read as zero.
  const auto nobodys = reinterpret_cast<CUdeviceptr>(&answers);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuPointerGetAttributes(3, attributes, data, nobodys));
  EXPECT_EQ(answers.type, CU_MEMORYTYPE_HOST);
  EXPECT_EQ(answers.rdma, 77);
  EXPECT_EQ(answers.start, 77u);
  attributes[1] = CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE;
  ASSERT_CU(Cu().cuPointerGetAttributes(3, attributes, data, nobodys));
  EXPECT_EQ(answers.after_type, 77);
  EXPECT_EQ(answers.rdma, 0);
  EXPECT_EQ(answers.after_rdma, 77);
  if (!OnSoftwareGpu()) return;  // one that reaches the host's pages has more to say
  EXPECT_EQ(answers.type, 0);
  EXPECT_EQ(answers.start, 0u);
}

// An address may come back for other memory, the number of what is there may not.
TEST_F(MemoryTest, BuffersAreNumberedOnce) {
  const auto number_of = [](CUdeviceptr pointer) {
    unsigned long long number = 0;
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
    return number;
  };
  const CUdeviceptr first = Allocate(kPage);
  const auto number = number_of(first);
  EXPECT_EQ(number_of(first + 100), number);
  ASSERT_CU(Cu().cuMemFree_v2(first));
  const CUdeviceptr second = Allocate(kPage);
  EXPECT_NE(number_of(second), number);
  ASSERT_CU(Cu().cuMemFree_v2(second));
}

TEST_F(MemoryTest, PageLockedMemory) {
  void* host = nullptr;
  ASSERT_CU(Cu().cuMemHostAlloc(&host, 10000, CU_MEMHOSTALLOC_PORTABLE));
  auto* bytes = static_cast<uint8_t*>(host);
  for (int i = 0; i < 10000; ++i) bytes[i] = static_cast<uint8_t>(i);
  CUmemorytype type = {};
  ASSERT_CU(Cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                       reinterpret_cast<CUdeviceptr>(host)));
  EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
  CUdeviceptr pointer = 0, base = 0;
  size_t size = 0;
  ASSERT_CU(Cu().cuMemHostGetDevicePointer_v2(&pointer, host, 0));
  ASSERT_CU(Cu().cuMemGetAddressRange_v2(&base, &size, pointer + 9999));
  EXPECT_EQ(base, pointer);
  EXPECT_EQ(size, 10000u);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFreeHost(host));
  EXPECT_NE(Cu().cuMemFreeHost(host), CUDA_SUCCESS);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemHostAlloc(nullptr, 100, 0));
}

// Fills of device memory need not have ended when they return, but the host sees these.
TEST_F(MemoryTest, FillsWhatTheHostReadsBeforeItReturns) {
  const CUfunction spin = Kernel("spin");
  CUdeviceptr out = Allocate(4), managed = 0;
  uint32_t rounds = 1 << 20;
  void* host = nullptr;
  ASSERT_CU(Cu().cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  ASSERT_CU(Cu().cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  for (CUdeviceptr pointer : {reinterpret_cast<CUdeviceptr>(host), managed}) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(pointer);
    ASSERT_CU(Launch(spin, 1, 1, nullptr, {&out, &rounds}));
    ASSERT_CU(Cu().cuMemsetD8_v2(pointer, 37, 4096));
    EXPECT_EQ(bytes[0], 37);
    EXPECT_EQ(bytes[4095], 37);
  }
  ASSERT_CU(Cu().cuMemFree_v2(managed));
  ASSERT_CU(Cu().cuMemFreeHost(host));
}

TEST_F(MemoryTest, RegistersHostMemory) {
  std::vector<uint8_t> memory(64 << 10);
  ASSERT_CU(Cu().cuMemHostRegister_v2(memory.data(), memory.size(), 0));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            Cu().cuMemHostRegister_v2(memory.data(), memory.size(), 0));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemHostUnregister(memory.data()));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, Cu().cuMemHostUnregister(memory.data()));
}

TEST_F(MemoryTest, KernelsUseRegisteredMemory) {
  int can = 0;
  ASSERT_CU(Cu().cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 0));
  if (can == 0) GTEST_SKIP() << "the device does not register host memory";
  // Neither begins nor ends at a page.
  std::vector<uint32_t> memory(5000, 1);
  uint32_t* const words = memory.data() + 33;
  constexpr size_t kWords = 4900;
  ASSERT_CU(Cu().cuMemHostRegister_v2(words, kWords * 4, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr pointer = 0, seen = 0;
  ASSERT_CU(Cu().cuMemHostGetDevicePointer_v2(&pointer, words, 0));
  ASSERT_CU(Cu().cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                       reinterpret_cast<CUdeviceptr>(words)));
  EXPECT_EQ(seen, pointer);
  uint32_t value = 41, count = kWords;
  ASSERT_CU(Launch(Kernel("add"), 20, 256, nullptr, {&pointer, &value, &count}));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(memory[32], 1u);
  for (size_t i = 0; i < kWords; ++i) ASSERT_EQ(words[i], 42u) << i;
  EXPECT_EQ(words[kWords], 1u);
  // It is device memory to copies and fills, too.
  const CUdeviceptr device = Allocate(kWords * 4);
  ASSERT_CU(Cu().cuMemsetD32_v2(pointer, 7, kWords));
  ASSERT_CU(Cu().cuMemcpyDtoD_v2(device, pointer, kWords * 4));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(words[kWords - 1], 7u);
  EXPECT_EQ(Read(device + kWords * 4 - 4, 1)[0], 7);
  ASSERT_CU(Cu().cuMemHostUnregister(words));
  int any = 0;
  ASSERT_CU(Cu().cuDeviceGetAttribute(&any, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0));
  if (any != 0) GTEST_SKIP() << "the device reaches all of the host's memory anyway";
  ASSERT_CU(Launch(Kernel("store"), 1, 1, nullptr, {&pointer, &value}));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, Cu().cuCtxSynchronize());
  EXPECT_EQ(words[0], 7u);
}

TEST_F(MemoryTest, CopiesOfItAreWaitedForIfTheProgramWantsThat) {
  if (Cu().cuPointerSetAttribute == nullptr) GTEST_SKIP() << "an older driver";
  CUdeviceptr pointer = Allocate(4096), out = Allocate(4);
  uint32_t rounds = 1 << 19;
  const CUfunction spin = Kernel("spin");
  int flag = 1, seen = 0;
  ASSERT_CU(Cu().cuPointerSetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
  ASSERT_CU(Cu().cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
  EXPECT_EQ(seen, 1);
  // Calls that otherwise may return before what they do is done.
  ASSERT_CU(Launch(spin, 1, 1, nullptr, {&out, &rounds}));
  ASSERT_CU(Cu().cuMemsetD8_v2(pointer, 3, 4096));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamQuery(nullptr));
  ASSERT_CU(Launch(spin, 1, 1, nullptr, {&out, &rounds}));
  ASSERT_CU(Cu().cuMemcpyDtoD_v2(pointer, pointer + 2048, 2048));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamQuery(nullptr));
  flag = 0;
  ASSERT_CU(Cu().cuPointerSetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
  ASSERT_CU(Cu().cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer));
  EXPECT_EQ(seen, 0);
  EXPECT_NE(Cu().cuPointerSetAttribute(&flag, CU_POINTER_ATTRIBUTE_CONTEXT, pointer), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuPointerSetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0x10),
            CUDA_SUCCESS);
}

TEST_F(MemoryTest, IsFreedAlsoWhenTheProgramHasLockedItsMemory) {
  const CUdeviceptr pointer = Allocate(4 << 20);
  Write(pointer, Pattern(4 << 20, 71));
  if (mlockall(MCL_CURRENT | MCL_ONFAULT) != 0) {
    may_skip_ = true;
    GTEST_SKIP() << "the program may not lock memory";
  }
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(pointer));
  munlockall();
  const CUdeviceptr again = Allocate(4 << 20);
  Write(again, Pattern(4 << 20, 72));
  EXPECT_EQ(Read(again, 4 << 20), Pattern(4 << 20, 72));
}

TEST_F(MemoryTest, RegistersOnlyWhatIsThere) {
  void* const page =
      mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  ASSERT_EQ(munmap(page, 8192), 0);
  EXPECT_NE(Cu().cuMemHostRegister_v2(page, 8192, 0), CUDA_SUCCESS);
  void* pinned = nullptr;
  ASSERT_CU(Cu().cuMemHostAlloc(&pinned, 8192, 0));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, Cu().cuMemHostRegister_v2(pinned, 4096, 0));
  ASSERT_CU(Cu().cuMemFreeHost(pinned));
  std::vector<uint8_t> memory(4096);
  EXPECT_NE(Cu().cuMemHostRegister_v2(memory.data(), memory.size(), CU_MEMHOSTREGISTER_IOMEMORY),
            CUDA_SUCCESS);
  int can = 0;
  ASSERT_CU(
      Cu().cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0));
  const CUresult read_only =
      Cu().cuMemHostRegister_v2(memory.data(), memory.size(), CU_MEMHOSTREGISTER_READ_ONLY);
  EXPECT_EQ(read_only, can != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED) << Named(read_only);
  if (read_only == CUDA_SUCCESS) ASSERT_CU(Cu().cuMemHostUnregister(memory.data()));
}

}  // namespace
}  // namespace tandem::driver_test
