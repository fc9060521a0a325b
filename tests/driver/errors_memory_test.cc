// What is refused, and how: device memory, host memory, copies and fills.
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

class ErrorsMemoryTest : public ErrorsTest {
 protected:
  void SetUp() override {
    ErrorsTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) block_ = Allocate(kBytes);
  }
  static constexpr size_t kBytes = 4096;
  CUdeviceptr block_ = 0;
  char host_[256] = {};
};

const Answers kOutOfMemory = {CUDA_ERROR_OUT_OF_MEMORY};
const Answers kNotRegistered = {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, CUDA_ERROR_INVALID_VALUE};

TEST_F(ErrorsMemoryTest, Allocating) {
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  REFUSES(kValue, cuMemAlloc_v2, nullptr, kBytes);
  REFUSES(kValue, cuMemAlloc_v2, &pointer, 0);
  REFUSES(kOutOfMemory, cuMemAlloc_v2, &pointer, kAbsurd);
  REFUSES(kValue, cuMemAllocPitch_v2, nullptr, &pitch, 64, 4, 4);
  REFUSES(kValue, cuMemAllocPitch_v2, &pointer, nullptr, 64, 4, 4);
  REFUSES(kValue, cuMemAllocPitch_v2, &pointer, &pitch, 64, 4, 3);
  REFUSES(kValue, cuMemAllocPitch_v2, &pointer, &pitch, 0, 4, 4);
  REFUSES(kTooMuch, cuMemAllocPitch_v2, &pointer, &pitch, 1 << 20, kAbsurd, 4);
  EXPECT_EQ(pointer, 0u);
}

TEST_F(ErrorsMemoryTest, Freeing) {
  const CUdeviceptr pointer = Allocate(kBytes);
  REFUSES(kValue, cuMemFree_v2, pointer + 256);
  TAKES(cuMemFree_v2, pointer);
  REFUSES(kValue, cuMemFree_v2, pointer);
  REFUSES(kValue, cuMemFree_v2, reinterpret_cast<CUdeviceptr>(host_));
  TAKES(cuMemFree_v2, 0);
  void* host = nullptr;
  TAKES(cuMemHostAlloc, &host, kBytes, 0);
  REFUSES(kValue, cuMemFree_v2, reinterpret_cast<CUdeviceptr>(host));
  TAKES(cuMemFreeHost, host);
}

TEST_F(ErrorsMemoryTest, AskingAboutAddresses) {
  size_t bytes = 0;
  CUdeviceptr base = 0;
  int answer = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
  void* data[] = {&answer};
  const Answers unknown = {CUDA_ERROR_NOT_FOUND, CUDA_ERROR_INVALID_VALUE};
  const auto type = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  const Answers value_or_none = {CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS};
  REFUSES(unknown, cuMemGetAddressRange_v2, &base, &bytes, 0x10);
  REFUSES(value_or_none, cuMemGetInfo_v2, nullptr, nullptr);
  TAKES(cuMemGetInfo_v2, nullptr, &bytes);
  TAKES(cuMemGetInfo_v2, &bytes, nullptr);
  REFUSES(kValue, cuPointerGetAttribute, nullptr, type, block_);
  REFUSES(kValue, cuPointerGetAttribute, &answer, NoSuch<CUpointer_attribute>(), block_);
  REFUSES(kValue, cuPointerGetAttribute, &answer, type, 0x10);
  REFUSES(kValue, cuPointerGetAttribute, &base, CU_POINTER_ATTRIBUTE_HOST_POINTER, block_);
  REFUSES(kValue, cuPointerGetAttributes, 1, nullptr, data, block_);
  REFUSES(kValue, cuPointerGetAttributes, 1, attributes, nullptr, block_);
}

TEST_F(ErrorsMemoryTest, AnUnknownAttributeAmongOthers) {
  int type = 0;
  CUdeviceptr other = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      NoSuch<CUpointer_attribute>()};
  void* data[] = {&type, &other};
  REFUSES(kValue, cuPointerGetAttributes, 2, attributes, data, block_);
}

