// What is refused, and how: virtual memory, memory and events of other processes, pools, managed
// memory.
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

constexpr size_t kBytes = size_t{2} << 20;

class ErrorsSharingTest : public ErrorsTest {
 protected:
  static CUmemAllocationProp Properties() {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return properties;
  }
};

TEST_F(ErrorsSharingTest, ReservingAddresses) {
  CUdeviceptr pointer = 0;
  REFUSES(kValue, cuMemAddressReserve, nullptr, kBytes, 0, 0, 0);
  REFUSES(kValue, cuMemAddressReserve, &pointer, 0, 0, 0, 0);
  REFUSES(kValue, cuMemAddressReserve, &pointer, 4097, 0, 0, 0);
  REFUSES(kValue, cuMemAddressReserve, &pointer, kBytes, 3, 0, 0);
  REFUSES(kValue, cuMemAddressReserve, &pointer, kBytes, 0, 0, 1);
  REFUSES(kTooMuch, cuMemAddressReserve, &pointer, kAbsurd, 0, 0, 0);
  REFUSES(kValue, cuMemAddressFree, 0, kBytes);
  TAKES(cuMemAddressReserve, &pointer, kBytes, 0, 0, 0);
  REFUSES(kValue, cuMemAddressFree, pointer, kBytes / 2);
  TAKES(cuMemAddressFree, pointer, kBytes);
}

