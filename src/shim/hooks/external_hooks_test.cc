// Imported memory is counted for the importing program, for as long as it has it.
#include "src/cuda/driver_api.h"
#include "src/shim/testing/hooks_fixture.h"

namespace tandem::shim {
namespace {

class ExternalHooksTest : public HooksTest {
 protected:
  static inline CUresult answer = CUDA_SUCCESS;
  static inline uint64_t imports = 0;

  ExternalHooksTest() {
    answer = CUDA_SUCCESS;
    imports = 0;
    real_.cuImportExternalMemory = [](CUexternalMemory* memory,
                                      const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* description) {
      const bool sound = memory != nullptr && description != nullptr;
      const CUresult result = sound ? answer : CUDA_ERROR_INVALID_VALUE;
      if (result == CUDA_SUCCESS) *memory = reinterpret_cast<CUexternalMemory>(16 * ++imports);
      return result;
    };
    real_.cuDestroyExternalMemory = [](CUexternalMemory) { return answer; };
  }

  CUresult Import(Bytes bytes, CUexternalMemory* memory) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description{};
    description.size = bytes.count;
    return cuImportExternalMemory(memory, &description);
  }

  CUexternalMemory first_ = nullptr;
  CUexternalMemory second_ = nullptr;
};

TEST_F(ExternalHooksTest, CountsFromItsImportUntilItIsDestroyed) {
  EXPECT_EQ(Import(MiB(20), &first_), CUDA_SUCCESS);
  EXPECT_EQ(Import(MiB(10), &second_), CUDA_SUCCESS);
  daemon_.AwaitFixed(MiB(30));
  EXPECT_EQ(cuDestroyExternalMemory(first_), CUDA_SUCCESS);
  daemon_.AwaitFixed(MiB(10));
  EXPECT_EQ(cuDestroyExternalMemory(second_), CUDA_SUCCESS);
  daemon_.AwaitFixed(Bytes());
}

TEST_F(ExternalHooksTest, WithoutRoomTheDriverIsNotAsked) {
  EXPECT_EQ(Import(kCard, &first_), CUDA_SUCCESS);
  EXPECT_EQ(Import(MiB(1), &second_), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(imports, 1u);
  daemon_.AwaitFixed(kCard);
}

TEST_F(ExternalHooksTest, WhatTheDriverRefusesDoesNotCount) {
  answer = CUDA_ERROR_INVALID_HANDLE;
  EXPECT_EQ(Import(MiB(20), &first_), CUDA_ERROR_INVALID_HANDLE);
  daemon_.AwaitFixed(Bytes());
  EXPECT_EQ(cuImportExternalMemory(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuImportExternalMemory(&first_, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Import(MiB(20), nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ExternalHooksTest, WhatCouldNotBeDestroyedStillCounts) {
  EXPECT_EQ(Import(MiB(20), &first_), CUDA_SUCCESS);
  answer = CUDA_ERROR_INVALID_CONTEXT;
  EXPECT_EQ(cuDestroyExternalMemory(first_), CUDA_ERROR_INVALID_CONTEXT);
  daemon_.AwaitFixed(MiB(20));
  answer = CUDA_SUCCESS;
  EXPECT_EQ(cuDestroyExternalMemory(first_), CUDA_SUCCESS);
  daemon_.AwaitFixed(Bytes());
  EXPECT_EQ(cuDestroyExternalMemory(first_), CUDA_SUCCESS);  // the driver's to judge
  daemon_.AwaitFixed(Bytes());
}

TEST_F(ExternalHooksTest, ABrokenContextIsTheDriversToReport) {
  answer = CUDA_ERROR_ILLEGAL_ADDRESS;
  driver_.Break(driver_.context());
  EXPECT_EQ(Import(kCard + MiB(1), &first_), CUDA_ERROR_ILLEGAL_ADDRESS);  // no request for room
  daemon_.AwaitFixed(Bytes());
}

TEST_F(ExternalHooksTest, GoesWithItsContext) {
  EXPECT_EQ(Import(MiB(20), &first_), CUDA_SUCCESS);
  daemon_.AwaitFixed(MiB(20));
  guest_->fixed().GiveBack(guest_->fixed().TakeAll(driver_.context()));
  daemon_.AwaitFixed(Bytes());
}

// No guest: nothing is shared.
TEST_F(ExternalHooksTest, UnsharedProgramsHaveTheDriverAlone) {
  SetFakeProcess(&real_, nullptr);
  EXPECT_EQ(Import(kCard + MiB(1), &first_), CUDA_SUCCESS);
  EXPECT_EQ(cuDestroyExternalMemory(first_), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tandem::shim