TEST_F(ErrorsMemoryTest, TellingAboutAddresses) {
  const int on = 1;
  constexpr auto kSync = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
  REFUSES(kValue, cuPointerSetAttribute, nullptr, kSync, block_);
  REFUSES(kValue, cuPointerSetAttribute, &on, kSync, 0x10);
  REFUSES(kValue, cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block_);  // a fact
  REFUSES(kValue, cuPointerSetAttribute, &on, NoSuch<CUpointer_attribute>(), block_);
}

TEST_F(ErrorsMemoryTest, AllocatingHostMemory) {
  void* pointer = nullptr;
  unsigned int flags = 0;
  CUdeviceptr device = 0;
  REFUSES(kValue, cuMemAllocHost_v2, nullptr, kBytes);
  REFUSES(kTooMuch, cuMemAllocHost_v2, &pointer, kAbsurd);
  REFUSES(kValue, cuMemHostAlloc, nullptr, kBytes, 0);
  REFUSES(kValue, cuMemHostAlloc, &pointer, kBytes, 0x1000);
  REFUSES(kTooMuch, cuMemHostAlloc, &pointer, kAbsurd, 0);
  REFUSES(kValue, cuMemFreeHost, host_);
  REFUSES(kValue, cuMemHostGetDevicePointer_v2, &device, host_, 0);
  REFUSES(kValue, cuMemHostGetFlags, &flags, host_);
  TAKES(cuMemHostAlloc, &pointer, kBytes, CU_MEMHOSTALLOC_PORTABLE);
  REFUSES(kValue, cuMemHostGetDevicePointer_v2, nullptr, pointer, 0);
  REFUSES(kValue, cuMemHostGetDevicePointer_v2, &device, pointer, 1);
  REFUSES(kValue, cuMemHostGetFlags, nullptr, pointer);
  REFUSES(kNotRegistered, cuMemHostUnregister, pointer);
  TAKES(cuMemHostGetFlags, &flags, pointer);
  EXPECT_NE(flags & CU_MEMHOSTALLOC_PORTABLE, 0u);
  TAKES(cuMemFreeHost, pointer);
  REFUSES(kValue, cuMemFreeHost, pointer);
}

TEST_F(ErrorsMemoryTest, RegisteringHostMemory) {
  const Answers twice = {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED};
  REFUSES(kValue, cuMemHostRegister_v2, nullptr, kBytes, 0);
  REFUSES(kValue, cuMemHostRegister_v2, host_, 0, 0);
  REFUSES(kValue, cuMemHostRegister_v2, host_, sizeof(host_), 0x1000);
  REFUSES(kNotRegistered, cuMemHostUnregister, host_);
  REFUSES(kValue, cuMemHostUnregister, nullptr);
  std::vector<char> memory(1 << 20);
  char* const begin = memory.data();
  TAKES(cuMemHostRegister_v2, begin, memory.size(), 0);
  REFUSES(twice, cuMemHostRegister_v2, begin, memory.size(), 0);
  REFUSES(twice, cuMemHostRegister_v2, begin + memory.size() / 2, 4096, 0);  // a part of it
  REFUSES(kNotRegistered, cuMemHostUnregister, begin + memory.size() / 2);
  REFUSES(kValue, cuMemFreeHost, begin);
  TAKES(cuMemHostUnregister, begin);
  REFUSES(kNotRegistered, cuMemHostUnregister, begin);
}

