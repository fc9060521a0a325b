// Copies in batches.
#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

constexpr size_t kBatchBytes = 100'000;

CUdeviceptr AddressOf(void* host) {
  return reinterpret_cast<CUdeviceptr>(host);
}

class CopyBatchTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (Cu().cuMemcpyBatchAsync == nullptr) GTEST_SKIP() << "a driver older than 12.8";
    ASSERT_CU(Cu().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  static CUmemcpyAttributes Reading(CUmemcpySrcAccessOrder order) {
    CUmemcpyAttributes attributes = {};
    attributes.srcAccessOrder = order;
    return attributes;
  }

  CUstream stream_ = nullptr;
  size_t failed_ = 99;
  CUmemcpyAttributes in_stream_ = Reading(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
  CUmemcpyAttributes at_once_ = Reading(CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL);
};

TEST_F(CopyBatchTest, CopiesAllOfIt) {
  CUdeviceptr here = Allocate(kBatchBytes), there = Allocate(kBatchBytes),
              last = Allocate(kBatchBytes);
  Write(here, Pattern(kBatchBytes, 11));
  ASSERT_CU(Cu().cuMemsetD8_v2(there, 0, kBatchBytes));
  std::vector<uint8_t> source = Pattern(kBatchBytes, 12), seen(kBatchBytes);
  void* pinned = nullptr;
  ASSERT_CU(Cu().cuMemHostAlloc(&pinned, kBatchBytes, 0));
  std::memset(pinned, 0, kBatchBytes);
  // Whether the host or a device is meant is read off the addresses.
  CUdeviceptr to[] = {there, last, AddressOf(seen.data()), AddressOf(pinned)};
  CUdeviceptr from[] = {here, AddressOf(source.data()), here + 100, here};
  size_t bytes[] = {kBatchBytes, kBatchBytes, kBatchBytes - 100, 1};
  CUmemcpyAttributes attributes[] = {in_stream_, at_once_, in_stream_};
  size_t first[] = {0, 1, 2};
  ASSERT_CU(Cu().cuMemcpyBatchAsync(to, from, bytes, 4, attributes, first, 3, &failed_, stream_));
  // It has been read. A card that reaches the host's pages (H200, CUDA 13.0) reads it later.
  if (OnSoftwareGpu()) std::ranges::fill(source, uint8_t{0});
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  const auto pattern = Pattern(kBatchBytes, 11);
  EXPECT_EQ(Read(there, kBatchBytes), pattern);
  EXPECT_EQ(Read(last, kBatchBytes), Pattern(kBatchBytes, 12));
  EXPECT_TRUE(std::equal(pattern.begin() + 100, pattern.end(), seen.begin()));
  EXPECT_EQ(static_cast<uint8_t*>(pinned)[0], pattern[0]);
  EXPECT_EQ(static_cast<uint8_t*>(pinned)[1], 0);
  if (Cu().cuMemcpyBatchAsync_v2 != nullptr) {
    CUdeviceptr back[] = {there};
    ASSERT_CU(Cu().cuMemcpyBatchAsync_v2(back, &last, bytes, 1, &in_stream_, first, 1, stream_));
    ASSERT_CU(Cu().cuStreamSynchronize(stream_));
    EXPECT_EQ(Read(there, kBatchBytes), Pattern(kBatchBytes, 12));
  }
  ASSERT_CU(Cu().cuMemFreeHost(pinned));
}

// A batch is in its stream's order.
TEST_F(CopyBatchTest, WaitsForWhatIsBeforeIt) {
  CUdeviceptr here = Allocate(kBatchBytes), there = Allocate(kBatchBytes);
  ASSERT_CU(Cu().cuMemsetD8_v2(here, 1, kBatchBytes));
  ASSERT_CU(Cu().cuMemsetD8_v2(there, 0, kBatchBytes));
  ASSERT_CU(Cu().cuCtxSynchronize());
  size_t bytes = kBatchBytes, first = 0;
  Door door;
  door.HoldIn(stream_);
  ASSERT_CU(Cu().cuMemsetD8Async(here, 2, kBatchBytes, stream_));
  ASSERT_CU(
      Cu().cuMemcpyBatchAsync(&there, &here, &bytes, 1, &in_stream_, &first, 1, &failed_, stream_));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(stream_));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_EQ(Read(there, kBatchBytes), std::vector<uint8_t>(kBatchBytes, 2));
}

