// Memory that two processes, or two names in one, share.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

using SharingTest = DriverTest;

constexpr size_t kBytes = 3 << 20;
constexpr const char* kHandle = "TANDEM_TEST_IPC_HANDLE";
constexpr const char* kDescriptor = "TANDEM_TEST_DESCRIPTOR";

// Runs one of the tests below that are no tests by themselves, in a new process.
pid_t StartOther(const char* filter) {
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(STDERR_FILENO, STDOUT_FILENO);  // whoever reads this test's results does not want its
    execl("/proc/self/exe", "driver_test", "--gtest_also_run_disabled_tests", filter,
          static_cast<char*>(nullptr));
    _exit(127);
  }
  return pid;
}

int ExitOf(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int RunOther(const char* filter) {
  return ExitOf(StartOther(filter));
}

// A process that says so, in one byte, when it has come to a certain point.
constexpr const char* kPipe = "TANDEM_TEST_PIPE";

class Teller {
 public:
  Teller() {
    EXPECT_EQ(pipe(ends_), 0);
    fcntl(ends_[0], F_SETFD, FD_CLOEXEC);
    setenv(kPipe, std::to_string(ends_[1]).c_str(), 1);
  }
  ~Teller() { close(ends_[0]); }
  Teller(const Teller&) = delete;
  Teller& operator=(const Teller&) = delete;
  // False if the process ended without a word.
  bool Hear() {
    close(ends_[1]);
    char byte = 0;
    return read(ends_[0], &byte, 1) == 1;
  }
  static void Tell() {
    const char* text = std::getenv(kPipe);
    ASSERT_NE(text, nullptr);
    EXPECT_EQ(write(std::atoi(text), "x", 1), 1);
  }

 private:
  int ends_[2] = {-1, -1};
};

std::string InHex(const void* data, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<const unsigned char*>(data)[i]);
    text += two;
  }
  return text;
}

// Looks for the pattern of kBytes at `pointer`, and leaves another.
void ReadAndAnswer(CUdeviceptr pointer) {
  std::vector<uint8_t> seen(kBytes);
  ASSERT_CU(Cu().cuMemcpyDtoH_v2(seen.data(), pointer, kBytes));
  EXPECT_EQ(seen, Pattern(kBytes, 51));
  const auto answer = Pattern(kBytes, 52);
  ASSERT_CU(Cu().cuMemcpyHtoD_v2(pointer, answer.data(), kBytes));
}

template <typename Handle>
Handle HandleFromEnvironment() {
  Handle handle = {};
  const char* text = std::getenv(kHandle);
  EXPECT_NE(text, nullptr);
  for (char& byte : handle.reserved) {
    byte = static_cast<char>(std::strtoul(std::string(text, 2).c_str(), nullptr, 16));
    text += 2;
  }
  return handle;
}

