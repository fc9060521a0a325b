// What the driver of CUDA 13.0 has beyond that of 12.4.
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

class Cuda13Test : public ErrorsTest {
 protected:
  static constexpr CUmemLocation kHere = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  static constexpr CUmemAllocationType kPinned = CU_MEM_ALLOCATION_TYPE_PINNED;
  static constexpr CUmemAllocationType kManaged = CU_MEM_ALLOCATION_TYPE_MANAGED;
};

TEST_F(Cuda13Test, NoTableIsKnown) {
  const CUuuid id = {};
  const void* table = this;
  const Answers no_table = {CUDA_ERROR_NOT_FOUND, CUDA_ERROR_INVALID_VALUE};
  REFUSES(no_table, cuGetExportTable, &table, &id);
  EXPECT_EQ(table, nullptr);
  if (!OnSoftwareGpu()) return;
  REFUSES(kValue, cuGetExportTable, nullptr, &id);
  REFUSES(kValue, cuGetExportTable, &table, nullptr);
}

TEST_F(Cuda13Test, ContextsAreNamed) {
  CUcontext other = nullptr, popped = nullptr;
  CUdevice device = -1;
  TAKES(cuCtxCreate_v2, &other, 0, 0);
  TAKES(cuCtxPopCurrent_v2, &popped);
  const CUdeviceptr word = Allocate(4);
  TAKES(cuMemsetD32Async, word, 7, 1, nullptr);
  for (const CUcontext context : {context_, other, CUcontext()}) {
    TAKES(cuCtxGetDevice_v2, &device, context);
    TAKES(cuCtxSynchronize_v2, context);
  }
  EXPECT_EQ(device, 0);
  TAKES(cuCtxDestroy_v2, other);
  REFUSES(kValue, cuCtxGetDevice_v2, nullptr, context_);
  WithoutContext([&] {
    REFUSES(kContext, cuCtxGetDevice_v2, &device, nullptr);
    REFUSES(kContext, cuCtxSynchronize_v2, nullptr);
    TAKES(cuCtxGetDevice_v2, &device, context_);
    TAKES(cuCtxSynchronize_v2, context_);
  });
}

