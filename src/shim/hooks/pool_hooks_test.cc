// Which pools count for the program: all whose memory can come onto the card.
#include <cstring>
#include <map>

#include "src/cuda/driver_api.h"
#include "src/shim/testing/hooks_fixture.h"

namespace tandem::shim {
namespace {

class PoolHooksTest : public HooksTest {
 protected:
  static inline std::map<CUmemoryPool, uint64_t> used;  // by the driver's own pools
  static inline std::map<CUdeviceptr, std::pair<CUmemoryPool, size_t>> blocks;
  static inline uint64_t made = 0;

  PoolHooksTest() {
    used.clear();
    blocks.clear();
    made = 0;
    real_.cuMemPoolCreate = [](CUmemoryPool* pool, const CUmemPoolProps*) { return Make(pool); };
    real_.cuMemPoolDestroy = [](CUmemoryPool) { return CUDA_SUCCESS; };
    real_.cuMemGetDefaultMemPool = [](CUmemoryPool* pool, CUmemLocation*, CUmemAllocationType) {
      return Make(pool);
    };
    real_.cuMemGetMemPool = real_.cuMemGetDefaultMemPool;
    real_.cuMemPoolTrimTo = [](CUmemoryPool, size_t) { return CUDA_SUCCESS; };
    real_.cuMemPoolGetAttribute = [](CUmemoryPool pool, CUmemPool_attribute, void* value) {
      std::memcpy(value, &used[pool], sizeof(uint64_t));
      return CUDA_SUCCESS;
    };
    real_.cuMemAllocFromPoolAsync = [](CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                                       CUstream) {
      *pointer = MiB(1).count * ++made;
      blocks[*pointer] = {pool, bytes};
      used[pool] += bytes;
      return CUDA_SUCCESS;
    };
    real_.cuMemFreeAsync = [](CUdeviceptr pointer, CUstream) {
      used[blocks[pointer].first] -= blocks[pointer].second;
      return CUDA_SUCCESS;
    };
  }

  static CUresult Make(CUmemoryPool* pool) {
    *pool = reinterpret_cast<CUmemoryPool>(16 * ++made);
    return CUDA_SUCCESS;
  }
  static CUmemoryPool Create(CUmemAllocationType type, CUmemLocation location) {
    CUmemPoolProps properties{};
    properties.allocType = type;
    properties.location = location;
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
    return pool;
  }
  // What counts while a block of 20 MiB is there is `bytes`, and nothing afterwards.
  void ExpectCounted(Bytes bytes, CUmemoryPool pool) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuMemAllocFromPoolAsync(&pointer, MiB(20).count, pool, nullptr), CUDA_SUCCESS);
    daemon_.AwaitFixed(bytes);
    EXPECT_EQ(cuMemFreeAsync(pointer, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    daemon_.AwaitFixed(Bytes());
  }

  static constexpr auto kManaged = CU_MEM_ALLOCATION_TYPE_MANAGED;
  static constexpr auto kPinned = CU_MEM_ALLOCATION_TYPE_PINNED;
  static constexpr CUmemLocation kNowhere = {CU_MEM_LOCATION_TYPE_NONE, 0};
  static constexpr CUmemLocation kDevice = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  static constexpr CUmemLocation kOtherDevice = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  static constexpr CUmemLocation kHost = {CU_MEM_LOCATION_TYPE_HOST, 0};
};

TEST_F(PoolHooksTest, ManagedMemoryCountsWhereverItIsToBe) {
  for (const CUmemLocation& location : {kNowhere, kDevice, kOtherDevice, kHost}) {
    ExpectCounted(MiB(20), Create(kManaged, location));
  }
}

TEST_F(PoolHooksTest, ThePoolsThatTheDriverMakesByItselfCountAsWell) {
  CUmemoryPool pool = nullptr;
  CUmemLocation location = kNowhere;
  EXPECT_EQ(cuMemGetDefaultMemPool(&pool, &location, kManaged), CUDA_SUCCESS);
  ExpectCounted(MiB(20), pool);
  EXPECT_EQ(cuMemGetMemPool(&pool, &location, kManaged), CUDA_SUCCESS);
  ExpectCounted(MiB(20), pool);
}

TEST_F(PoolHooksTest, MemoryOfTheHostDoesNotCount) {
  ExpectCounted(Bytes(), Create(kPinned, kHost));
  CUmemoryPool pool = nullptr;
  CUmemLocation location = kHost;
  EXPECT_EQ(cuMemGetDefaultMemPool(&pool, &location, kPinned), CUDA_SUCCESS);
  ExpectCounted(Bytes(), pool);
}

TEST_F(PoolHooksTest, ThereIsNoMoreManagedMemoryThanTheCardHas) {
  const CUmemoryPool pool = Create(kManaged, kNowhere);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuMemAllocFromPoolAsync(&pointer, kCard.count + 1, pool, nullptr),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(blocks.empty());
  daemon_.AwaitFixed(Bytes());
}

TEST_F(PoolHooksTest, AHandleThatWasAManagedPoolsMayBecomeAnothers) {
  EXPECT_EQ(cuMemPoolDestroy(Create(kManaged, kHost)), CUDA_SUCCESS);
  made = 0;
  ExpectCounted(Bytes(), Create(kPinned, kHost));
}

}  // namespace
}  // namespace tandem::shim
