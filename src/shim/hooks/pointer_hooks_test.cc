// What the program says of its memory holds for a block as long as there is that block.
#include "src/shim/hooks/pointer_hooks.h"

#include "src/cuda/driver_api.h"
#include "src/shim/testing/hooks_fixture.h"

namespace tandem::shim {
namespace {

class PointerHooksTest : public HooksTest {
 protected:
  static constexpr auto kSync = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;

  PointerHooksTest() {
    real_.cuPointerSetAttribute = [](const void*, CUpointer_attribute, CUdeviceptr) {
      return CUDA_ERROR_INVALID_VALUE;
    };
  }

  static CUresult Set(int synchronous, CUdeviceptr pointer) {
    return cuPointerSetAttribute(&synchronous, kSync, pointer);
  }
  // As the program is told, and as its copies are treated.
  static bool IsSet(CUdeviceptr pointer) {
    int synchronous = -1;
    EXPECT_EQ(cuPointerGetAttribute(&synchronous, kSync, pointer), CUDA_SUCCESS);
    EXPECT_EQ(synchronous != 0, IsSynchronous(pointer));
    return synchronous != 0;
  }
};

TEST_F(PointerHooksTest, CopiesOfABlockAreWaitedForIfTheProgramWantsThat) {
  const CUdeviceptr block = Allocate(MiB(4)), other = Allocate(MiB(4));
  EXPECT_FALSE(IsSet(block));
  EXPECT_EQ(Set(1, block + 4096), CUDA_SUCCESS);
  EXPECT_TRUE(IsSet(block));
  EXPECT_TRUE(IsSet(block + MiB(4).count - 1));
  EXPECT_FALSE(IsSet(other));
  EXPECT_EQ(Set(0, block), CUDA_SUCCESS);
  EXPECT_FALSE(IsSet(block));
}

TEST_F(PointerHooksTest, TheNextBlockAtTheAddressIsAnother) {
  const CUdeviceptr block = Allocate(KiB(4));
  EXPECT_EQ(Set(1, block), CUDA_SUCCESS);
  EXPECT_EQ(guest_->Free(block), CUDA_SUCCESS);
  EXPECT_FALSE(IsSynchronous(block));
  EXPECT_EQ(Allocate(KiB(4)), block);
  EXPECT_FALSE(IsSet(block));
  EXPECT_EQ(Set(0, block), CUDA_SUCCESS);  // the next test's guest counts its blocks anew
}

TEST_F(PointerHooksTest, TheRestIsTheDriversToRefuse) {
  const CUdeviceptr block = Allocate(KiB(4));
  int one = 1;
  EXPECT_EQ(cuPointerSetAttribute(nullptr, kSync, block), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_IS_MANAGED, block),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Set(1, 0x10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(IsSet(block));
}

}  // namespace
}  // namespace tandem::shim
