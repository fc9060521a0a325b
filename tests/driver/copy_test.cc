// Copies in all directions, linear and 2D, and fills.
#include <cstring>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

using CopyTest = DriverTest;

CUdeviceptr AddressOf(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

TEST_F(CopyTest, RoundTrip) {
  for (const size_t bytes : {size_t{1}, size_t{513}, size_t{70000}, size_t{5} << 20}) {
    const CUdeviceptr one = Allocate(bytes), two = Allocate(bytes);
    const auto pattern = Pattern(bytes, 3);
    Write(one, pattern);
    ASSERT_CU(Cu().cuMemcpyDtoD_v2(two, one, bytes));
    EXPECT_EQ(Read(two, bytes), pattern);
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(one));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(two));
  }
}

TEST_F(CopyTest, UnifiedAddressesTellTheSides) {
  const auto pattern = Pattern(10000, 4);
  std::vector<uint8_t> back(10000), host(10000);
  const CUdeviceptr device = Allocate(10000);
  ASSERT_CU(Cu().cuMemcpy(device, AddressOf(pattern.data()), 10000));
  ASSERT_CU(Cu().cuMemcpy(AddressOf(back.data()), device, 10000));
  EXPECT_EQ(back, pattern);
  ASSERT_CU(Cu().cuMemcpy(AddressOf(host.data()), AddressOf(back.data()), 10000));
  EXPECT_EQ(host, pattern);
}

// A host function may take its time; a copy in the host's own memory does not wait behind it.
TEST_F(CopyTest, InsideTheHostPassesHostFunctions) {
  const auto pattern = Pattern(10000, 8);
  std::vector<uint8_t> copied(10000);
  CUstream held = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  Door door;
  door.HoldIn(held);
  ASSERT_CU(Cu().cuMemcpy(AddressOf(copied.data()), AddressOf(pattern.data()), 10000));
  EXPECT_EQ(copied, pattern);
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(held));
  door.Open();
  ASSERT_CU(Cu().cuStreamDestroy_v2(held));
}

TEST_F(CopyTest, AsyncSourceMayBeReused) {
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (const size_t bytes : {size_t{1000}, size_t{1} << 20}) {
    const CUdeviceptr device = Allocate(bytes);
    const auto pattern = Pattern(bytes, 5);
    auto source = pattern;
    ASSERT_CU(Cu().cuMemcpyHtoDAsync_v2(device, source.data(), bytes, stream));
    std::memset(source.data(), 0, bytes);
    std::vector<uint8_t> back(bytes);
    ASSERT_CU(Cu().cuMemcpyDtoHAsync_v2(back.data(), device, bytes, stream));
    ASSERT_CU(Cu().cuStreamSynchronize(stream));
    EXPECT_EQ(back, pattern);
  }
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
}

TEST_F(CopyTest, PageLockedBothWays) {
  constexpr size_t kBytes = 3 << 20;
  void* from = nullptr;
  void* to = nullptr;
  ASSERT_CU(Cu().cuMemAllocHost_v2(&from, kBytes));
  ASSERT_CU(Cu().cuMemAllocHost_v2(&to, kBytes));
  const auto pattern = Pattern(kBytes, 6);
  std::memcpy(from, pattern.data(), kBytes);
  const CUdeviceptr device = Allocate(kBytes);
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, 0));
  ASSERT_CU(Cu().cuMemcpyHtoDAsync_v2(device, from, kBytes, stream));
  ASSERT_CU(Cu().cuMemcpyDtoHAsync_v2(to, device, kBytes, stream));
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  EXPECT_EQ(std::memcmp(to, pattern.data(), kBytes), 0);
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
}

TEST_F(CopyTest, RefusesForeignAndFreedAddresses) {
  std::vector<uint8_t> host(4096);
  const CUdeviceptr device = Allocate(4096);
  const CUdeviceptr freed = Allocate(8 << 20);
  ASSERT_CU(Cu().cuMemFree_v2(freed));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpyHtoD_v2(freed, host.data(), 4096));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpyDtoH_v2(host.data(), 0x10, 4096));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpyHtoD_v2(device, nullptr, 4096));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpyDtoD_v2(device, freed, 4096));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemsetD8_v2(freed, 0, 4096));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyHtoD_v2(device, host.data(), 4096));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyHtoD_v2(device, host.data(), 0));
}

