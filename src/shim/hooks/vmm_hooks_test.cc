// What the driver is given of memory that the program makes and maps by itself.
#include "src/cuda/driver_api.h"
#include "src/shim/testing/hooks_fixture.h"

namespace tandem::shim {
namespace {

class VmmHooksTest : public HooksTest {
 protected:
  static inline CUmemGenericAllocationHandle mapped = 0;
  static inline CUstream in_stream = nullptr;

  VmmHooksTest() {
    mapped = 0;
    in_stream = nullptr;
    real_.cuMemMapArrayAsync = [](CUarrayMapInfo* maps, unsigned int count, CUstream stream) {
      if (maps != nullptr && count > 0) mapped = maps[count - 1].memHandle.memHandle;
      in_stream = stream;
      return CUDA_SUCCESS;
    };
    real_.cuMemMapArrayAsync_ptsz = real_.cuMemMapArrayAsync;
  }

  // With CU_MEM_CREATE_USAGE_TILE_POOL, or without.
  CUarrayMapInfo Make(bool tile_pool) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.allocFlags.usage = tile_pool ? 1 : 0;
    CUarrayMapInfo map = {};
    map.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    EXPECT_EQ(cuMemCreate(&map.memHandle.memHandle, MiB(2).count, &properties, 0), CUDA_SUCCESS);
    return map;
  }
};

TEST_F(VmmHooksTest, SparseArraysGetOnlyHandlesOfTheDrivers) {
  CUarrayMapInfo maps[] = {Make(true), Make(false)};
  const auto stream = reinterpret_cast<CUstream>(48);
  EXPECT_EQ(cuMemMapArrayAsync(maps, 1, stream), CUDA_SUCCESS);
  EXPECT_EQ(mapped, maps[0].memHandle.memHandle);
  EXPECT_EQ(in_stream, stream);
  mapped = 0;
  testing::internal::CaptureStderr();
  EXPECT_EQ(cuMemMapArrayAsync(maps, 2, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMapArrayAsync_ptsz(maps + 1, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tandem: cuMemMapArrayAsync has refused memory that was not made for sparse arrays, "
            "with CU_MEM_CREATE_USAGE_TILE_POOL\n");
  EXPECT_EQ(mapped, 0u);
}

// The driver judges entries that the hook does not look at, and missing ones.
TEST_F(VmmHooksTest, OtherMappingsOfSparseArraysGoToTheDriver) {
  CUarrayMapInfo map = Make(false);
  map.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
  EXPECT_EQ(cuMemMapArrayAsync_ptsz(&map, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(mapped, map.memHandle.memHandle);
  EXPECT_EQ(cuMemMapArrayAsync(nullptr, 3, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMapArrayAsync(&map, 0, nullptr), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tandem::shim
