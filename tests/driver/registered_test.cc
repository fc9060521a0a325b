// The program's own memory, registered: to kernels and copies it is what was registered and not a
// byte more.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

// Pages of the program's that nothing else lies in.
class Pages {
 public:
  static constexpr size_t kBytes = 128 << 10;
  Pages()
      : memory_(static_cast<uint8_t*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    const auto pattern = Pattern(kBytes, 81);
    std::memcpy(memory_, pattern.data(), kBytes);
  }
  ~Pages() { munmap(memory_, kBytes); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  uint8_t* operator+(size_t offset) const { return memory_ + offset; }
  std::vector<uint8_t> Bytes() const { return {memory_, memory_ + kBytes}; }

 private:
  uint8_t* const memory_;
};

class RegisteredTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int can = 0;
    ASSERT_CU(Cu().cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 0));
    if (can == 0) GTEST_SKIP() << "the device does not register host memory";
  }
  static CUdeviceptr Register(void* memory, size_t bytes,
                              unsigned int flags = CU_MEMHOSTREGISTER_DEVICEMAP) {
    CUdeviceptr pointer = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemHostRegister_v2(memory, bytes, flags));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemHostGetDevicePointer_v2(&pointer, memory, 0));
    return pointer;
  }
  CUresult Flip(CUdeviceptr bytes, size_t size, uint32_t mask = 0xff) {
    uint32_t count = static_cast<uint32_t>(size);
    const CUresult launched =
        Launch(Kernel("flip"), count / 256 + 1, 256, nullptr, {&bytes, &mask, &count});
    return launched == CUDA_SUCCESS ? Cu().cuCtxSynchronize() : launched;
  }
  bool ReachesAllOfTheHost() {
    int any = 0;
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuDeviceGetAttribute(&any, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0));
    return any != 0;
  }
};

struct Part {
  size_t begin, size;
};

TEST_F(RegisteredTest, KernelsAndCopiesKeepToWhatWasRegistered) {
  for (const auto [begin, size] :
       {Part{1, 1}, {4095, 2}, {3, 4093}, {4097, 8191}, {0, 4096}, {4099, 65537}}) {
    SCOPED_TRACE(std::to_string(begin) + ", " + std::to_string(size));
    const Pages pages;
    std::vector<uint8_t> expected = pages.Bytes();
    const CUdeviceptr pointer = Register(pages + begin, size);
    ASSERT_CU(Flip(pointer, size));
    for (size_t i = 0; i < size; ++i) expected[begin + i] ^= 0xff;
    EXPECT_EQ(pages.Bytes(), expected);
    // From there to the device and back, as device memory.
    const CUdeviceptr device = Allocate(size);
    ASSERT_CU(Cu().cuMemcpyDtoD_v2(device, pointer, size));
    const auto part = expected.begin() + static_cast<ptrdiff_t>(begin);
    EXPECT_EQ(Read(device, size), std::vector<uint8_t>(part, part + static_cast<ptrdiff_t>(size)));
    const auto other = Pattern(size, 82);
    Write(device, other);
    ASSERT_CU(Cu().cuMemcpyDtoDAsync_v2(pointer, device, size, nullptr));
    ASSERT_CU(Cu().cuCtxSynchronize());
    std::ranges::copy(other, part);
    EXPECT_EQ(pages.Bytes(), expected);
    ASSERT_CU(Cu().cuMemHostUnregister(pages + begin));
  }
}

TEST_F(RegisteredTest, AByteBesideItIsOutOfReach) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "a card maps whole pages";
  constexpr size_t kBegin = 4099, kSize = 5000;
  for (const auto [begin, size] : {Part{kBegin - 1, 1}, {kBegin + kSize, 1}, {kBegin, kSize + 1}}) {
    SCOPED_TRACE(std::to_string(begin) + ", " + std::to_string(size));
    const Pages pages;
    const uint8_t before = pages.Bytes()[kBegin - 1], after = pages.Bytes()[kBegin + kSize];
    const CUdeviceptr pointer = Register(pages + kBegin, kSize);
    const CUdeviceptr device = Allocate(size);
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemsetD8_v2(pointer - kBegin + begin, 0, size));
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
              Cu().cuMemcpyDtoD_v2(pointer - kBegin + begin, device, size));
    EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, Flip(pointer - kBegin + begin, size));
    EXPECT_EQ(pages.Bytes()[kBegin - 1], before);
    EXPECT_EQ(pages.Bytes()[kBegin + kSize], after);
    if (!MakeContextAnew()) return;
  }
}