TEST_F(ErrorsMemoryTest, Copies) {
  const CUdeviceptr beyond = block_ + (CUdeviceptr{1} << 50);  // in no allocation
  REFUSES(kValue, cuMemcpyHtoD_v2, beyond, host_, 64);
  REFUSES(kValue, cuMemcpyHtoD_v2, 0, host_, 64);
  REFUSES(kValue, cuMemcpyHtoD_v2, block_, nullptr, 64);
  REFUSES(kValue, cuMemcpyHtoDAsync_v2, beyond, host_, 64, nullptr);
  REFUSES(kValue, cuMemcpyDtoH_v2, host_, beyond, 64);
  REFUSES(kValue, cuMemcpyDtoH_v2, nullptr, block_, 64);
  REFUSES(kValue, cuMemcpyDtoHAsync_v2, host_, beyond, 64, nullptr);
  REFUSES(kValue, cuMemcpyDtoD_v2, block_, beyond, 64);
  REFUSES(kValue, cuMemcpyDtoD_v2, beyond, block_, 64);
  REFUSES(kValue, cuMemcpyDtoDAsync_v2, block_, beyond, 64, nullptr);
  REFUSES(kValue, cuMemcpy, 0, block_, 64);
  REFUSES(kValue, cuMemcpyAsync, block_, 0, 64, nullptr);
  REFUSES(kValue, cuMemcpyDtoD_v2, block_, block_, kAbsurd);
}

TEST_F(ErrorsMemoryTest, Rectangles) {
  CUDA_MEMCPY2D good = {};
  good.srcMemoryType = CU_MEMORYTYPE_HOST;
  good.srcHost = host_;
  good.srcPitch = 16;
  good.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  good.dstDevice = block_;
  good.dstPitch = 16;
  good.WidthInBytes = 16;
  good.Height = 4;
  TAKES(cuMemcpy2D_v2, &good);
  int max_pitch = 0;
  TAKES(cuDeviceGetAttribute, &max_pitch, CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0);
  std::vector<CUDA_MEMCPY2D> wrong(8, good);
  wrong[0].srcMemoryType = NoSuch<CUmemorytype>();
  wrong[1].dstMemoryType = static_cast<CUmemorytype>(0);
  wrong[2].srcPitch = 8;  // rows that lie in each other
  wrong[3].dstPitch = 8;
  wrong[4].dstDevice = 0;
  wrong[5].srcHost = nullptr;
  wrong[6].Height = kAbsurd;
  wrong[7].srcXInBytes = 8;  // a row that ends in the next one
  for (const CUDA_MEMCPY2D& copy : wrong) {
    SCOPED_TRACE("case " + std::to_string(&copy - wrong.data()));
    REFUSES(kValue, cuMemcpy2D_v2, &copy);
    REFUSES(kValue, cuMemcpy2DUnaligned_v2, &copy);
    REFUSES(kValue, cuMemcpy2DAsync_v2, &copy, nullptr);
  }
  REFUSES(kValue, cuMemcpy2D_v2, nullptr);
  REFUSES(kValue, cuMemcpy2DUnaligned_v2, nullptr);
  REFUSES(kValue, cuMemcpy2DAsync_v2, nullptr, nullptr);
  // Rows that lie further apart than is possible do not matter where there is one row.
  CUDA_MEMCPY2D apart = good;
  apart.Height = 1;
  apart.dstPitch = size_t{1} + static_cast<size_t>(max_pitch);
  TAKES(cuMemcpy2D_v2, &apart);
  TAKES(cuMemcpy2DUnaligned_v2, &apart);
  TAKES(cuMemcpy2DAsync_v2, &apart, nullptr);
}