TEST_F(ErrorsSharingTest, PhysicalMemory) {
  CUmemGenericAllocationHandle handle = 0;
  size_t granularity = 0;
  const CUmemAllocationProp good = Properties();
  std::vector<CUmemAllocationProp> wrong(2, good);
  wrong[0].type = NoSuch<CUmemAllocationType>();
  wrong[1].location.type = CU_MEM_LOCATION_TYPE_INVALID;
  // A card has one granularity and looks no further.
  const Answers whatever = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE, CUDA_SUCCESS};
  const Answers wherever = {CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS};
  for (const CUmemAllocationProp& properties : wrong) {
    SCOPED_TRACE("case " + std::to_string(&properties - wrong.data()));
    REFUSES(kValueOrDevice, cuMemCreate, &handle, kBytes, &properties, 0);
    REFUSES(whatever, cuMemGetAllocationGranularity, &granularity, &properties,
            CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  }
  CUmemAllocationProp nowhere = good;
  nowhere.location.id = kNoDevice;
  REFUSES(kDeviceOrValue, cuMemCreate, &handle, kBytes, &nowhere, 0);
  REFUSES(wherever, cuMemGetAllocationGranularity, &granularity, &nowhere,
          CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  REFUSES(kValue, cuMemCreate, nullptr, kBytes, &good, 0);
  REFUSES(kValue, cuMemCreate, &handle, kBytes, nullptr, 0);
  REFUSES(kValue, cuMemCreate, &handle, 0, &good, 0);
  REFUSES(kValue, cuMemCreate, &handle, 4097, &good, 0);
  REFUSES(kValue, cuMemCreate, &handle, kBytes, &good, 1);
  REFUSES(kTooMuch, cuMemCreate, &handle, kAbsurd, &good, 0);
  REFUSES(kValue, cuMemGetAllocationGranularity, nullptr, &good, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  REFUSES(kValue, cuMemGetAllocationGranularity, &granularity, nullptr,
          CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  REFUSES(kValue, cuMemGetAllocationGranularity, &granularity, &good,
          NoSuch<CUmemAllocationGranularity_flags>());
  REFUSES(kValueOrHandle, cuMemRelease, 0);
  EXPECT_EQ(handle, 0u);
}

TEST_F(ErrorsSharingTest, Mapping) {
  const CUmemAllocationProp good = Properties();
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemAccessDesc wrong = access;
  wrong.location.id = kNoDevice;
  unsigned long long flags = 0;
  CUmemGenericAllocationHandle handle = 0, again = 0;
  CUmemAllocationProp properties = {};
  CUdeviceptr pointer = 0;
  const Answers part = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED};
  TAKES(cuMemCreate, &handle, kBytes, &good, 0);
  TAKES(cuMemAddressReserve, &pointer, 2 * kBytes, 0, 0, 0);
  REFUSES(kValueOrHandle, cuMemMap, pointer, kBytes, 0, 0, 0);
  REFUSES(kValue, cuMemMap, pointer, 0, 0, handle, 0);
  REFUSES(kValue, cuMemMap, pointer, kBytes, 0, handle, 1);
  REFUSES(part, cuMemMap, pointer, 2 * kBytes, 0, handle, 0);  // more than there is
  REFUSES(kValue, cuMemMap, pointer + 1, kBytes, 0, handle, 0);
  REFUSES(part, cuMemMap, pointer, kBytes, 4096, handle, 0);  // the offset has to be 0
  TAKES(cuMemUnmap, pointer, kBytes);                         // there is nothing
  REFUSES(kValue, cuMemSetAccess, pointer, kBytes, &access, 1);
  REFUSES(kValue, cuMemGetAccess, &flags, &access.location, pointer);
  REFUSES(kValue, cuMemRetainAllocationHandle, &again, reinterpret_cast<void*>(pointer));
  TAKES(cuMemMap, pointer, kBytes, 0, handle, 0);
  REFUSES(kValue, cuMemMap, pointer, kBytes, 0, handle, 0);  // there is something
  REFUSES(kValue, cuMemAddressFree, pointer, 2 * kBytes);    // still in use
  REFUSES(kValue, cuMemUnmap, pointer, kBytes / 2);          // all or nothing
  TAKES(cuMemUnmap, pointer, 2 * kBytes);                    // and what is beside it
  TAKES(cuMemMap, pointer, kBytes, 0, handle, 0);
  REFUSES(kValue, cuMemFree_v2, pointer);
  REFUSES(kValue, cuMemSetAccess, pointer, 2 * kBytes, &access, 1);
  REFUSES(kValue, cuMemSetAccess, pointer, kBytes, nullptr, 1);
  REFUSES(kValue, cuMemSetAccess, pointer, kBytes, &access, 0);
  REFUSES(kDeviceOrValue, cuMemSetAccess, pointer, kBytes, &wrong, 1);
  wrong = {access.location, static_cast<CUmemAccess_flags>(2)};  // may write, may not read
  REFUSES(kValue, cuMemSetAccess, pointer, kBytes, &wrong, 1);
  REFUSES(kValue, cuMemGetAccess, nullptr, &access.location, pointer);
  const CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_DEVICE, kNoDevice};
  REFUSES(kDeviceOrValue, cuMemGetAccess, &flags, &nowhere, pointer);
  REFUSES(kValue, cuMemGetAccess, &flags, nullptr, pointer);
  REFUSES(kValue, cuMemRetainAllocationHandle, nullptr, reinterpret_cast<void*>(pointer));
  REFUSES(kValue, cuMemGetAllocationPropertiesFromHandle, nullptr, handle);
  REFUSES(kValueOrHandle, cuMemGetAllocationPropertiesFromHandle, &properties, 0);
  TAKES(cuMemGetAllocationPropertiesFromHandle, &properties, handle);
  EXPECT_EQ(properties.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(properties.location.id, 0);
  TAKES(cuMemUnmap, pointer, kBytes);
  TAKES(cuMemAddressFree, pointer, 2 * kBytes);
  TAKES(cuMemRelease, handle);
}

TEST_F(ErrorsSharingTest, Descriptors) {
  const CUmemAllocationProp plain = Properties();
  CUmemGenericAllocationHandle handle = 0, other = 0;
  int fd = -1;
  constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const Answers refused = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED,
                           CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_UNKNOWN};
  const Answers no_such = {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_VALUE};
  TAKES(cuMemCreate, &handle, kBytes, &plain, 0);
  REFUSES(kValue, cuMemExportToShareableHandle, nullptr, handle, kDescriptor, 0);
  REFUSES(kValue, cuMemExportToShareableHandle, &fd, handle, kDescriptor, 1);
  REFUSES(refused, cuMemExportToShareableHandle, &fd, handle, kDescriptor, 0);  // not asked for
  REFUSES(no_such, cuMemExportToShareableHandle, &fd, handle, NoSuch<CUmemAllocationHandleType>(),
          0);
  REFUSES(kValue, cuMemImportFromShareableHandle, nullptr, reinterpret_cast<void*>(intptr_t{0}),
          kDescriptor);
  REFUSES(refused, cuMemImportFromShareableHandle, &other, reinterpret_cast<void*>(intptr_t{-1}),
          kDescriptor);
  EXPECT_EQ(other, 0u);
  TAKES(cuMemRelease, handle);
}

TEST_F(ErrorsSharingTest, OtherProcesses) {
  CUipcMemHandle handle = {};
  CUipcEventHandle event_handle = {};
  CUdeviceptr pointer = 0;
  CUevent event = nullptr;
  const CUdeviceptr block = Allocate(kBytes);
  const Answers no_handle = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE,
                             CUDA_ERROR_MAP_FAILED, CUDA_ERROR_NOT_SUPPORTED};
  const Answers not_mapped = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE,
                              CUDA_ERROR_NOT_MAPPED};
  REFUSES(kValue, cuIpcGetMemHandle, nullptr, block);
  REFUSES(kValueOrHandle, cuIpcGetMemHandle, &handle, 0x10);
  void* host = nullptr;
  TAKES(cuMemHostAlloc, &host, kBytes, 0);
  REFUSES(kValueOrHandle, cuIpcGetMemHandle, &handle, reinterpret_cast<CUdeviceptr>(host));
  TAKES(cuMemFreeHost, host);
  REFUSES(kValue, cuIpcOpenMemHandle, nullptr, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  REFUSES(kValue, cuIpcOpenMemHandle_v2, nullptr, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  REFUSES(kValue, cuIpcOpenMemHandle, &pointer, handle, 0x100);
  REFUSES(kValue, cuIpcOpenMemHandle_v2, &pointer, handle, 0x100);
  REFUSES(no_handle, cuIpcOpenMemHandle, &pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  REFUSES(no_handle, cuIpcOpenMemHandle_v2, &pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  REFUSES(not_mapped, cuIpcCloseMemHandle, block);
  REFUSES(kNullHandle, cuIpcGetEventHandle, &event_handle, nullptr);
  TAKES(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  REFUSES(kNullHandle, cuIpcGetEventHandle, &event_handle, event);  // not made for that
  REFUSES(kNullHandle, cuIpcGetEventHandle, nullptr, event);
  REFUSES(kValue, cuIpcOpenEventHandle, nullptr, event_handle);
  REFUSES(no_handle, cuIpcOpenEventHandle, &event, event_handle);
  TAKES(cuEventDestroy_v2, event);
  TAKES(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  REFUSES(kValue, cuIpcGetEventHandle, nullptr, event);
  TAKES(cuEventDestroy_v2, event);
}

TEST_F(ErrorsSharingTest, Pools) {
  CUmemoryPool pool = nullptr, made = nullptr;
  CUmemPoolProps good = {};
  good.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  good.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  std::vector<CUmemPoolProps> wrong(3, good);
  wrong[0].allocType = NoSuch<CUmemAllocationType>();
  wrong[1].location.type = CU_MEM_LOCATION_TYPE_INVALID;
  wrong[2].location.id = kNoDevice;
  for (const CUmemPoolProps& properties : wrong) {
    SCOPED_TRACE("case " + std::to_string(&properties - wrong.data()));
    REFUSES(kValueOrDevice, cuMemPoolCreate, &made, &properties);
  }
  REFUSES(kValue, cuMemPoolCreate, nullptr, &good);
  REFUSES(kValue, cuMemPoolCreate, &made, nullptr);
  REFUSES(kValue, cuDeviceGetDefaultMemPool, nullptr, 0);
  REFUSES(kDeviceOrValue, cuDeviceGetDefaultMemPool, &pool, kNoDevice);
  REFUSES(kValue, cuDeviceGetMemPool, nullptr, 0);
  REFUSES(kDeviceOrValue, cuDeviceGetMemPool, &pool, kNoDevice);
  TAKES(cuDeviceGetDefaultMemPool, &pool, 0);
  REFUSES(kValue, cuDeviceSetMemPool, 0, nullptr);
  REFUSES(kDeviceOrValue, cuDeviceSetMemPool, kNoDevice, pool);
  REFUSES(kValue, cuMemPoolDestroy, nullptr);
  REFUSES(kValue, cuMemPoolDestroy, pool);  // the device's own
  REFUSES(kValue, cuMemPoolTrimTo, nullptr, 0);
  int count = 0;
  TAKES(cuDeviceGetCount, &count);
  if (count < 2) GTEST_SKIP() << "there is no second device";
  REFUSES(kValueOrDevice, cuDeviceSetMemPool, 1, pool);  // the first one's
}

TEST_F(ErrorsSharingTest, PoolsOfOtherProcesses) {
  CUmemoryPool pool = nullptr, imported = nullptr;
  CUmemPoolPtrExportData data = {};
  CUdeviceptr pointer = 0;
  int fd = -1;
  constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const auto no_such = NoSuch<CUmemAllocationHandleType>();
  const auto handle = [](intptr_t number) { return reinterpret_cast<void*>(number); };
  const Answers refused = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED,
                           CUDA_ERROR_OPERATING_SYSTEM};
  TAKES(cuDeviceGetDefaultMemPool, &pool, 0);
  REFUSES(refused, cuMemPoolExportToShareableHandle, &fd, pool, kDescriptor, 0);  // not made for it
  REFUSES(kValue, cuMemPoolExportToShareableHandle, nullptr, pool, kDescriptor, 0);
  REFUSES(kValue, cuMemPoolExportToShareableHandle, &fd, nullptr, kDescriptor, 0);
  REFUSES(kValue, cuMemPoolExportToShareableHandle, &fd, pool, kDescriptor, 1);
  REFUSES(refused, cuMemPoolExportToShareableHandle, &fd, pool, no_such, 0);
  REFUSES(kValue, cuMemPoolImportFromShareableHandle, nullptr, handle(0), kDescriptor, 0);
  REFUSES(refused, cuMemPoolImportFromShareableHandle, &imported, handle(-1), kDescriptor, 0);
  REFUSES(kValue, cuMemPoolImportFromShareableHandle, &imported, handle(0), kDescriptor, 1);
  REFUSES(refused, cuMemPoolImportFromShareableHandle, &imported, handle(0), no_such, 0);
  REFUSES(kValue, cuMemPoolExportPointer, nullptr, Allocate(64));
  REFUSES(refused, cuMemPoolExportPointer, &data, Allocate(64));  // not a pool's
  REFUSES(kValueOrHandle, cuMemPoolExportPointer, &data, 0x10);
  REFUSES(kValue, cuMemPoolImportPointer, nullptr, pool, &data);
  REFUSES(kValue, cuMemPoolImportPointer, &pointer, nullptr, &data);
  REFUSES(kValue, cuMemPoolImportPointer, &pointer, pool, nullptr);
  REFUSES(kValue, cuMemPoolImportPointer, &pointer, pool, &data);  // it was not imported
  EXPECT_EQ(imported, nullptr);
  EXPECT_EQ(pointer, 0u);
  EXPECT_EQ(fd, -1);
}

TEST_F(ErrorsSharingTest, SettingsOfPools) {
  CUmemoryPool pool = nullptr;
  uint64_t value = 1;
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccess_flags flags = {};
  CUmemAccessDesc access = {location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  constexpr auto kThreshold = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
  const auto no_such = NoSuch<CUmemPool_attribute>();
  TAKES(cuDeviceGetDefaultMemPool, &pool, 0);
  REFUSES(kValue, cuMemPoolGetAttribute, nullptr, kThreshold, &value);
  REFUSES(kValue, cuMemPoolGetAttribute, pool, kThreshold, nullptr);
  REFUSES(kValue, cuMemPoolGetAttribute, pool, no_such, &value);
  REFUSES(kValue, cuMemPoolSetAttribute, nullptr, kThreshold, &value);
  REFUSES(kValue, cuMemPoolSetAttribute, pool, kThreshold, nullptr);
  REFUSES(kValue, cuMemPoolSetAttribute, pool, no_such, &value);
  REFUSES(kValue, cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value);
  REFUSES(kValue, cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value);  // 0 only
  REFUSES(kValue, cuMemPoolGetAccess, nullptr, pool, &location);
  REFUSES(kValue, cuMemPoolGetAccess, &flags, nullptr, &location);
  REFUSES(kValue, cuMemPoolGetAccess, &flags, pool, nullptr);
  location.id = kNoDevice;
  REFUSES(kDeviceOrValue, cuMemPoolGetAccess, &flags, pool, &location);
  REFUSES(kValue, cuMemPoolSetAccess, nullptr, &access, 1);
  REFUSES(kValue, cuMemPoolSetAccess, pool, nullptr, 1);
  access.location = location;
  REFUSES(kDeviceOrValue, cuMemPoolSetAccess, pool, &access, 1);
  access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  REFUSES(kValue, cuMemPoolSetAccess, pool, &access, 1);  // a device reaches its own
}

TEST_F(ErrorsSharingTest, AllocatingInStreams) {
  CUdeviceptr pointer = 0;
  CUmemoryPool pool = nullptr;
  TAKES(cuDeviceGetDefaultMemPool, &pool, 0);
  REFUSES(kValue, cuMemAllocAsync, nullptr, 64, nullptr);
  TAKES(cuMemAllocAsync, &pointer, 0, nullptr);
  REFUSES(kTooMuch, cuMemAllocAsync, &pointer, kAbsurd, nullptr);
  REFUSES(kValue, cuMemAllocFromPoolAsync, nullptr, 64, pool, nullptr);
  TAKES(cuMemAllocFromPoolAsync, &pointer, 0, pool, nullptr);
  REFUSES(kValue, cuMemAllocFromPoolAsync, &pointer, 64, nullptr, nullptr);
  EXPECT_EQ(pointer, 0u);
  REFUSES(kValue, cuMemFreeAsync, 0x10, nullptr);
  const CUdeviceptr plain = Allocate(64);
  TAKES(cuMemFreeAsync, plain, nullptr);  // not a pool's
  REFUSES(kValue, cuMemFree_v2, plain);
  TAKES(cuMemAllocAsync, &pointer, 64, nullptr);
  TAKES(cuMemFreeAsync, pointer, nullptr);
  REFUSES(kValue, cuMemFreeAsync, pointer, nullptr);
  WithoutContext([&] {
    REFUSES(kContext, cuMemAllocAsync, &pointer, 64, nullptr);
    REFUSES(kContext, cuMemAllocFromPoolAsync, &pointer, 64, pool, nullptr);
    REFUSES(kContext, cuMemFreeAsync, 0x10, nullptr);
  });
}

TEST_F(ErrorsSharingTest, ManagedMemory) {
  int has = 0;
  ASSERT_CU(Cu().cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0));
  if (has == 0) GTEST_SKIP() << "the device has no managed memory";
  CUdeviceptr pointer = 0;
  int answer = 0;
  REFUSES(kValue, cuMemAllocManaged, nullptr, kBytes, CU_MEM_ATTACH_GLOBAL);
  REFUSES(kValue, cuMemAllocManaged, &pointer, 0, CU_MEM_ATTACH_GLOBAL);
  REFUSES(kValue, cuMemAllocManaged, &pointer, kBytes, 0);
  REFUSES(kValue, cuMemAllocManaged, &pointer, kBytes, CU_MEM_ATTACH_SINGLE);
  REFUSES(kTooMuch, cuMemAllocManaged, &pointer, kAbsurd, CU_MEM_ATTACH_GLOBAL);
  const CUdeviceptr block = Allocate(kBytes);  // not managed
  const auto mostly = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
  REFUSES(kValueOrDevice, cuMemPrefetchAsync, block, kBytes, 0, nullptr);
  REFUSES(kValueOrDevice, cuMemAdvise, block, kBytes, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
  REFUSES(kValue, cuMemRangeGetAttribute, &answer, sizeof(answer), mostly, block, kBytes);
  REFUSES(kValue, cuStreamAttachMemAsync, nullptr, block, 0, CU_MEM_ATTACH_GLOBAL);
  TAKES(cuMemAllocManaged, &pointer, kBytes, CU_MEM_ATTACH_GLOBAL);
  REFUSES(kDeviceOrValue, cuMemPrefetchAsync, pointer, kBytes, kNoDevice, nullptr);
  REFUSES(kValueOrDevice, cuMemPrefetchAsync, pointer, 0, 0, nullptr);
  REFUSES(kValueOrDevice, cuMemPrefetchAsync, pointer, kAbsurd, 0, nullptr);
  REFUSES(kDeviceOrValue, cuMemPrefetchAsync_v2, pointer, kBytes,
          CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, kNoDevice}, 0, nullptr);
  REFUSES(kValueOrDevice, cuMemPrefetchAsync_v2, pointer, kBytes,
          CUmemLocation{CU_MEM_LOCATION_TYPE_INVALID, 0}, 0, nullptr);
  REFUSES(kValueOrDevice, cuMemPrefetchAsync_v2, pointer, kBytes,
          CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, 0}, 1, nullptr);
  REFUSES(kValue, cuMemAdvise, pointer, kBytes, NoSuch<CUmem_advise>(), 0);
  REFUSES(kDeviceOrValue, cuMemAdvise, pointer, kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY, kNoDevice);
  REFUSES(kValue, cuMemAdvise_v2, pointer, kBytes, NoSuch<CUmem_advise>(),
          CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, 0});
  REFUSES(kDeviceOrValue, cuMemAdvise_v2, pointer, kBytes, CU_MEM_ADVISE_SET_ACCESSED_BY,
          CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, kNoDevice});
  REFUSES(kValue, cuMemRangeGetAttribute, nullptr, sizeof(answer), mostly, pointer, kBytes);
  REFUSES(kValue, cuMemRangeGetAttribute, &answer, 3, mostly, pointer, kBytes);
  REFUSES(kValue, cuMemRangeGetAttribute, &answer, sizeof(answer), NoSuch<CUmem_range_attribute>(),
          pointer, kBytes);
  void* data[] = {&answer};
  size_t size = sizeof(answer);
  CUmem_range_attribute attribute = mostly;
  REFUSES(kValue, cuMemRangeGetAttributes, nullptr, &size, &attribute, 1, pointer, kBytes);
  REFUSES(kValue, cuMemRangeGetAttributes, data, nullptr, &attribute, 1, pointer, kBytes);
  REFUSES(kValue, cuMemRangeGetAttributes, data, &size, nullptr, 1, pointer, kBytes);
  REFUSES(kValue, cuMemRangeGetAttributes, data, &size, &attribute, 0, pointer, kBytes);
  REFUSES(kValue, cuStreamAttachMemAsync, nullptr, pointer, 0, 8);
  WithoutContext([&] {
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    REFUSES(kContext, cuMemPrefetchAsync, pointer, kBytes, 0, nullptr);
    REFUSES(kContext, cuMemPrefetchAsync_v2, pointer, kBytes, here, 0, nullptr);
    REFUSES(kContext, cuStreamAttachMemAsync, nullptr, pointer, 0, CU_MEM_ATTACH_GLOBAL);
  });
  TAKES(cuMemFree_v2, pointer);
}

TEST_F(ErrorsSharingTest, NoCurrentContext) {
  WithoutContext([&] {
    CUipcMemHandle handle = {};
    CUdeviceptr pointer = 0;
    CUipcEventHandle event_handle = {};
    CUevent event = nullptr;
    constexpr unsigned int kLazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    REFUSES(kContext, cuMemAllocManaged, &pointer, 4096, CU_MEM_ATTACH_GLOBAL);
    REFUSES(kContext, cuIpcOpenMemHandle, &pointer, handle, kLazy);
    REFUSES(kContext, cuIpcOpenMemHandle_v2, &pointer, handle, kLazy);
    REFUSES(kContext, cuIpcOpenEventHandle, &event, event_handle);
  });
}

}  // namespace
}  // namespace tandem::driver_test