// A source read during the call is not read again. The call does not wait: the stream may need the
// calling thread.
TEST_F(CopyBatchTest, ReadsDuringTheCallWhateverTheStreamIsAt) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "a card may read the host's memory after the call";
  CUdeviceptr there = Allocate(kBatchBytes), last = Allocate(kBatchBytes);
  std::vector<uint8_t> source = Pattern(kBatchBytes, 14);
  void* pinned = nullptr;
  ASSERT_CU(Cu().cuMemHostAlloc(&pinned, kBatchBytes, 0));
  std::memset(pinned, 1, kBatchBytes);
  CUdeviceptr to[] = {there, last}, from[] = {AddressOf(source.data()), AddressOf(pinned)};
  size_t bytes[] = {kBatchBytes, kBatchBytes}, first[] = {0, 1};
  CUmemcpyAttributes attributes[] = {at_once_, in_stream_};
  Door door;
  door.HoldIn(stream_);
  ASSERT_CU(Cu().cuMemcpyBatchAsync(to, from, bytes, 2, attributes, first, 2, &failed_, stream_));
  std::ranges::fill(source, uint8_t{0});
  std::memset(pinned, 2, kBatchBytes);  // this one is read in the stream's order
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(stream_));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_EQ(Read(there, kBatchBytes), Pattern(kBatchBytes, 14));
  EXPECT_EQ(Read(last, kBatchBytes), std::vector<uint8_t>(kBatchBytes, 2));
  ASSERT_CU(Cu().cuMemFreeHost(pinned));
}

TEST_F(CopyBatchTest, ReadsBoxesDuringTheCall) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "a card's driver may wait for the stream";
  constexpr size_t kWidth = 12, kHeight = 3, kDepth = 2, kRow = 20, kRows = 5;
  std::vector<uint8_t> source = Pattern(kRow * kRows * kDepth, 15), expected;
  for (size_t row = 0; row < kHeight * kDepth; ++row) {
    const size_t begin = (row / kHeight * kRows + row % kHeight) * kRow;
    for (size_t x = 0; x < kWidth; ++x) expected.push_back(source[begin + x]);
  }
  const CUdeviceptr there = Allocate(expected.size());
  CUDA_MEMCPY3D_BATCH_OP box = {};
  box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  box.src.op.ptr = {AddressOf(source.data()), kRow, kRows, {}};
  box.dst.op.ptr = {there, 0, 0, {}};
  box.extent = {kWidth, kHeight, kDepth};
  box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  Door door;
  door.HoldIn(stream_);
  ASSERT_CU(Cu().cuMemcpy3DBatchAsync(1, &box, &failed_, 0, stream_));
  std::ranges::fill(source, uint8_t{0});
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_EQ(Read(there, expected.size()), expected);
}

TEST_F(CopyBatchTest, SaysWhichOneFailed) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "a card may notice it later";
  CUdeviceptr here = Allocate(kBatchBytes), there = Allocate(kBatchBytes);
  CUdeviceptr to[] = {there, there + 200}, from[] = {here, 0};
  size_t bytes[] = {100, 100}, first = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuMemcpyBatchAsync(to, from, bytes, 2, &in_stream_, &first, 1, &failed_, stream_));
  EXPECT_EQ(failed_, 1u);
}

