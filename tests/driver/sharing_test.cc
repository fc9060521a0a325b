// Memory that two processes, or two names in one, share.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/driver/fixture.h"
#include "tests/driver/other_process.h"

namespace tandem::driver_test {
namespace {

using SharingTest = DriverTest;

constexpr size_t kSharedBytes = 3 << 20;
constexpr const char* kHandle = "TANDEM_TEST_IPC_HANDLE";
constexpr const char* kDescriptor = "TANDEM_TEST_DESCRIPTOR";

// Looks for the pattern of kSharedBytes at `pointer`, and leaves another.
void ReadAndAnswer(CUdeviceptr pointer) {
  std::vector<uint8_t> seen(kSharedBytes);
  ASSERT_CU(Cu().cuMemcpyDtoH_v2(seen.data(), pointer, kSharedBytes));
  EXPECT_EQ(seen, Pattern(kSharedBytes, 51));
  const auto answer = Pattern(kSharedBytes, 52);
  ASSERT_CU(Cu().cuMemcpyHtoD_v2(pointer, answer.data(), kSharedBytes));
}

// In a process one context of each device may have it open.
void OpenInASecondContext(const CUipcMemHandle& handle) {
  CUcontext second = nullptr;
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuCtxCreate_v2(&second, 0, 0));
  const CUresult opened =
      Cu().cuIpcOpenMemHandle_v2(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  EXPECT_NE(opened, CUDA_SUCCESS);
  // With what, the reference does not say.
  if (DriverTest::OnSoftwareGpu()) EXPECT_CU(CUDA_ERROR_ALREADY_MAPPED, opened);
  EXPECT_EQ(pointer, 0u);
  ASSERT_CU(Cu().cuCtxDestroy_v2(second));
}

TEST(Other, DISABLED_OpensAHandle) {
  CUcontext context = nullptr;
  ASSERT_CU(Cu().cuInit(0));
  ASSERT_CU(Cu().cuCtxCreate_v2(&context, 0, 0));
  const auto handle = Given<CUipcMemHandle>(kHandle);
  CUdeviceptr pointer = 0, again = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuIpcOpenMemHandle_v2(&pointer, handle, 99));
  ASSERT_CU(Cu().cuIpcOpenMemHandle_v2(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  ASSERT_CU(Cu().cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_EQ(again, pointer);
  OpenInASecondContext(handle);
  ReadAndAnswer(pointer);
  EXPECT_NE(Cu().cuMemFree_v2(pointer), CUDA_SUCCESS);  // it is not this process's
  ASSERT_CU(Cu().cuIpcCloseMemHandle(pointer));
  ASSERT_CU(Cu().cuIpcCloseMemHandle(pointer));
  EXPECT_NE(Cu().cuIpcCloseMemHandle(pointer), CUDA_SUCCESS);
  std::vector<uint8_t> byte(1);
  EXPECT_NE(Cu().cuMemcpyDtoH_v2(byte.data(), pointer, 1), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuCtxDestroy_v2(context));
  OtherProcess::TellTheEnd();
}

TEST_F(SharingTest, AHandleOpensInAnotherProcess) {
  const CUdeviceptr pointer = Allocate(kSharedBytes);
  Write(pointer, Pattern(kSharedBytes, 51));
  CUipcMemHandle handle = {};
  ASSERT_CU(Cu().cuIpcGetMemHandle(&handle, pointer));
  CUdeviceptr here = 0;  // where it came from, it is of no use
  EXPECT_NE(Cu().cuIpcOpenMemHandle_v2(&here, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_SUCCESS);
  OtherProcess other("Other.DISABLED_OpensAHandle", {{kHandle, InHex(&handle, sizeof(handle))}});
  EXPECT_TRUE(other.EndsWell());
  EXPECT_EQ(Read(pointer, kSharedBytes), Pattern(kSharedBytes, 52));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuIpcGetMemHandle(nullptr, pointer));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuIpcGetMemHandle(&handle, 0x10));
}

TEST_F(SharingTest, ManagedMemoryHasNoHandle) {
  CUdeviceptr managed = 0;
  CUipcMemHandle handle = {};
  int capable = -1;
  if (Cu().cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS) {
    GTEST_SKIP() << "the device has no managed memory";
  }
  EXPECT_NE(Cu().cuIpcGetMemHandle(&handle, managed), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                       managed));
  EXPECT_EQ(capable, 0);
  ASSERT_CU(Cu().cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                       Allocate(4096)));
  EXPECT_EQ(capable, 1);
}

// Addresses for a handle of `bytes`, with access.
CUdeviceptr Place(CUmemGenericAllocationHandle handle, size_t bytes) {
  CUdeviceptr pointer = 0;
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAddressReserve(&pointer, bytes, 0, 0, 0));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemMap(pointer, bytes, 0, handle, 0));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemSetAccess(pointer, bytes, &access, 1));
  return pointer;
}

