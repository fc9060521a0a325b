// Kernels of the first device on memory of the last: which memory a context may reach.
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

// A context on each of the two devices; the first is current.
class PeerKernelTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int count = 0, can = 0;
    ASSERT_CU(Cu().cuDeviceGetCount(&count));
    if (count < 2) GTEST_SKIP() << "there is only one device";
    last_ = count - 1;
    ASSERT_CU(Cu().cuDeviceCanAccessPeer(&can, 0, last_));
    if (can == 0) GTEST_SKIP() << "the devices cannot reach each other";
    MakeOther();
    there_ = AllocateThere(kBytes, 40);
  }
  void TearDown() override {
    if (other_ != nullptr) EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxDestroy_v2(other_));
    DriverTest::TearDown();
  }
  void MakeOther() {
    CUcontext popped = nullptr;
    ASSERT_CU(Cu().cuCtxCreate_v2(&other_, 0, last_));
    ASSERT_CU(Cu().cuCtxPopCurrent_v2(&popped));
  }
  // A kernel of the current context adds 2 to all words from there on.
  CUresult AddTo(CUdeviceptr words) {
    CUmodule module = nullptr;
    CUfunction add = nullptr;
    uint32_t value = 2, count = kBytes / 4;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleLoadData(&module, kKernels));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleGetFunction(&add, module, "add"));
    EXPECT_CU(CUDA_SUCCESS, Launch(add, count / 256, 256, nullptr, {&words, &value, &count}));
    return Cu().cuCtxSynchronize();
  }
  // Of the other device, all words the same.
  CUdeviceptr AllocateThere(size_t bytes, uint32_t value) {
    const InContext there(other_);
    const CUdeviceptr pointer = Allocate(bytes);
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemsetD32_v2(pointer, value, kBytes / 4));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxSynchronize());
    return pointer;
  }
  uint8_t LastWordOf(CUdeviceptr words) { return Read(words + kBytes - 4, 1)[0]; }

  static constexpr size_t kBytes = 4096;
  CUdevice last_ = 0;
  CUcontext other_ = nullptr;
  CUdeviceptr there_ = 0;
};

TEST_F(PeerKernelTest, KernelsReachAPeersMemoryIfTheyMay) {
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, AddTo(there_));
  if (!MakeContextAnew()) return;
  EXPECT_EQ(LastWordOf(there_), 40);
  ASSERT_CU(Cu().cuCtxEnablePeerAccess(other_, 0));
  EXPECT_CU(CUDA_SUCCESS, AddTo(there_));
  EXPECT_EQ(LastWordOf(there_), 42);
  // Also what is allocated there from now on.
  const CUdeviceptr later = AllocateThere(size_t{3} << 20, 1);
  EXPECT_CU(CUDA_SUCCESS, AddTo(later));
  EXPECT_EQ(LastWordOf(later), 3);
  ASSERT_CU(Cu().cuCtxDisablePeerAccess(other_));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, AddTo(there_));
  if (!MakeContextAnew()) return;
  EXPECT_EQ(LastWordOf(there_), 42);
}

TEST_F(PeerKernelTest, AccessIsOneWayAndEndsWithItsContext) {
  const CUdeviceptr here = Allocate(kBytes);
  ASSERT_CU(Cu().cuCtxEnablePeerAccess(other_, 0));
  {
    const InContext there(other_);
    EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, AddTo(here));
  }
  // A new context has no access, and a new peer's memory is out of reach.
  if (!MakeContextAnew()) return;
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, AddTo(there_));
  if (!MakeContextAnew()) return;
  Cu().cuCtxDestroy_v2(other_);
  MakeOther();
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, AddTo(AllocateThere(kBytes, 40)));
  MakeContextAnew();
}