// A picture of 16-bit points: rows of a pitch in memory, and an array.
TEST_F(CopyBatchTest, CopiesBoxes) {
  constexpr size_t kWidth = 20, kHeight = 6, kRow = 32, kPoint = 2;
  CUDA_ARRAY_DESCRIPTOR description = {};
  description.Width = kRow;
  description.Height = 2 * kHeight;
  description.Format = CU_AD_FORMAT_UNSIGNED_INT16;
  description.NumChannels = 1;
  CUarray array = nullptr;
  ASSERT_CU(Cu().cuArrayCreate_v2(&array, &description));
  const CUdeviceptr source = Allocate(kRow * kHeight * kPoint);
  const CUdeviceptr there = Allocate(kWidth * kHeight * kPoint);
  const auto pattern = Pattern(kRow * kHeight * kPoint, 13);
  Write(source, pattern);
  CUDA_MEMCPY3D_BATCH_OP in = {}, out = {};
  in.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  in.src.op.ptr = {source, kRow, kHeight, {}};
  in.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  in.dst.op.array = {array, {3, 2, 0}};
  in.extent = {kWidth, kHeight, 1};
  in.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  out = in;
  out.src = in.dst;
  out.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  out.dst.op.ptr = {there, 0, 0, {}};  // as close as it goes
  ASSERT_CU(Cu().cuMemcpy3DBatchAsync(1, &in, &failed_, 0, stream_));
  if (Cu().cuMemcpy3DBatchAsync_v2 != nullptr) {
    ASSERT_CU(Cu().cuMemcpy3DBatchAsync_v2(1, &out, 0, stream_));
  } else {
    ASSERT_CU(Cu().cuMemcpy3DBatchAsync(1, &out, &failed_, 0, stream_));
  }
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  std::vector<uint8_t> expected;
  for (size_t y = 0; y < kHeight; ++y) {
    const auto row = pattern.begin() + static_cast<ptrdiff_t>(y * kRow * kPoint);
    expected.insert(expected.end(), row, row + kWidth * kPoint);
  }
  EXPECT_EQ(Read(there, expected.size()), expected);
  ASSERT_CU(Cu().cuArrayDestroy(array));
}

TEST_F(CopyBatchTest, RefusesNonsense) {
  CUdeviceptr here = Allocate(kBatchBytes), there = Allocate(kBatchBytes);
  size_t bytes = 64, first = 0, later = 1;
  const auto refused = [&](size_t count, CUmemcpyAttributes* attributes, size_t* begins,
                           size_t kinds, CUstream stream) {
    return Cu().cuMemcpyBatchAsync(&there, &here, &bytes, count, attributes, begins, kinds,
                                   &failed_, stream);
  };
  CUmemcpyAttributes none = Reading(CU_MEMCPY_SRC_ACCESS_ORDER_INVALID);
  EXPECT_CU(CUDA_SUCCESS, refused(1, &in_stream_, &first, 1, stream_));
  EXPECT_NE(refused(0, &in_stream_, &first, 1, stream_), CUDA_SUCCESS);
  EXPECT_NE(refused(1, nullptr, &first, 1, stream_), CUDA_SUCCESS);
  EXPECT_NE(refused(1, &in_stream_, nullptr, 1, stream_), CUDA_SUCCESS);
  EXPECT_NE(refused(1, &in_stream_, &later, 1, stream_), CUDA_SUCCESS);
  EXPECT_NE(refused(1, &in_stream_, &first, 2, stream_), CUDA_SUCCESS);
  EXPECT_NE(refused(1, &none, &first, 1, stream_), CUDA_SUCCESS);
  EXPECT_NE(refused(1, &in_stream_, &first, 1, nullptr), CUDA_SUCCESS);  // the legacy stream
  EXPECT_NE(
      Cu().cuMemcpyBatchAsync(nullptr, &here, &bytes, 1, &in_stream_, &first, 1, &failed_, stream_),
      CUDA_SUCCESS);
  CUDA_MEMCPY3D_BATCH_OP box = {};
  EXPECT_NE(Cu().cuMemcpy3DBatchAsync(1, nullptr, &failed_, 0, stream_), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuMemcpy3DBatchAsync(1, &box, &failed_, 0, stream_), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tandem::driver_test
