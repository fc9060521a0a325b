// What another process has shared, when that process has ended.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <optional>

#include "tests/driver/fixture.h"
#include "tests/driver/other_process.h"

namespace tandem::driver_test {
namespace {

constexpr size_t kEndBytes = 5000;
constexpr const char* kFile = "TANDEM_TEST_HANDLES";

struct Handles {
  CUipcMemHandle memory = {};
  CUipcEventHandle reached = {}, unreached = {};
};

TEST(Other, DISABLED_SharesAndIsKilled) {
  CUcontext context = nullptr;
  CUdeviceptr pointer = 0;
  CUstream held = nullptr;
  CUevent reached = nullptr, unreached = nullptr;
  Handles handles;
  const auto pattern = Pattern(kEndBytes, 91);
  const unsigned int flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  ASSERT_CU(Cu().cuInit(0));
  ASSERT_CU(Cu().cuCtxCreate_v2(&context, 0, 0));
  ASSERT_CU(Cu().cuMemAlloc_v2(&pointer, kEndBytes));
  ASSERT_CU(Cu().cuMemcpyHtoD_v2(pointer, pattern.data(), kEndBytes));
  // Before there is work that does not end, which Tandem would wait for.
  ASSERT_CU(Cu().cuIpcGetMemHandle(&handles.memory, pointer));
  ASSERT_CU(Cu().cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuEventCreate(&reached, flags));
  ASSERT_CU(Cu().cuEventCreate(&unreached, flags));
  ASSERT_CU(Cu().cuEventRecord(reached, held));
  ASSERT_CU(Cu().cuEventSynchronize(reached));
  ASSERT_CU(Cu().cuLaunchHostFunc(
      held, [](void*) { pause(); }, nullptr));
  ASSERT_CU(Cu().cuEventRecord(unreached, held));
  ASSERT_CU(Cu().cuIpcGetEventHandle(&handles.reached, reached));
  ASSERT_CU(Cu().cuIpcGetEventHandle(&handles.unreached, unreached));
  const char* file = std::getenv(kFile);
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(pwrite(std::atoi(file), &handles, sizeof(handles), 0),
            static_cast<ssize_t>(sizeof(handles)));
  OtherProcess::Tell();
  pause();
}

// Another process that shares memory and events and lives until it is killed.
class SharingEndTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (!OnSoftwareGpu()) GTEST_SKIP() << "of a card nobody says what becomes of it";
    free_before_ = FreeBytes();
    file_ = memfd_create("handles", 0);  // open over exec
    other_.emplace("Other.DISABLED_SharesAndIsKilled",
                   std::map<std::string, std::string>{{kFile, std::to_string(file_)}});
    ASSERT_TRUE(other_->Hear());
    ASSERT_EQ(pread(file_, &handles_, sizeof(handles_), 0), static_cast<ssize_t>(sizeof(handles_)));
  }
  void TearDown() override {
    if (file_ >= 0) close(file_);
    DriverTest::TearDown();
  }
  static size_t FreeBytes() {
    size_t free = 0, total = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemGetInfo_v2(&free, &total));
    return free;
  }
  CUresult Open(CUdeviceptr* pointer) const {
    return Cu().cuIpcOpenMemHandle_v2(pointer, handles_.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  }

  int file_ = -1;
  Handles handles_;
  size_t free_before_ = 0;
  std::optional<OtherProcess> other_;
};

TEST_F(SharingEndTest, MemoryStaysWithWhoeverHasItOpen) {
  CUdeviceptr pointer = 0, again = 0;
  ASSERT_CU(Open(&pointer));
  EXPECT_TRUE(!HasTheDeviceAlone() || FreeBytes() < free_before_);
  ASSERT_TRUE(other_->DiesOfAKill());
  EXPECT_TRUE(IsAbout(FreeBytes(), free_before_));  // no process is charged for it any more
  EXPECT_EQ(Read(pointer, kEndBytes), Pattern(kEndBytes, 91));
  uint32_t value = 0x0302'0100;
  ASSERT_CU(Launch(Kernel("store"), 1, 1, nullptr, {&pointer, &value}));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(Read(pointer, 4), (std::vector<uint8_t>{0, 1, 2, 3}));
  // Memory that is allocated now is other memory.
  const CUdeviceptr other = Allocate(kEndBytes);
  ASSERT_CU(Cu().cuMemsetD8_v2(other, 0, kEndBytes));
  EXPECT_EQ(Read(pointer, 4), (std::vector<uint8_t>{0, 1, 2, 3}));
  ASSERT_CU(Open(&again));
  EXPECT_EQ(again, pointer);
  ASSERT_CU(Cu().cuIpcCloseMemHandle(pointer));
  ASSERT_CU(Cu().cuIpcCloseMemHandle(pointer));
  EXPECT_NE(Open(&again), CUDA_SUCCESS);  // no process has it any more
}

TEST_F(SharingEndTest, MemoryGoesWithItsProcess) {
  ASSERT_TRUE(other_->DiesOfAKill());
  EXPECT_TRUE(IsAbout(FreeBytes(), free_before_));
  CUdeviceptr pointer = 0;
  EXPECT_NE(Open(&pointer), CUDA_SUCCESS);
  EXPECT_EQ(pointer, 0u);
  if (OnSoftwareGpu()) {  // the reference does not say which of its errors this is
    EXPECT_CU(
        CUDA_ERROR_MAP_FAILED,
        Cu().cuIpcOpenMemHandle_v2(&pointer, handles_.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  }
}

TEST_F(SharingEndTest, EventsAreReachedAndGoOn) {
  CUevent reached = nullptr, unreached = nullptr, more = nullptr;
  CUstream waits = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&waits, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuIpcOpenEventHandle(&reached, handles_.reached));
  ASSERT_CU(Cu().cuIpcOpenEventHandle(&unreached, handles_.unreached));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventQuery(reached));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventQuery(unreached));
  ASSERT_CU(Cu().cuStreamWaitEvent(waits, unreached, 0));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(waits));
  ASSERT_TRUE(other_->DiesOfAKill());
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(waits));
  for (const CUevent event : {reached, unreached}) {
    EXPECT_CU(CUDA_SUCCESS, Cu().cuEventSynchronize(event));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuEventQuery(event));
    // It is an event as before to those that have it.
    {
      Door door;
      door.HoldIn(waits);
      ASSERT_CU(Cu().cuEventRecord(event, waits));
      EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventQuery(event));
    }
    EXPECT_CU(CUDA_SUCCESS, Cu().cuEventSynchronize(event));
    ASSERT_CU(Cu().cuEventDestroy_v2(event));
  }
  EXPECT_NE(Cu().cuIpcOpenEventHandle(&more, handles_.reached), CUDA_SUCCESS);
  if (OnSoftwareGpu()) {
    EXPECT_CU(CUDA_ERROR_MAP_FAILED, Cu().cuIpcOpenEventHandle(&more, handles_.reached));
  }
  ASSERT_CU(Cu().cuStreamDestroy_v2(waits));
}

}  // namespace
}  // namespace tandem::driver_test