TEST_F(PeerKernelTest, TheOtherMayHaveLeaveToo) {
  const CUdeviceptr here = Allocate(kBytes);
  ASSERT_CU(Cu().cuMemsetD32_v2(here, 40, kBytes / 4));
  ASSERT_CU(Cu().cuCtxSynchronize());
  {
    const InContext there(other_);
    ASSERT_CU(Cu().cuCtxEnablePeerAccess(context_, 0));
    EXPECT_CU(CUDA_SUCCESS, AddTo(here));
  }
  EXPECT_EQ(LastWordOf(here), 42);
  const CUdeviceptr later = Allocate(size_t{3} << 20);
  ASSERT_CU(Cu().cuMemsetD32_v2(later, 1, kBytes / 4));
  ASSERT_CU(Cu().cuCtxSynchronize());
  {
    const InContext there(other_);
    EXPECT_CU(CUDA_SUCCESS, AddTo(later));
    ASSERT_CU(Cu().cuCtxDisablePeerAccess(context_));
    EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, AddTo(here));
  }
  EXPECT_EQ(LastWordOf(later), 3);
  EXPECT_EQ(LastWordOf(here), 42);
  Cu().cuCtxDestroy_v2(other_);
  MakeOther();
}

// Memory of all contexts needs no peer access.
TEST_F(PeerKernelTest, ManagedAndHostMemoryIsEverybodys) {
  CUdeviceptr managed = 0;
  void* host = nullptr;
  {
    const InContext there(other_);
    ASSERT_CU(Cu().cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
    ASSERT_CU(Cu().cuMemHostAlloc(&host, kBytes, CU_MEMHOSTALLOC_PORTABLE));
  }
  for (auto* words :
       {reinterpret_cast<volatile uint32_t*>(managed), static_cast<volatile uint32_t*>(host)}) {
    words[kBytes / 4 - 1] = 7;
    for (const CUcontext context : {other_, context_}) {
      const InContext current(context);
      EXPECT_CU(CUDA_SUCCESS, AddTo(reinterpret_cast<CUdeviceptr>(words)));
    }
    EXPECT_EQ(words[kBytes / 4 - 1], 11u);
  }
  // Not so what lies beside it.
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, AddTo(there_));
  MakeContextAnew();
}

// Mappings and pools have their own leave, for devices, and heed no other.
TEST_F(PeerKernelTest, AMappingIsWhoseItWasSetToBe) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, last_};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuMemCreate(&handle, kPage, &properties, 0));
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, kPage, 0, 0, 0));
  ASSERT_CU(Cu().cuMemMap(pointer, kPage, 0, handle, 0));
  CUmemAccessDesc access[] = {
      {{CU_MEM_LOCATION_TYPE_DEVICE, last_}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
      {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  ASSERT_CU(Cu().cuMemSetAccess(pointer, kPage, access, 1));
  {
    const InContext there(other_);
    ASSERT_CU(Cu().cuMemsetD32_v2(pointer, 5, kBytes / 4));
    ASSERT_CU(Cu().cuCtxSynchronize());
  }
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, AddTo(pointer));
  if (!MakeContextAnew()) return;
  ASSERT_CU(Cu().cuMemSetAccess(pointer, kPage, access, 2));
  EXPECT_CU(CUDA_SUCCESS, AddTo(pointer));
  EXPECT_EQ(LastWordOf(pointer), 7);
  access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  ASSERT_CU(Cu().cuMemSetAccess(pointer, kPage, access, 2));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, AddTo(pointer));
  if (!MakeContextAnew()) return;
  EXPECT_EQ(LastWordOf(pointer), 7);
  ASSERT_CU(Cu().cuMemUnmap(pointer, kPage));
  ASSERT_CU(Cu().cuMemAddressFree(pointer, kPage));
  ASSERT_CU(Cu().cuMemRelease(handle));
}