TEST_F(Cuda13Test, StreamsTellTheirPlace) {
  CUstream stream = nullptr;
  CUcontext context = nullptr;
  CUgreenCtx green = reinterpret_cast<CUgreenCtx>(this);
  CUdevice device = -1;
  TAKES(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  TAKES(cuStreamGetDevice, stream, &device);
  TAKES(cuStreamGetCtx_v2, stream, &context, &green);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(context, context_);
  EXPECT_EQ(green, nullptr);
  REFUSES(kValue, cuStreamGetDevice, stream, nullptr);
  REFUSES(kValueOrNone, cuStreamGetCtx_v2, stream, nullptr, &green);
  if (OnSoftwareGpu()) {
    const auto none = reinterpret_cast<CUstream>(this);
    REFUSES(kHandle, cuStreamGetDevice, none, &device);
    REFUSES(kHandle, cuStreamGetCtx_v2, none, &context, &green);
  }
  WithoutContext([&] {
    REFUSES(kContext, cuStreamGetDevice, nullptr, &device);
    REFUSES(kContext, cuStreamGetCtx_v2, nullptr, &context, &green);
  });
  TAKES(cuStreamDestroy_v2, stream);
}

TEST_F(Cuda13Test, AKernelTellsItsLibrary) {
  CUlibrary library = nullptr, same = nullptr;
  CUkernel kernel = nullptr;
  TAKES(cuLibraryLoadData, &library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0);
  TAKES(cuLibraryGetKernel, &kernel, library, "add");
  TAKES(cuKernelGetLibrary, &same, kernel);
  EXPECT_EQ(same, library);
  REFUSES(kValue, cuKernelGetLibrary, nullptr, kernel);
  REFUSES(kNullHandle, cuKernelGetLibrary, &same, nullptr);
  TAKES(cuLibraryUnload, library);
}

TEST_F(Cuda13Test, PoolsAreFoundByTheirPlace) {
  CUmemoryPool standard = nullptr, current = nullptr, pool = nullptr;
  CUmemLocation here = kHere, nowhere = {CU_MEM_LOCATION_TYPE_DEVICE, kNoDevice};
  CUmemLocation none = {CU_MEM_LOCATION_TYPE_INVALID, 0};
  CUmemPoolProps properties = {};
  properties.allocType = kPinned;
  properties.location = here;
  TAKES(cuMemGetDefaultMemPool, &standard, &here, kPinned);
  TAKES(cuDeviceGetDefaultMemPool, &pool, 0);
  EXPECT_EQ(standard, pool);
  TAKES(cuMemPoolCreate, &pool, &properties);
  TAKES(cuMemSetMemPool, &here, kPinned, pool);
  TAKES(cuMemGetMemPool, &current, &here, kPinned);
  EXPECT_EQ(current, pool);
  TAKES(cuMemSetMemPool, &here, kPinned, standard);
  TAKES(cuMemPoolDestroy, pool);
  REFUSES(kValue, cuMemGetDefaultMemPool, nullptr, &here, kPinned);
  REFUSES(kValue, cuMemGetDefaultMemPool, &pool, &none, kPinned);
  REFUSES(kDeviceOrValue, cuMemGetDefaultMemPool, &pool, &nowhere, kPinned);
  REFUSES(kValue, cuMemGetMemPool, nullptr, &here, kPinned);
  REFUSES(kValue, cuMemGetMemPool, &pool, &here, NoSuch<CUmemAllocationType>());
  REFUSES(kValue, cuMemSetMemPool, &here, kPinned, nullptr);
  if (!OnSoftwareGpu()) return;
  const Answers unsupported = {CUDA_ERROR_NOT_SUPPORTED};
  CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
  REFUSES(unsupported, cuMemGetDefaultMemPool, &pool, &host, kPinned);
  REFUSES(unsupported, cuMemGetDefaultMemPool, &pool, &here, kManaged);
}

TEST_F(Cuda13Test, ManagedMemoryMovesInBatches) {
  constexpr size_t kBytes = 64 << 10;
  CUstream stream = nullptr;
  CUdeviceptr pointers[3] = {};
  size_t bytes[3] = {kBytes, kBytes, kBytes}, first[2] = {0, 2};
  CUmemLocation places[2] = {kHere, {CU_MEM_LOCATION_TYPE_HOST, 0}};
  TAKES(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  for (CUdeviceptr& each : pointers) TAKES(cuMemAllocManaged, &each, kBytes, CU_MEM_ATTACH_GLOBAL);
  TAKES(cuMemPrefetchBatchAsync, pointers, bytes, 3, places, first, 2, 0, stream);
  TAKES(cuStreamSynchronize, stream);
  for (size_t i = 0; i < 3; ++i) {
    int place = -99;
    TAKES(cuMemRangeGetAttribute, &place, sizeof(place),
          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, pointers[i], kBytes);
    EXPECT_EQ(place, i < 2 ? 0 : CU_DEVICE_CPU) << i;
  }
  TAKES(cuMemDiscardBatchAsync, pointers, bytes, 2, 0, stream);
  TAKES(cuMemDiscardAndPrefetchBatchAsync, pointers, bytes, 2, places, first, 1, 0, stream);
  TAKES(cuStreamSynchronize, stream);
  size_t wrong[2] = {1, 2};
  REFUSES(kValue, cuMemPrefetchBatchAsync, nullptr, bytes, 3, places, first, 2, 0, stream);
  REFUSES(kValue, cuMemPrefetchBatchAsync, pointers, bytes, 0, places, first, 2, 0, stream);
  REFUSES(kValue, cuMemPrefetchBatchAsync, pointers, bytes, 3, places, wrong, 2, 0, stream);
  REFUSES(kValue, cuMemPrefetchBatchAsync, pointers, bytes, 3, places, first, 2, 1, stream);
  REFUSES(kValue, cuMemPrefetchBatchAsync, pointers, bytes, 3, places, first, 2, 0, nullptr);
  REFUSES(kValue, cuMemDiscardBatchAsync, pointers, nullptr, 3, 0, stream);
  REFUSES(kValue, cuMemDiscardAndPrefetchBatchAsync, pointers, bytes, 2, places, first, 2, 0,
          stream);
  pointers[2] = Allocate(kBytes);
  REFUSES(kValue, cuMemDiscardBatchAsync, pointers, bytes, 3, 0, stream);
  TAKES(cuStreamDestroy_v2, stream);
}

}  // namespace
}  // namespace tandem::driver_test