void Unplace(CUdeviceptr pointer, size_t bytes) {
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemUnmap(pointer, bytes));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAddressFree(pointer, bytes));
}

TEST(Other, DISABLED_ImportsADescriptor) {
  CUcontext context = nullptr;
  ASSERT_CU(Cu().cuInit(0));
  ASSERT_CU(Cu().cuCtxCreate_v2(&context, 0, 0));
  const char* text = std::getenv(kDescriptor);
  ASSERT_NE(text, nullptr);
  CUmemGenericAllocationHandle handle = 0;
  const intptr_t fd = std::atoi(text);
  ASSERT_CU(Cu().cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(fd),
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  const CUdeviceptr pointer = Place(handle, 2 * kSharedBytes);
  ReadAndAnswer(pointer);
  ASSERT_CU(Cu().cuMemRelease(handle));
  Unplace(pointer, 2 * kSharedBytes);
  ASSERT_CU(Cu().cuCtxDestroy_v2(context));
  OtherProcess::TellTheEnd();
}

TEST_F(SharingTest, ADescriptorCarriesMemory) {
  int supported = 0;
  ASSERT_CU(Cu().cuDeviceGetAttribute(
      &supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
  if (supported == 0) GTEST_SKIP() << "the device's memory is not exported by descriptor";
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle private_one = 0, handle = 0, retained = 0, imported = 0;
  int fd = -1;
  ASSERT_CU(Cu().cuMemCreate(&private_one, 2 * kSharedBytes, &properties, 0));
  EXPECT_NE(Cu().cuMemExportToShareableHandle(&fd, private_one,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  ASSERT_CU(Cu().cuMemRelease(private_one));
  size_t before = 0, held = 0, after = 0, total = 0;
  ASSERT_CU(Cu().cuMemGetInfo_v2(&before, &total));
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  ASSERT_CU(Cu().cuMemCreate(&handle, 2 * kSharedBytes, &properties, 0));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&held, &total));
  EXPECT_TRUE(!HasTheDeviceAlone() || held + 2 * kSharedBytes <= before);
  const CUdeviceptr pointer = Place(handle, 2 * kSharedBytes);
  Write(pointer, Pattern(kSharedBytes, 51));
  uint64_t handle_types = 0;
  ASSERT_CU(Cu().cuPointerGetAttribute(&handle_types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                       pointer));
  EXPECT_EQ(handle_types, static_cast<uint64_t>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ASSERT_CU(
      Cu().cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  // Another process takes it over exec.
  const int open_over_exec = dup(fd);
  OtherProcess importer("Other.DISABLED_ImportsADescriptor",
                        {{kDescriptor, std::to_string(open_over_exec)}});
  EXPECT_TRUE(importer.EndsWell());
  close(open_over_exec);
  EXPECT_EQ(Read(pointer, kSharedBytes), Pattern(kSharedBytes, 52));
  // In the same process it is a second handle of the same memory.
  ASSERT_CU(Cu().cuMemImportFromShareableHandle(&imported,
                                                reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  const CUdeviceptr second = Place(imported, 2 * kSharedBytes);
  EXPECT_EQ(Read(second, kSharedBytes), Pattern(kSharedBytes, 52));
  ASSERT_CU(Cu().cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(pointer + 100)));
  EXPECT_EQ(retained, handle);
  ASSERT_CU(Cu().cuMemRelease(retained));
  ASSERT_CU(Cu().cuMemRelease(handle));
  ASSERT_CU(Cu().cuMemRelease(imported));
  Unplace(pointer, 2 * kSharedBytes);
  Unplace(second, 2 * kSharedBytes);
  ASSERT_CU(Cu().cuMemGetInfo_v2(&after, &total));
  EXPECT_TRUE(IsAbout(after, before)) << after << " after, " << before << " before";
  EXPECT_NE(Cu().cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(pointer)),
            CUDA_SUCCESS);
  const int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_NE(Cu().cuMemImportFromShareableHandle(
                &imported, reinterpret_cast<void*>(static_cast<intptr_t>(other)),
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  close(other);
}

TEST(Other, DISABLED_WaitsForAnEvent) {
  CUcontext context = nullptr;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuInit(0));
  ASSERT_CU(Cu().cuCtxCreate_v2(&context, 0, 0));
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuMemAlloc_v2(&pointer, 4096));
  ASSERT_CU(Cu().cuIpcOpenEventHandle(&event, Given<CUipcEventHandle>(kHandle)));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventQuery(event));
  ASSERT_CU(Cu().cuStreamWaitEvent(stream, event, 0));
  ASSERT_CU(Cu().cuMemsetD8Async(pointer, 7, 4096, stream));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(stream));
  OtherProcess::Tell();
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(stream));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventSynchronize(event));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventQuery(event));
  // What it records here counts there.
  for (int i = 0; i < 200; ++i) ASSERT_CU(Cu().cuEventRecord(event, stream));
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventQuery(event));
  ASSERT_CU(Cu().cuEventDestroy_v2(event));
  ASSERT_CU(Cu().cuCtxDestroy_v2(context));
  OtherProcess::TellTheEnd();
}