TEST_F(ErrorsMemoryTest, Boxes) {
  CUDA_MEMCPY3D good = {};
  good.srcMemoryType = CU_MEMORYTYPE_HOST;
  good.srcHost = host_;
  good.srcPitch = 16;
  good.srcHeight = 2;
  good.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  good.dstDevice = block_;
  good.dstPitch = 16;
  good.dstHeight = 2;
  good.WidthInBytes = 16;
  good.Height = 2;
  good.Depth = 2;
  TAKES(cuMemcpy3D_v2, &good);
  std::vector<CUDA_MEMCPY3D> wrong(7, good);
  wrong[0].srcMemoryType = NoSuch<CUmemorytype>();
  wrong[1].dstMemoryType = static_cast<CUmemorytype>(0);
  wrong[2].dstPitch = 8;
  wrong[3].srcHeight = 1;  // slices that lie in each other
  wrong[4].dstDevice = 0;
  wrong[5].srcLOD = 1;
  wrong[6].Depth = kAbsurd;
  for (const CUDA_MEMCPY3D& copy : wrong) {
    SCOPED_TRACE("case " + std::to_string(&copy - wrong.data()));
    // A card does not look at the level of what has no levels.
    const Answers refused = copy.srcLOD == 0 ? kValue : kValueOrNone;
    REFUSES(refused, cuMemcpy3D_v2, &copy);
    REFUSES(refused, cuMemcpy3DAsync_v2, &copy, nullptr);
  }
  REFUSES(kValue, cuMemcpy3D_v2, nullptr);
  REFUSES(kValue, cuMemcpy3DAsync_v2, nullptr, nullptr);
}

TEST_F(ErrorsMemoryTest, Fills) {
  REFUSES(kValue, cuMemsetD8_v2, 0, 1, 4);
  REFUSES(kValue, cuMemsetD8_v2, block_, 1, kAbsurd);
  REFUSES(kValue, cuMemsetD8Async, 0, 1, 4, nullptr);
  REFUSES(kValue, cuMemsetD16_v2, block_ + 1, 1, 4);
  REFUSES(kValue, cuMemsetD16Async, block_ + 1, 1, 4, nullptr);
  REFUSES(kValue, cuMemsetD32_v2, block_ + 2, 1, 4);
  REFUSES(kValue, cuMemsetD32Async, block_ + 2, 1, 4, nullptr);
  // Rows that lie in each other, or do not begin where an element may.
  REFUSES(kValue, cuMemsetD2D8_v2, block_, 8, 1, 16, 2);
  REFUSES(kValue, cuMemsetD2D8Async, block_, 8, 1, 16, 2, nullptr);
  REFUSES(kValue, cuMemsetD2D16_v2, block_, 17, 1, 8, 2);
  REFUSES(kValue, cuMemsetD2D16Async, block_ + 1, 16, 1, 8, 2, nullptr);
  REFUSES(kValue, cuMemsetD2D32_v2, block_, 18, 1, 4, 2);
  REFUSES(kValue, cuMemsetD2D32Async, 0, 16, 1, 4, 2, nullptr);
  REFUSES(kValue, cuMemsetD2D8_v2, block_, kAbsurd, 1, 16, 1024);
  // A card counts the bytes of this row, which are 2^64, as none.
  REFUSES(kValueOrNone, cuMemsetD2D32_v2, block_, 16, 1, kAbsurd * 4, 1);
}

TEST_F(ErrorsMemoryTest, NoCurrentContext) {
  const CUdeviceptr block = block_;
  void* pinned = nullptr;
  TAKES(cuMemHostAlloc, &pinned, kBytes, CU_MEMHOSTALLOC_PORTABLE);
  WithoutContext([&] {
    CUdeviceptr pointer = 0;
    size_t bytes = 0;
    void* host = nullptr;
    CUDA_MEMCPY2D rectangle = {};
    rectangle.srcMemoryType = rectangle.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rectangle.srcDevice = rectangle.dstDevice = block;
    rectangle.srcPitch = rectangle.dstPitch = rectangle.WidthInBytes = 16;
    rectangle.Height = 1;
    REFUSES(kContext, cuMemAlloc_v2, &pointer, 4096);
    REFUSES(kContext, cuMemAllocPitch_v2, &pointer, &bytes, 64, 4, 4);
    REFUSES(kContext, cuMemGetInfo_v2, &bytes, &bytes);
    REFUSES(kContext, cuMemAllocHost_v2, &host, 4096);
    REFUSES(kContext, cuMemHostAlloc, &host, 4096, 0);
    REFUSES(kContext, cuMemHostRegister_v2, host_, sizeof(host_), 0);
    REFUSES(kContext, cuMemHostGetDevicePointer_v2, &pointer, pinned, 0);
    REFUSES(kContext, cuMemcpy, block, block, 4);
    REFUSES(kContext, cuMemcpyAsync, block, block, 4, nullptr);
    REFUSES(kContext, cuMemcpyHtoD_v2, block, host_, 4);
    REFUSES(kContext, cuMemcpyHtoDAsync_v2, block, host_, 4, nullptr);
    REFUSES(kContext, cuMemcpyDtoH_v2, host_, block, 4);
    REFUSES(kContext, cuMemcpyDtoHAsync_v2, host_, block, 4, nullptr);
    REFUSES(kContext, cuMemcpyDtoD_v2, block, block + 64, 4);
    REFUSES(kContext, cuMemcpyDtoDAsync_v2, block, block + 64, 4, nullptr);
    REFUSES(kContext, cuMemcpy2D_v2, &rectangle);
    REFUSES(kContext, cuMemcpy2DUnaligned_v2, &rectangle);
    REFUSES(kContext, cuMemcpy2DAsync_v2, &rectangle, nullptr);
  });
  TAKES(cuMemFreeHost, pinned);
}