// A rectangle of 300×20 cut out of one picture and put into another; all three directions.
TEST_F(CopyTest, Rectangles) {
  constexpr size_t kPitch = 1024, kRows = 40, kBytes = kPitch * kRows;
  const CUdeviceptr one = Allocate(kBytes), two = Allocate(kBytes);
  const auto picture = Pattern(kBytes, 7);
  ASSERT_CU(Cu().cuMemsetD8_v2(one, 0, kBytes));
  ASSERT_CU(Cu().cuMemsetD8_v2(two, 0, kBytes));
  CUDA_MEMCPY2D copy = {};
  copy.WidthInBytes = 300;
  copy.Height = 20;
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = picture.data();
  copy.srcPitch = 512;
  copy.srcXInBytes = 7;
  copy.srcY = 3;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = one;
  copy.dstPitch = kPitch;
  copy.dstXInBytes = 100;
  copy.dstY = 5;
  ASSERT_CU(Cu().cuMemcpy2D_v2(&copy));
  CUDA_MEMCPY2D inside = {};
  inside.WidthInBytes = 300;
  inside.Height = 20;
  inside.srcMemoryType = inside.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  inside.srcDevice = one;
  inside.srcPitch = inside.dstPitch = kPitch;
  inside.srcXInBytes = 100;
  inside.srcY = 5;
  inside.dstDevice = two;
  inside.dstXInBytes = 1;
  ASSERT_CU(Cu().cuMemcpy2DUnaligned_v2(&inside));
  std::vector<uint8_t> back(size_t{300} * 20);
  CUDA_MEMCPY2D out = {};
  out.WidthInBytes = 300;
  out.Height = 20;
  out.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  out.srcDevice = two;
  out.srcPitch = kPitch;
  out.srcXInBytes = 1;
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstHost = back.data();
  out.dstPitch = 300;
  ASSERT_CU(Cu().cuMemcpy2DAsync_v2(&out, nullptr));
  ASSERT_CU(Cu().cuStreamSynchronize(nullptr));
  for (size_t row = 0; row < 20; ++row) {
    ASSERT_EQ(std::memcmp(&back[row * 300], &picture[(row + 3) * 512 + 7], 300), 0) << row;
  }
  const auto around = Read(one, kBytes);
  EXPECT_EQ(around[5 * kPitch + 99], 0);
  EXPECT_EQ(around[5 * kPitch + 400], 0);
  copy.srcPitch = 200;  // less than a row
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpy2D_v2(&copy));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpy2D_v2(nullptr));
}

TEST_F(CopyTest, Fills) {
  const CUdeviceptr device = Allocate(4096);
  ASSERT_CU(Cu().cuMemsetD8_v2(device, 0x11, 4096));
  ASSERT_CU(Cu().cuMemsetD16_v2(device + 2, 0x2233, 3));
  ASSERT_CU(Cu().cuMemsetD32_v2(device + 16, 0x44556677, 2));
  ASSERT_CU(Cu().cuMemsetD2D8Async(device + 1024, 64, 0x88, 3, 4, nullptr));
  ASSERT_CU(Cu().cuMemsetD2D32_v2(device + 2048, 64, 0x99aabbcc, 2, 2));
  auto expected = std::vector<uint8_t>(4096, 0x11);
  for (int i = 0; i < 3; ++i) {
    expected[2 + 2 * i] = 0x33;
    expected[3 + 2 * i] = 0x22;
  }
  const uint8_t word[] = {0x77, 0x66, 0x55, 0x44}, other[] = {0xcc, 0xbb, 0xaa, 0x99};
  for (int i = 0; i < 2; ++i) std::memcpy(&expected[16 + 4 * i], word, 4);
  for (int row = 0; row < 4; ++row) std::memset(&expected[1024 + 64 * row], 0x88, 3);
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < 2; ++i) std::memcpy(&expected[2048 + 64 * row + 4 * i], other, 4);
  }
  EXPECT_EQ(Read(device, 4096), expected);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemsetD32_v2(device + 2, 0, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemsetD16_v2(device + 1, 0, 1));
}

}  // namespace
}  // namespace tandem::driver_test