// Access to a pool is access to what the pool has handed out before, small or large.
TEST_F(PeerKernelTest, APoolsMemoryIsReachedOnceItMay) {
  int pools = 0;
  ASSERT_CU(Cu().cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, last_));
  if (pools == 0) GTEST_SKIP() << "this device has no memory pools";
  CUmemoryPool pool = nullptr;
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_CU(Cu().cuDeviceGetDefaultMemPool(&pool, last_));
  std::vector<CUdeviceptr> blocks;
  for (const size_t bytes : {kBytes, size_t{3} << 20}) {
    const InContext there(other_);
    ASSERT_CU(Cu().cuMemAllocAsync(&blocks.emplace_back(), bytes, nullptr));
    ASSERT_CU(Cu().cuMemsetD32_v2(blocks.back(), 5, kBytes / 4));
    ASSERT_CU(Cu().cuCtxSynchronize());
  }
  ASSERT_CU(Cu().cuMemPoolSetAccess(pool, &access, 1));
  for (const CUdeviceptr block : blocks) {
    EXPECT_CU(CUDA_SUCCESS, AddTo(block));
    EXPECT_EQ(LastWordOf(block), 7);
  }
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  ASSERT_CU(Cu().cuMemPoolSetAccess(pool, &access, 1));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, AddTo(blocks.front()));
  if (!MakeContextAnew()) return;
  for (const CUdeviceptr block : blocks) ASSERT_CU(Cu().cuMemFree_v2(block));
}

TEST_F(PeerKernelTest, APoolIsWhoseItWasSetToBe) {
  int pools = 0;
  ASSERT_CU(Cu().cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, last_));
  if (pools == 0) GTEST_SKIP() << "this device has no memory pools";
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, last_};
  CUmemoryPool pool = nullptr;
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_CU(Cu().cuMemPoolCreate(&pool, &properties));
  const auto allocate = [&](size_t bytes) {
    const InContext there(other_);
    CUdeviceptr pointer = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAllocFromPoolAsync(&pointer, bytes, pool, nullptr));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemsetD32_v2(pointer, 5, kBytes / 4));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxSynchronize());
    return pointer;
  };
  const CUdeviceptr first = allocate(kBytes);
  ASSERT_CU(Cu().cuCtxEnablePeerAccess(other_, 0));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, AddTo(first));
  if (!MakeContextAnew()) return;
  ASSERT_CU(Cu().cuMemPoolSetAccess(pool, &access, 1));
  EXPECT_CU(CUDA_SUCCESS, AddTo(first));
  EXPECT_EQ(LastWordOf(first), 7);
  // Also what it takes from the device from now on.
  const CUdeviceptr second = allocate(size_t{5} << 20);
  EXPECT_CU(CUDA_SUCCESS, AddTo(second));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  ASSERT_CU(Cu().cuMemPoolSetAccess(pool, &access, 1));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, AddTo(second));
  if (!MakeContextAnew()) return;
  ASSERT_CU(Cu().cuMemFree_v2(first));
  ASSERT_CU(Cu().cuMemFree_v2(second));
  ASSERT_CU(Cu().cuMemPoolDestroy(pool));
}

TEST_F(PeerKernelTest, AGraphsMemoryIsWhoseItsNodeSays) {
  if (Cu().cuGraphAddMemAllocNode == nullptr) GTEST_SKIP() << "graphs do not allocate here";
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (const size_t others : {1, 0}) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, last_};
    params.bytesize = kBytes;
    params.accessDescs = &access;
    params.accessDescCount = others;
    {
      const InContext there(other_);
      CUgraph graph = nullptr;
      CUgraphNode node = nullptr;
      CUgraphExec exec = nullptr;
      ASSERT_CU(Cu().cuGraphCreate(&graph, 0));
      ASSERT_CU(Cu().cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
      ASSERT_CU(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0));
      ASSERT_CU(Cu().cuGraphLaunch(exec, nullptr));
      ASSERT_CU(Cu().cuCtxSynchronize());
    }
    EXPECT_CU(others == 1 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS, AddTo(params.dptr));
  }
  MakeContextAnew();
}

}  // namespace
}  // namespace tandem::driver_test