// Copies that name their contexts need a current one, too.
TEST_F(ErrorsMemoryTest, NoCurrentContextBetweenContexts) {
  CUDA_MEMCPY3D_PEER box = {};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = box.dstDevice = block_;
  box.srcContext = box.dstContext = context_;
  box.WidthInBytes = box.Height = box.Depth = 1;
  WithoutContext([&] {
    REFUSES(kContext, cuMemcpyPeer, block_, context_, block_ + 64, context_, 4);
    REFUSES(kContext, cuMemcpyPeerAsync, block_, context_, block_ + 64, context_, 4, nullptr);
    REFUSES(kContext, cuMemcpy3DPeer, &box);
    REFUSES(kContext, cuMemcpy3DPeerAsync, &box, nullptr);
  });
}

TEST_F(ErrorsMemoryTest, Batches) {
  CUmemcpyAttributes in_stream = {}, nowhere = {};
  in_stream.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  nowhere.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  CUdeviceptr to = block_, from = block_ + 64;
  size_t bytes = 16, first = 0, later = 1, failed = 0;
  CUstream stream = nullptr;
  TAKES(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  // Without a place for it, the newer form does not tell which copy was at fault.
  const auto refuses = [&](CUdeviceptr* there, CUdeviceptr* here, size_t* size, size_t count,
                           CUmemcpyAttributes* attributes, size_t* begins, size_t kinds,
                           CUstream where) {
    REFUSES(kValue, cuMemcpyBatchAsync, there, here, size, count, attributes, begins, kinds,
            &failed, where);
    REFUSES(kValue, cuMemcpyBatchAsync_v2, there, here, size, count, attributes, begins, kinds,
            where);
  };
  refuses(nullptr, &from, &bytes, 1, &in_stream, &first, 1, stream);
  refuses(&to, nullptr, &bytes, 1, &in_stream, &first, 1, stream);
  refuses(&to, &from, nullptr, 1, &in_stream, &first, 1, stream);
  refuses(&to, &from, &bytes, 0, &in_stream, &first, 1, stream);
  refuses(&to, &from, &bytes, 1, nullptr, &first, 1, stream);
  refuses(&to, &from, &bytes, 1, &in_stream, nullptr, 1, stream);
  refuses(&to, &from, &bytes, 1, &in_stream, &later, 1, stream);
  refuses(&to, &from, &bytes, 1, &in_stream, &first, 0, stream);
  refuses(&to, &from, &bytes, 1, &in_stream, &first, 2, stream);
  refuses(&to, &from, &bytes, 1, &nowhere, &first, 1, stream);
  refuses(&to, &from, &bytes, 1, &in_stream, &first, 1, nullptr);  // the legacy stream
  WithoutContext([&] {
    // A stream that there is has a context; the thread's own needs the current one.
    auto* const own = reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD_VALUE);
    REFUSES(kContext, cuMemcpyBatchAsync, &to, &from, &bytes, 1, &in_stream, &first, 1, &failed,
            own);
    REFUSES(kContext, cuMemcpyBatchAsync_v2, &to, &from, &bytes, 1, &in_stream, &first, 1, own);
  });
  TAKES(cuStreamDestroy_v2, stream);
}