TEST(Other, DISABLED_OpensAHandle) {
  CUcontext context = nullptr;
  ASSERT_CU(Cu().cuInit(0));
  ASSERT_CU(Cu().cuCtxCreate_v2(&context, 0, 0));
  const auto handle = HandleFromEnvironment<CUipcMemHandle>();
  CUdeviceptr pointer = 0, again = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuIpcOpenMemHandle_v2(&pointer, handle, 99));
  ASSERT_CU(Cu().cuIpcOpenMemHandle_v2(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  ASSERT_CU(Cu().cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_EQ(again, pointer);
  ReadAndAnswer(pointer);
  EXPECT_NE(Cu().cuMemFree_v2(pointer), CUDA_SUCCESS);  // it is not this process's
  ASSERT_CU(Cu().cuIpcCloseMemHandle(pointer));
  ASSERT_CU(Cu().cuIpcCloseMemHandle(pointer));
  EXPECT_NE(Cu().cuIpcCloseMemHandle(pointer), CUDA_SUCCESS);
  std::vector<uint8_t> byte(1);
  EXPECT_NE(Cu().cuMemcpyDtoH_v2(byte.data(), pointer, 1), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuCtxDestroy_v2(context));
}

TEST_F(SharingTest, AHandleOpensInAnotherProcess) {
  const CUdeviceptr pointer = Allocate(kBytes);
  Write(pointer, Pattern(kBytes, 51));
  CUipcMemHandle handle = {};
  ASSERT_CU(Cu().cuIpcGetMemHandle(&handle, pointer));
  CUdeviceptr here = 0;  // where it came from, it is of no use
  EXPECT_NE(Cu().cuIpcOpenMemHandle_v2(&here, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_SUCCESS);
  setenv(kHandle, InHex(&handle, sizeof(handle)).c_str(), 1);
  EXPECT_EQ(RunOther("--gtest_filter=Other.DISABLED_OpensAHandle"), 0);
  EXPECT_EQ(Read(pointer, kBytes), Pattern(kBytes, 52));
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
  const CUdeviceptr pointer = Place(handle, 2 * kBytes);
  ReadAndAnswer(pointer);
  ASSERT_CU(Cu().cuMemRelease(handle));
  Unplace(pointer, 2 * kBytes);
  ASSERT_CU(Cu().cuCtxDestroy_v2(context));
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
  ASSERT_CU(Cu().cuMemCreate(&private_one, 2 * kBytes, &properties, 0));
  EXPECT_NE(Cu().cuMemExportToShareableHandle(&fd, private_one,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  ASSERT_CU(Cu().cuMemRelease(private_one));
  size_t before = 0, held = 0, after = 0, total = 0;
  ASSERT_CU(Cu().cuMemGetInfo_v2(&before, &total));
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  ASSERT_CU(Cu().cuMemCreate(&handle, 2 * kBytes, &properties, 0));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&held, &total));
  EXPECT_LE(held + 2 * kBytes, before);
  const CUdeviceptr pointer = Place(handle, 2 * kBytes);
  Write(pointer, Pattern(kBytes, 51));
  uint64_t handle_types = 0;
  ASSERT_CU(Cu().cuPointerGetAttribute(&handle_types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                       pointer));
  EXPECT_EQ(handle_types, static_cast<uint64_t>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ASSERT_CU(
      Cu().cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  // Another process takes it over exec.
  const int open_over_exec = dup(fd);
  setenv(kDescriptor, std::to_string(open_over_exec).c_str(), 1);
  EXPECT_EQ(RunOther("--gtest_filter=Other.DISABLED_ImportsADescriptor"), 0);
  close(open_over_exec);
  EXPECT_EQ(Read(pointer, kBytes), Pattern(kBytes, 52));
  // In the same process it is a second handle of the same memory.
  ASSERT_CU(Cu().cuMemImportFromShareableHandle(&imported,
                                                reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  const CUdeviceptr second = Place(imported, 2 * kBytes);
  EXPECT_EQ(Read(second, kBytes), Pattern(kBytes, 52));
  ASSERT_CU(Cu().cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(pointer + 100)));
  EXPECT_EQ(retained, handle);
  ASSERT_CU(Cu().cuMemRelease(retained));
  ASSERT_CU(Cu().cuMemRelease(handle));
  ASSERT_CU(Cu().cuMemRelease(imported));
  Unplace(pointer, 2 * kBytes);
  Unplace(second, 2 * kBytes);
  ASSERT_CU(Cu().cuMemGetInfo_v2(&after, &total));
  EXPECT_EQ(after, before);
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
  ASSERT_CU(Cu().cuIpcOpenEventHandle(&event, HandleFromEnvironment<CUipcEventHandle>()));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventQuery(event));
  ASSERT_CU(Cu().cuStreamWaitEvent(stream, event, 0));
  ASSERT_CU(Cu().cuMemsetD8Async(pointer, 7, 4096, stream));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(stream));
  Teller::Tell();
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(stream));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventSynchronize(event));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventQuery(event));
  // What it records here counts there.
  for (int i = 0; i < 200; ++i) ASSERT_CU(Cu().cuEventRecord(event, stream));
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventQuery(event));
  ASSERT_CU(Cu().cuEventDestroy_v2(event));
  ASSERT_CU(Cu().cuCtxDestroy_v2(context));
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
    setenv(kHandle, InHex(&handle_, sizeof(handle_)).c_str(), 1);
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
  Teller teller;
  const pid_t other = StartOther("--gtest_filter=Other.DISABLED_WaitsForAnEvent");
  EXPECT_TRUE(teller.Hear());
  door.Open();
  EXPECT_EQ(ExitOf(other), 0);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventQuery(event_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventSynchronize(event_));
  ASSERT_CU(Cu().cuStreamWaitEvent(stream_, event_, 0));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(stream_));
  // Recorded here again, it is this process's.
  for (int i = 0; i < 200; ++i) ASSERT_CU(Cu().cuEventRecord(event_, stream_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventSynchronize(event_));
  ASSERT_CU(Cu().cuEventDestroy_v2(event_));
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
  ASSERT_CU(Cu().cuIpcOpenEventHandle(&event, HandleFromEnvironment<CUipcEventHandle>()));
  ASSERT_CU(Cu().cuLaunchHostFunc(
      stream, [](void*) { pause(); }, nullptr));
  ASSERT_CU(Cu().cuEventRecord(event, stream));
  Teller::Tell();
  pause();
}

TEST_F(IpcEventTest, NobodyWaitsForTheDead) {
  if (std::getenv("TANDEM_SOFT_DIR") == nullptr) GTEST_SKIP() << "a card may wait for ever";
  Teller teller;
  const pid_t other = StartOther("--gtest_filter=Other.DISABLED_RecordsAndNeverGetsThere");
  ASSERT_TRUE(teller.Hear());
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventQuery(event_));
  ASSERT_CU(Cu().cuStreamWaitEvent(stream_, event_, 0));
  // Stopped it holds up nobody but who waits for it.
  ASSERT_EQ(kill(other, SIGSTOP), 0);
  CUdeviceptr out = Allocate(4);
  ASSERT_CU(Cu().cuMemsetD32_v2(out, 3, 1));
  ASSERT_CU(Cu().cuStreamSynchronize(nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(stream_));
  ASSERT_EQ(kill(other, SIGKILL), 0);
  ExitOf(other);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(stream_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventSynchronize(event_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventQuery(event_));
}

}  // namespace
}  // namespace tandem::driver_test
