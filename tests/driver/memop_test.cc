// Streams that write values to memory and wait for them.
#include <cstring>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

class MemopTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (Cu().cuStreamWaitValue32_v2 == nullptr) GTEST_SKIP() << "a driver from before 11.7";
    ASSERT_CU(Cu().cuStreamCreate(&waiter_, CU_STREAM_NON_BLOCKING));
    ASSERT_CU(Cu().cuStreamCreate(&writer_, CU_STREAM_NON_BLOCKING));
    flag_ = Allocate(16);
    ASSERT_CU(Cu().cuMemsetD32_v2(flag_, 0, 4));
    ASSERT_CU(Cu().cuCtxSynchronize());
  }
  void TearDown() override {
    for (CUstream stream : {waiter_, writer_}) {
      if (stream != nullptr) EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamDestroy_v2(stream));
    }
    DriverTest::TearDown();
  }
  uint32_t WordAt(CUdeviceptr pointer) {
    uint32_t word = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyDtoHAsync_v2(&word, pointer, sizeof(word), writer_));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(writer_));
    return word;
  }

  CUstream waiter_ = nullptr, writer_ = nullptr;
  CUdeviceptr flag_ = 0;
};

TEST_F(MemopTest, AStreamWaitsForAnothersValue) {
  ASSERT_CU(Cu().cuStreamWaitValue32_v2(waiter_, flag_, 3, CU_STREAM_WAIT_VALUE_GEQ));
  ASSERT_CU(Cu().cuStreamWriteValue32_v2(waiter_, flag_ + 4, 77, 0));
  ASSERT_CU(Cu().cuStreamWriteValue32_v2(writer_, flag_, 2, 0));
  EXPECT_EQ(WordAt(flag_), 2u);
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(waiter_));
  EXPECT_EQ(WordAt(flag_ + 4), 0u);
  ASSERT_CU(Cu().cuStreamWriteValue32_v2(writer_, flag_, 4, 0));
  ASSERT_CU(Cu().cuStreamSynchronize(waiter_));
  EXPECT_EQ(WordAt(flag_ + 4), 77u);
}

TEST_F(MemopTest, EveryComparison) {
  struct Case {
    unsigned int flags;
    uint32_t now, wanted;
  };
  for (const Case& one : {Case{CU_STREAM_WAIT_VALUE_EQ, 5, 5}, Case{CU_STREAM_WAIT_VALUE_AND, 6, 4},
                          Case{CU_STREAM_WAIT_VALUE_GEQ, 1, 0xffff'fff0},
                          Case{CU_STREAM_WAIT_VALUE_NOR, 0xf0, 0x0e}}) {
    ASSERT_CU(Cu().cuStreamWriteValue32_v2(writer_, flag_, one.now, 0));
    ASSERT_CU(Cu().cuStreamWaitValue32_v2(writer_, flag_, one.wanted, one.flags));
    ASSERT_CU(Cu().cuStreamSynchronize(writer_));
  }
}

TEST_F(MemopTest, WideOnesAndBatches) {
  CUstreamBatchMemOpParams operations[3] = {};
  operations[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  operations[0].writeValue.address = flag_;
  operations[0].writeValue.value64 = 0x1'0000'0002;
  operations[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  operations[1].waitValue.address = flag_;
  operations[1].waitValue.value64 = 0x1'0000'0000;
  operations[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operations[2].writeValue.address = flag_ + 8;
  operations[2].writeValue.value = 9;
  ASSERT_CU(Cu().cuStreamBatchMemOp_v2(waiter_, 3, operations, 0));
  ASSERT_CU(Cu().cuStreamSynchronize(waiter_));
  EXPECT_EQ(WordAt(flag_ + 4), 1u);
  EXPECT_EQ(WordAt(flag_ + 8), 9u);
}

// What stands behind a wait in a batch waits, too; what stands before it does not.
TEST_F(MemopTest, ABatchIsDoneInItsOrder) {
  const auto write = [&](uint32_t value) {
    CUstreamBatchMemOpParams operation = {};
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = flag_ + 4;
    operation.writeValue.value = value;
    return operation;
  };
  CUstreamBatchMemOpParams wait = {};
  wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  wait.waitValue.address = flag_;
  wait.waitValue.value = 5;
  wait.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  CUstreamBatchMemOpParams operations[] = {write(1), wait, write(2)};
  ASSERT_CU(Cu().cuStreamBatchMemOp_v2(waiter_, 3, operations, 0));
  ASSERT_CU(Cu().cuStreamWaitValue32_v2(writer_, flag_ + 4, 1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CU(Cu().cuStreamSynchronize(writer_));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(waiter_));
  EXPECT_EQ(WordAt(flag_ + 4), 1u);
  ASSERT_CU(Cu().cuStreamWriteValue32_v2(writer_, flag_, 5, 0));
  ASSERT_CU(Cu().cuStreamSynchronize(waiter_));
  EXPECT_EQ(WordAt(flag_ + 4), 2u);
}

TEST_F(MemopTest, RefusesNonsense) {
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuStreamWriteValue32_v2(writer_, 0x10, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuStreamWriteValue32_v2(writer_, flag_ + 2, 1, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuStreamWaitValue32_v2(writer_, flag_, 1, 77));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuStreamBatchMemOp_v2(writer_, 0, nullptr, 0));
}

}  // namespace
}  // namespace tandem::driver_test
