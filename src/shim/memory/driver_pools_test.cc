#include "src/shim/memory/driver_pools.h"

#include <cstring>
#include <map>

#include "src/shim/testing/fixed_scene.h"

namespace tandem::shim {
namespace {

class DriverPoolsTest : public FixedScene {
 protected:
  struct Amounts {
    Bytes reserved, used;
  };
  static inline std::map<CUmemoryPool, Amounts> amounts;

  DriverPoolsTest() {
    amounts.clear();
    real_.cuMemPoolGetAttribute = [](CUmemoryPool pool, CUmemPool_attribute attribute,
                                     void* value) {
      const auto found = amounts.find(pool);
      if (found == amounts.end()) return CUDA_ERROR_INVALID_VALUE;
      const bool all = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
      std::memcpy(value, all ? &found->second.reserved : &found->second.used, sizeof(Bytes));
      return CUDA_SUCCESS;
    };
    real_.cuMemPoolTrimTo = [](CUmemoryPool pool, size_t) {
      amounts[pool].reserved = amounts[pool].used;
      return CUDA_SUCCESS;
    };
    amounts[first_] = amounts[second_] = {};
    pools_.Add(first_);
    pools_.Add(second_);
  }

  bool Allocate(CUmemoryPool pool, Bytes bytes, CUdeviceptr pointer) {
    if (!pools_.MakeRoom(pool, bytes)) return false;
    Amounts& has = amounts[pool];
    has.used += bytes;
    has.reserved = std::max(has.reserved, has.used);
    pools_.Allocated(pool, bytes, pointer);
    return true;
  }
  void Free(CUmemoryPool pool, Bytes bytes, CUdeviceptr pointer) {
    amounts[pool].used -= bytes;
    pools_.Freed(pointer);
  }

  const CUmemoryPool first_ = reinterpret_cast<CUmemoryPool>(16);
  const CUmemoryPool second_ = reinterpret_cast<CUmemoryPool>(32);
  cuda::RealDriver real_;
  DriverPools pools_{&real_, &fixed_};
};

TEST_F(DriverPoolsTest, CountsWhatEachKeepsUntilItIsTrimmed) {
  EXPECT_TRUE(Allocate(first_, MiB(20), 1));
  EXPECT_TRUE(Allocate(second_, MiB(10), 2));
  daemon_.AwaitFixed(MiB(30));
  Free(first_, MiB(20), 1);
  pools_.Recount();
  EXPECT_TRUE(Allocate(first_, MiB(15), 3));  // of what it keeps
  daemon_.AwaitFixed(MiB(30));
  EXPECT_FALSE(Allocate(second_, MiB(40), 4));
  EXPECT_TRUE(pools_.Trim());
  daemon_.AwaitFixed(MiB(25));
  EXPECT_FALSE(pools_.Trim());
  EXPECT_FALSE(pools_.MakeRoom(second_, Bytes(~0ull)));
}

TEST_F(DriverPoolsTest, ADestroyedPoolCountsForTheBlocksThatAreLeft) {
  EXPECT_TRUE(Allocate(first_, MiB(20), 1));
  EXPECT_TRUE(Allocate(first_, MiB(10), 2));
  pools_.Destroying(first_);
  pools_.NotDestroyed(first_);
  EXPECT_TRUE(pools_.Has(first_));
  amounts[first_].reserved = MiB(40);
  pools_.Recount();
  daemon_.AwaitFixed(MiB(40));
  pools_.Destroying(first_);
  EXPECT_FALSE(pools_.Has(first_));
  RecountUntil(MiB(30), [this] { pools_.Recount(); });
  pools_.Add(first_);  // another by the same handle
  amounts[first_] = {};
  pools_.Freed(1);
  pools_.Recount();
  daemon_.AwaitFixed(MiB(10));
  pools_.Freed(2);
  pools_.Recount();
  daemon_.AwaitFixed(Bytes());
}

// Nothing is asked for it, and nothing counts.
TEST_F(DriverPoolsTest, OtherPoolsAreNotItsAffair) {
  const auto other = reinterpret_cast<CUmemoryPool>(48);
  EXPECT_TRUE(pools_.MakeRoom(other, MiB(100)));
  pools_.Allocated(other, MiB(100), 7);
  pools_.Freed(7);
  pools_.Freed(8);
  pools_.Recount();
  daemon_.AwaitFixed(Bytes());
}

}  // namespace
}  // namespace tandem::shim