TEST_F(RegisteredTest, NoPartIsRegisteredTwice) {
  const Pages pages;
  constexpr size_t kBegin = 32 << 10, kSize = 64 << 10;
  Register(pages + kBegin, kSize);
  for (const auto [begin, size] : {Part{kBegin, kSize},
                                   {kBegin + 8192, 4096},
                                   {0, Pages::kBytes},
                                   {0, kBegin + 4096},
                                   {kBegin + kSize - 4096, 8192},
                                   {kBegin + kSize - 1, 1},
                                   {kBegin, 1}}) {
    SCOPED_TRACE(std::to_string(begin) + ", " + std::to_string(size));
    EXPECT_CU(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
              Cu().cuMemHostRegister_v2(pages + begin, size, 0));
  }
  for (const size_t inside : {size_t{1}, size_t{4096}, kSize - 1}) {
    EXPECT_NE(Cu().cuMemHostUnregister(pages + kBegin + inside), CUDA_SUCCESS) << inside;
  }
  // What touches it does not lie in it; and refusals have left it as it was.
  const CUdeviceptr below = Register(pages + 0, kBegin);
  Register(pages + kBegin + kSize, Pages::kBytes - kBegin - kSize);
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuMemHostGetDevicePointer_v2(&pointer, pages + kBegin + 4097, 0));
  std::vector<uint8_t> expected = pages.Bytes();
  ASSERT_CU(Flip(pointer, 100));
  ASSERT_CU(Flip(below, 1));
  for (size_t i = 0; i < 100; ++i) expected[kBegin + 4097 + i] ^= 0xff;
  expected[0] ^= 0xff;
  EXPECT_EQ(pages.Bytes(), expected);
  for (const size_t begin : {size_t{0}, kBegin, kBegin + kSize}) {
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemHostUnregister(pages + begin));
  }
}

TEST_F(RegisteredTest, SaysWhatItIs) {
  const Pages pages;
  const CUdeviceptr pointer = Register(pages + 4099, 5000);
  int same = 0;
  unsigned int type = 0, flags = 0;
  void* host = nullptr;
  ASSERT_CU(Cu().cuDeviceGetAttribute(
      &same, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 0));
  EXPECT_TRUE(same == 0 || pointer == reinterpret_cast<CUdeviceptr>(pages + 4099));
  ASSERT_CU(Cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
  EXPECT_EQ(type, static_cast<unsigned int>(CU_MEMORYTYPE_HOST));
  ASSERT_CU(Cu().cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer + 7));
  EXPECT_EQ(host, pages + 4106);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemHostGetFlags(&flags, pages + 4099));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemFreeHost(pages + 4099));
  ASSERT_CU(Cu().cuMemHostUnregister(pages + 4099));
}

TEST_F(RegisteredTest, PortableMemoryIsEveryContexts) {
  const Pages pages;
  const unsigned int flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  Register(pages + 4099, 5000, flags);
  std::vector<uint8_t> expected = pages.Bytes();
  int count = 0;
  ASSERT_CU(Cu().cuDeviceGetCount(&count));
  for (CUdevice device = 0; device < std::min(count, 2); ++device) {
    CUcontext other = nullptr;
    CUdeviceptr pointer = 0;
    ASSERT_CU(Cu().cuCtxCreate_v2(&other, 0, device));
    module_ = nullptr;  // another context's
    ASSERT_CU(Cu().cuMemHostGetDevicePointer_v2(&pointer, pages + 4099, 0));
    ASSERT_CU(Flip(pointer, 5000, 1u << device));
    for (size_t i = 0; i < 5000; ++i) expected[4099 + i] ^= static_cast<uint8_t>(1u << device);
    EXPECT_EQ(pages.Bytes(), expected);
    ASSERT_CU(Cu().cuCtxDestroy_v2(other));
  }
  ASSERT_CU(Cu().cuMemHostUnregister(pages + 4099));
}

// Memory that the program itself may only read.
TEST_F(RegisteredTest, WhatIsReadOnlyIsRead) {
  int can = 0;
  ASSERT_CU(
      Cu().cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0));
  if (can == 0) GTEST_SKIP() << "the device does not register memory to be read only";
  const Pages pages;
  ASSERT_EQ(mprotect(pages + 4096, 8192, PROT_READ), 0);
  if (!ReachesAllOfTheHost()) {
    EXPECT_NE(Cu().cuMemHostRegister_v2(pages + 4099, 5000, 0), CUDA_SUCCESS);
  }
  const unsigned int flags = CU_MEMHOSTREGISTER_READ_ONLY | CU_MEMHOSTREGISTER_DEVICEMAP;
  CUdeviceptr pointer = Register(pages + 4099, 5000, flags), last = pointer + 4999;
  CUdeviceptr device = Allocate(5000);
  ASSERT_CU(Cu().cuMemcpyDtoD_v2(device, pointer, 5000));
  const auto bytes = pages.Bytes();
  EXPECT_EQ(Read(device, 5000), std::vector<uint8_t>(bytes.begin() + 4099, bytes.begin() + 9099));
  ASSERT_CU(Launch(Kernel("fetch"), 1, 1, nullptr, {&last, &device}));
  EXPECT_EQ(Read(device, 1)[0], bytes[9098]);
  if (OnSoftwareGpu()) {  // a card's result is not documented
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemsetD8_v2(pointer, 0, 1));
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpyDtoD_v2(pointer, device, 1));
    EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, Flip(pointer, 1));
    EXPECT_EQ(pages.Bytes(), bytes);
    MakeContextAnew();
  } else {
    ASSERT_CU(Cu().cuMemHostUnregister(pages + 4099));
  }
}

}  // namespace
}  // namespace tandem::driver_test
