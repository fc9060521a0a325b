// Several devices in one program: what sets them apart, and what each has for itself.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <set>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

class DevicesTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_CU(Cu().cuDeviceGetCount(&count_));
    if (count_ < 2) GTEST_SKIP() << "there is only one device";
    CUcontext popped = nullptr;
    ASSERT_CU(Cu().cuCtxCreate_v2(&other_, 0, 1));
    ASSERT_CU(Cu().cuCtxPopCurrent_v2(&popped));
  }
  void TearDown() override {
    if (other_ != nullptr) EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxDestroy_v2(other_));
    DriverTest::TearDown();
  }
  static size_t TotalOf(CUdevice device) {
    size_t bytes = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuDeviceTotalMem_v2(&bytes, device));
    return bytes;
  }
  static size_t FreeIn(CUcontext context) {
    size_t free = 0, total = 0;
    const InContext current(context);
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemGetInfo_v2(&free, &total));
    return free;
  }

  CUcontext other_ = nullptr;
  int count_ = 0;
};

TEST_F(DevicesTest, EachHasItsOwnPlaceAndNumber) {
  std::set<std::string> uuids, places;
  for (CUdevice device = 0; device < count_; ++device) {
    CUuuid uuid = {};
    ASSERT_CU(Cu().cuDeviceGetUuid(&uuid, device));
    uuids.insert(std::string(uuid.bytes, sizeof(uuid.bytes)));
    char place[32] = {}, name[64] = {};
    int domain = -1, bus = -1, slot = -1;
    ASSERT_CU(Cu().cuDeviceGetName(name, sizeof(name), device));
    EXPECT_GT(std::strlen(name), 0u);
    ASSERT_CU(Cu().cuDeviceGetPCIBusId(place, sizeof(place), device));
    places.insert(place);
    CUdevice found = -1;
    ASSERT_CU(Cu().cuDeviceGetByPCIBusId(&found, place));
    EXPECT_EQ(found, device);
    ASSERT_CU(Cu().cuDeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, device));
    ASSERT_CU(Cu().cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device));
    ASSERT_CU(Cu().cuDeviceGetAttribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device));
    char spelled[32] = {};
    std::snprintf(spelled, sizeof(spelled), "%04x:%02x:%02x.0", domain, bus, slot);
    std::string lower = place;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    EXPECT_EQ(lower, spelled);
  }
  EXPECT_EQ(uuids.size(), static_cast<size_t>(count_));
  EXPECT_EQ(places.size(), static_cast<size_t>(count_));
}

TEST_F(DevicesTest, EachHasItsOwnMemory) {
  const size_t here = FreeIn(context_), there = FreeIn(other_);
  EXPECT_LE(here, TotalOf(0));
  EXPECT_LE(there, TotalOf(1));
  // The current context says whose memory it is.
  CUdeviceptr block = 0;
  {
    const InContext current(other_);
    block = Allocate(8 * kPage);
  }
  EXPECT_EQ(FreeIn(context_), here);
  EXPECT_LE(FreeIn(other_), there - 8 * kPage);
  int ordinal = -1;
  CUcontext context = nullptr;
  ASSERT_CU(Cu().cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, block));
  ASSERT_CU(Cu().cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, block));
  EXPECT_EQ(ordinal, 1);
  EXPECT_EQ(context, other_);
  // It comes back where it came from, whatever is current.
  ASSERT_CU(Cu().cuMemFree_v2(block));
  EXPECT_EQ(FreeIn(context_), here);
  EXPECT_EQ(FreeIn(other_), there);
}

TEST_F(DevicesTest, EachIsAsLargeAsItIs) {
  const bool first_is_larger = TotalOf(0) > TotalOf(1);
  const CUdevice larger = first_is_larger ? 0 : 1;
  const CUcontext context_of_larger = first_is_larger ? context_ : other_;
  const CUcontext context_of_smaller = first_is_larger ? other_ : context_;
  const size_t bytes = TotalOf(1 - larger) + kPage;
  CUdeviceptr pointer = 0;
  {
    const InContext current(context_of_smaller);
    EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemAlloc_v2(&pointer, bytes));
  }
  if (FreeIn(context_of_larger) < bytes) {
    GTEST_SKIP() << "the larger device has no more left than all of the other's";
  }
  const InContext current(context_of_larger);
  ASSERT_CU(Cu().cuMemAlloc_v2(&pointer, bytes));
  ASSERT_CU(Cu().cuMemFree_v2(pointer));
}

TEST_F(DevicesTest, AModuleRunsWhereItWasLoaded) {
  CUfunction store = nullptr;
  CUdeviceptr out = 0;
  uint32_t value = 6;
  {
    const InContext there(other_);
    out = Allocate(4);
    store = Kernel("store");
    ASSERT_CU(Launch(store, 1, 1, nullptr, {&out, &value}));
    EXPECT_EQ(Read(out, 1)[0], 6);
  }
  EXPECT_NE(Launch(store, 1, 1, nullptr, {&out, &value}), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tandem::driver_test
