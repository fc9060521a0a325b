// Initialisation, devices and names of errors.
#include <cstring>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

using InitTest = DriverTest;

TEST_F(InitTest, RefusesFlags) {
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuInit(1));
}

TEST_F(InitTest, SaysItsVersion) {
  int version = 0;
  ASSERT_CU(Cu().cuDriverGetVersion(&version));
  EXPECT_GE(version, 11000);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuDriverGetVersion(nullptr));
}

TEST_F(InitTest, NamesErrors) {
  const char* text = nullptr;
  ASSERT_CU(Cu().cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  ASSERT_CU(Cu().cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ(text, "out of memory");
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGetErrorName(static_cast<CUresult>(54321), &text));
}

TEST_F(InitTest, DescribesTheDevice) {
  int count = 0;
  ASSERT_CU(Cu().cuDeviceGetCount(&count));
  ASSERT_GE(count, 1);
  CUdevice device = -1;
  ASSERT_CU(Cu().cuDeviceGet(&device, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, Cu().cuDeviceGet(&device, count));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, Cu().cuDeviceGet(&device, -1));
  char name[64] = {};
  ASSERT_CU(Cu().cuDeviceGetName(name, sizeof(name), 0));
  EXPECT_GT(std::strlen(name), 0u);
  size_t bytes = 0;
  ASSERT_CU(Cu().cuDeviceTotalMem_v2(&bytes, 0));
  EXPECT_GE(bytes, size_t{2} << 20);
  int warp = 0, unified = 0;
  ASSERT_CU(Cu().cuDeviceGetAttribute(&warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
  ASSERT_CU(Cu().cuDeviceGetAttribute(&unified, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 0));
  EXPECT_EQ(warp, 32);
  EXPECT_EQ(unified, 1);
  CUuuid one = {}, two = {};
  ASSERT_CU(Cu().cuDeviceGetUuid(&one, 0));
  ASSERT_CU(Cu().cuDeviceGetUuid(&two, 0));
  EXPECT_EQ(std::memcmp(&one, &two, sizeof(one)), 0);
}

TEST_F(InitTest, KnowsNoAttributesBeyondTheLast) {
  int value = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(100'000), 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), 0));
}

TEST_F(InitTest, FindsTheDeviceByItsBus) {
  char id[32] = {};
  ASSERT_CU(Cu().cuDeviceGetPCIBusId(id, sizeof(id), 0));
  CUdevice device = -1;
  ASSERT_CU(Cu().cuDeviceGetByPCIBusId(&device, id));
  EXPECT_EQ(device, 0);
  const std::string full = id;  // domain:bus:device.function
  for (const std::string& form :
       {full.substr(0, full.rfind('.')), full.substr(full.find(':') + 1)}) {
    device = -1;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuDeviceGetByPCIBusId(&device, form.c_str()));
    EXPECT_EQ(device, 0) << form;
  }
  EXPECT_NE(Cu().cuDeviceGetByPCIBusId(&device, "ffff:ff:1f.7"), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuDeviceGetByPCIBusId(&device, ""), CUDA_SUCCESS);
  if (!OnSoftwareGpu()) return;  // a card's driver reads no further than it has to
  EXPECT_NE(Cu().cuDeviceGetByPCIBusId(&device, (full + "0").c_str()), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tandem::driver_test