TEST_F(ErrorsMemoryTest, BatchesOfBoxes) {
  CUDA_MEMCPY3D_BATCH_OP good = {};
  good.src.type = good.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  good.src.op.ptr = {block_, 0, 0, {}};
  good.dst.op.ptr = {block_ + 64, 0, 0, {}};
  good.extent = {4, 4, 1};
  good.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  std::vector<CUDA_MEMCPY3D_BATCH_OP> wrong(5, good);
  wrong[0].src.type = static_cast<CUmemcpy3DOperandType>(0);
  wrong[1].dst.type = NoSuch<CUmemcpy3DOperandType>();
  wrong[2].extent.height = 0;
  wrong[3].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  wrong[4].src.op.ptr.rowLength = 2;  // rows that lie in each other
  size_t failed = 0;
  CUstream stream = nullptr;
  TAKES(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  for (CUDA_MEMCPY3D_BATCH_OP& copy : wrong) {
    SCOPED_TRACE("case " + std::to_string(&copy - wrong.data()));
    REFUSES(kValue, cuMemcpy3DBatchAsync, 1, &copy, &failed, 0, stream);
    REFUSES(kValue, cuMemcpy3DBatchAsync_v2, 1, &copy, 0, stream);
  }
  REFUSES(kValue, cuMemcpy3DBatchAsync, 1, nullptr, &failed, 0, stream);
  REFUSES(kValue, cuMemcpy3DBatchAsync_v2, 1, nullptr, 0, stream);
  REFUSES(kValue, cuMemcpy3DBatchAsync, 0, &good, &failed, 0, stream);
  REFUSES(kValue, cuMemcpy3DBatchAsync_v2, 0, &good, 0, stream);
  REFUSES(kValue, cuMemcpy3DBatchAsync, 1, &good, &failed, 1, stream);  // there are no flags yet
  REFUSES(kValue, cuMemcpy3DBatchAsync_v2, 1, &good, 1, stream);
  REFUSES(kValue, cuMemcpy3DBatchAsync, 1, &good, &failed, 0, nullptr);
  REFUSES(kValue, cuMemcpy3DBatchAsync_v2, 1, &good, 0, nullptr);
  TAKES(cuStreamDestroy_v2, stream);
}

TEST_F(ErrorsMemoryTest, NoCurrentContextForFills) {
  const CUdeviceptr block = block_;
  WithoutContext([&] {
    REFUSES(kContext, cuMemsetD8_v2, block, 1, 4);
    REFUSES(kContext, cuMemsetD16_v2, block, 1, 4);
    REFUSES(kContext, cuMemsetD32_v2, block, 1, 4);
    REFUSES(kContext, cuMemsetD2D8_v2, block, 16, 1, 4, 2);
    REFUSES(kContext, cuMemsetD2D16_v2, block, 16, 1, 4, 2);
    REFUSES(kContext, cuMemsetD2D32_v2, block, 16, 1, 4, 2);
    REFUSES(kContext, cuMemsetD8Async, block, 1, 4, nullptr);
    REFUSES(kContext, cuMemsetD16Async, block, 1, 4, nullptr);
    REFUSES(kContext, cuMemsetD32Async, block, 1, 4, nullptr);
    REFUSES(kContext, cuMemsetD2D8Async, block, 16, 1, 4, 2, nullptr);
    REFUSES(kContext, cuMemsetD2D16Async, block, 16, 1, 4, 2, nullptr);
    REFUSES(kContext, cuMemsetD2D32Async, block, 16, 1, 4, 2, nullptr);
  });
}

}  // namespace
}  // namespace tandem::driver_test