// The current context is of the last device, the event of the first.
TEST(Other, DISABLED_OpensAnEventOfAnotherDevice) {
  int count = 0;
  CUcontext context = nullptr;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuInit(0));
  ASSERT_CU(Cu().cuDeviceGetCount(&count));
  ASSERT_CU(Cu().cuCtxCreate_v2(&context, 0, count - 1));
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuIpcOpenEventHandle(&event, Given<CUipcEventHandle>(kHandle)));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventQuery(event));
  ASSERT_CU(Cu().cuStreamWaitEvent(stream, event, 0));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(stream));
  OtherProcess::Tell();
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(stream));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventSynchronize(event));
  ASSERT_CU(Cu().cuEventDestroy_v2(event));
  ASSERT_CU(Cu().cuCtxDestroy_v2(context));
  OtherProcess::TellTheEnd();
}

// Two names of one event: a wait by one is for the work that the other recorded.
TEST(Other, DISABLED_OpensAnEventTwice) {
  CUcontext context = nullptr;
  CUevent first = nullptr, second = nullptr;
  CUstream records = nullptr, waits = nullptr;
  ASSERT_CU(Cu().cuInit(0));
  ASSERT_CU(Cu().cuCtxCreate_v2(&context, 0, 0));
  ASSERT_CU(Cu().cuStreamCreate(&records, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuStreamCreate(&waits, CU_STREAM_NON_BLOCKING));
  const auto handle = Given<CUipcEventHandle>(kHandle);
  ASSERT_CU(Cu().cuIpcOpenEventHandle(&first, handle));
  ASSERT_CU(Cu().cuIpcOpenEventHandle(&second, handle));
  {
    Door door;
    door.HoldIn(records);
    ASSERT_CU(Cu().cuEventRecord(first, records));
    EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventQuery(second));
    ASSERT_CU(Cu().cuStreamWaitEvent(waits, second, 0));
    EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(waits));
    // One that is gone takes nothing along.
    ASSERT_CU(Cu().cuEventDestroy_v2(first));
    ASSERT_CU(Cu().cuIpcOpenEventHandle(&first, handle));
    EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventQuery(first));
  }
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(waits));
  // Each may be recorded, more often than a few places would hold.
  for (int i = 0; i < 200; ++i) {
    ASSERT_CU(Cu().cuEventRecord(i % 2 == 0 ? first : second, records));
  }
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventSynchronize(first));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventSynchronize(second));
  ASSERT_CU(Cu().cuEventDestroy_v2(first));
  ASSERT_CU(Cu().cuEventDestroy_v2(second));
  ASSERT_CU(Cu().cuCtxDestroy_v2(context));
  OtherProcess::TellTheEnd();
}

class IpcEventTest : public SharingTest {
 protected:
  void SetUp() override {
    SharingTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const unsigned int flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    const CUresult made = Cu().cuEventCreate(&event_, flags);
    if (made == CUDA_ERROR_NOT_SUPPORTED) GTEST_SKIP() << "the device's events are not shared";
    ASSERT_CU(made);
    ASSERT_CU(Cu().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    ASSERT_CU(Cu().cuIpcGetEventHandle(&handle_, event_));
  }

  std::map<std::string, std::string> Variables() const {
    return {{kHandle, InHex(&handle_, sizeof(handle_))}};
  }

  CUevent event_ = nullptr;
  CUstream stream_ = nullptr;
  CUipcEventHandle handle_ = {};
};

TEST_F(IpcEventTest, OneProcessWaitsForAnothersWork) {
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventQuery(event_));  // never recorded
  Door door;
  door.HoldIn(stream_);
  ASSERT_CU(Cu().cuEventRecord(event_, stream_));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventQuery(event_));
  OtherProcess other("Other.DISABLED_WaitsForAnEvent", Variables());
  EXPECT_TRUE(other.Hear());
  door.Open();
  EXPECT_TRUE(other.EndsWell());
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventQuery(event_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventSynchronize(event_));
  ASSERT_CU(Cu().cuStreamWaitEvent(stream_, event_, 0));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(stream_));
  // Recorded here again, it is this process's.
  for (int i = 0; i < 200; ++i) ASSERT_CU(Cu().cuEventRecord(event_, stream_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventSynchronize(event_));
  ASSERT_CU(Cu().cuEventDestroy_v2(event_));
}

TEST_F(IpcEventTest, AContextOfAnotherDeviceMayWaitForIt) {
  int count = 0;
  ASSERT_CU(Cu().cuDeviceGetCount(&count));
  if (count < 2) GTEST_SKIP() << "there is only one device";
  Door door;
  door.HoldIn(stream_);
  ASSERT_CU(Cu().cuEventRecord(event_, stream_));
  OtherProcess other("Other.DISABLED_OpensAnEventOfAnotherDevice", Variables());
  EXPECT_TRUE(other.Hear());
  door.Open();
  EXPECT_TRUE(other.EndsWell());
}

TEST_F(IpcEventTest, AProcessMayOpenItTwice) {
  OtherProcess other("Other.DISABLED_OpensAnEventTwice", Variables());
  EXPECT_TRUE(other.EndsWell());
}

TEST_F(IpcEventTest, RefusesNonsense) {
  CUevent plain = nullptr, opened = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuEventCreate(&plain, CU_EVENT_INTERPROCESS));
  ASSERT_CU(Cu().cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
  EXPECT_NE(Cu().cuIpcGetEventHandle(&handle_, plain), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuIpcOpenEventHandle(&opened, handle_), CUDA_SUCCESS);  // in its own process
  EXPECT_NE(Cu().cuIpcOpenEventHandle(&opened, CUipcEventHandle{}), CUDA_SUCCESS);
  float milliseconds = 0;
  ASSERT_CU(Cu().cuEventRecord(event_, stream_));
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, Cu().cuEventElapsedTime(&milliseconds, event_, event_));
}

TEST(Other, DISABLED_RecordsAndNeverGetsThere) {
  CUcontext context = nullptr;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuInit(0));
  ASSERT_CU(Cu().cuCtxCreate_v2(&context, 0, 0));
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuIpcOpenEventHandle(&event, Given<CUipcEventHandle>(kHandle)));
  ASSERT_CU(Cu().cuLaunchHostFunc(
      stream, [](void*) { pause(); }, nullptr));
  ASSERT_CU(Cu().cuEventRecord(event, stream));
  OtherProcess::Tell();
  pause();
}

TEST_F(IpcEventTest, NobodyWaitsForTheDead) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "a card may wait for ever";
  OtherProcess other("Other.DISABLED_RecordsAndNeverGetsThere", Variables());
  ASSERT_TRUE(other.Hear());
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventQuery(event_));
  ASSERT_CU(Cu().cuStreamWaitEvent(stream_, event_, 0));
  // While it is stopped, it holds up only streams that wait for it.
  ASSERT_EQ(kill(other.pid(), SIGSTOP), 0);
  CUdeviceptr out = Allocate(4);
  ASSERT_CU(Cu().cuMemsetD32_v2(out, 3, 1));
  ASSERT_CU(Cu().cuStreamSynchronize(nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(stream_));
  ASSERT_TRUE(other.DiesOfAKill());
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(stream_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventSynchronize(event_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventQuery(event_));
}

}  // namespace
}  // namespace tandem::driver_test
