// What is refused, and how: initialisation, devices, contexts, settings, peers, the profiler.
#include <cstring>

#include "tests/driver/errors.h"
#include "tests/driver/other_process.h"

namespace tandem::driver_test {
namespace {

using ErrorsDeviceTest = ErrorsTest;

// Not a test by itself: what a program gets that has not called cuInit.
class NotInitialised : public ErrorsTest {
 protected:
  void SetUp() override {}
};

TEST_F(NotInitialised, DISABLED_EverythingIsRefused) {
  const Answers not_yet = {CUDA_ERROR_NOT_INITIALIZED};
  int number = 0;
  size_t bytes = 0;
  unsigned int flags = 0;
  char name[64] = {};
  CUuuid uuid = {};
  CUcontext context = nullptr;
  CUdeviceptr pointer = 0;
  void* host = nullptr;
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  REFUSES(not_yet, cuDeviceGetCount, &number);
  REFUSES(not_yet, cuDeviceGet, &number, 0);
  REFUSES(not_yet, cuDeviceGetName, name, sizeof(name), 0);
  REFUSES(not_yet, cuDeviceGetUuid, &uuid, 0);
  REFUSES(not_yet, cuDeviceTotalMem_v2, &bytes, 0);
  REFUSES(not_yet, cuDeviceGetAttribute, &number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0);
  REFUSES(not_yet, cuDeviceGetByPCIBusId, &number, "0000:00:00.0");
  REFUSES(not_yet, cuDeviceCanAccessPeer, &number, 0, 0);
  REFUSES(not_yet, cuDevicePrimaryCtxRetain, &context, 0);
  REFUSES(not_yet, cuDevicePrimaryCtxGetState, 0, &flags, &number);
  REFUSES(not_yet, cuCtxCreate_v2, &context, 0, 0);
  REFUSES(not_yet, cuCtxGetCurrent, &context);
  REFUSES(not_yet, cuCtxSetCurrent, nullptr);
  REFUSES(not_yet, cuCtxSynchronize);
  REFUSES(not_yet, cuModuleLoadData, &module, kKernels);
  REFUSES(not_yet, cuMemAlloc_v2, &pointer, 4096);
  REFUSES(not_yet, cuMemFree_v2, pointer);
  REFUSES(not_yet, cuMemGetInfo_v2, &bytes, &bytes);
  REFUSES(not_yet, cuMemHostAlloc, &host, 4096, 0);
  REFUSES(not_yet, cuMemcpyDtoD_v2, 4096, 8192, 4);
  REFUSES(not_yet, cuMemsetD8_v2, 4096, 0, 4);
  REFUSES(not_yet, cuStreamCreate, &stream, 0);
  REFUSES(not_yet, cuStreamSynchronize, nullptr);
  REFUSES(not_yet, cuEventCreate, &event, 0);
  REFUSES(not_yet, cuGraphCreate, &graph, 0);
  // These need no driver.
  const char* text = nullptr;
  TAKES(cuDriverGetVersion, &number);
  TAKES(cuGetErrorName, CUDA_ERROR_NOT_INITIALIZED, &text);
  OtherProcess::TellTheEnd();
}

TEST_F(ErrorsDeviceTest, BeforeInitialisation) {
  OtherProcess other("NotInitialised.DISABLED_EverythingIsRefused");
  EXPECT_TRUE(other.EndsWell());
}

TEST_F(ErrorsDeviceTest, LookUps) {
  const char* text = nullptr;
  void* function = nullptr;
  REFUSES(kValue, cuInit, 1);
  REFUSES(kValue, cuDriverGetVersion, nullptr);
  REFUSES(kValue, cuGetErrorName, NoSuch<CUresult>(), &text);
  REFUSES(kValue, cuGetErrorString, NoSuch<CUresult>(), &text);
  EXPECT_EQ(text, nullptr);
  REFUSES(kValue, cuGetErrorName, CUDA_SUCCESS, nullptr);
  REFUSES(kValue, cuGetErrorString, CUDA_SUCCESS, nullptr);
  REFUSES(kValue, cuGetProcAddress, nullptr, &function, 12000, 0);
  REFUSES(kValue, cuGetProcAddress, "cuInit", nullptr, 12000, 0);
  REFUSES(kNotFound, cuGetProcAddress, "cuNoSuchFunction", &function, 12000, 0);
  REFUSES(kValue, cuGetProcAddress, "cuInit", &function, 12000, 1 << 20);
  CUdriverProcAddressQueryResult status = {};
  REFUSES(kValue, cuGetProcAddress_v2, nullptr, &function, 12000, 0, &status);
  REFUSES(kValue, cuGetProcAddress_v2, "cuInit", nullptr, 12000, 0, &status);
  REFUSES(kValue, cuGetProcAddress_v2, "cuInit", &function, 12000, 1 << 20, &status);
  TAKES(cuGetProcAddress, "cuInit", &function, 12000, 0);
  EXPECT_NE(function, nullptr);
}

TEST_F(ErrorsDeviceTest, NoPlaceForADevicesAnswer) {
  CUdevice device = 0;
  char name[64] = {};
  REFUSES(kValue, cuDeviceGet, nullptr, 0);
  REFUSES(kValue, cuDeviceGetCount, nullptr);
  REFUSES(kValue, cuDeviceGetName, nullptr, 64, 0);
  REFUSES(kValue, cuDeviceGetName, name, 0, 0);
  REFUSES(kValue, cuDeviceGetUuid, nullptr, 0);
  REFUSES(kValue, cuDeviceGetUuid_v2, nullptr, 0);
  REFUSES(kValue, cuDeviceTotalMem_v2, nullptr, 0);
  REFUSES(kValue, cuDeviceGetAttribute, nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0);
  REFUSES(kValue, cuDeviceComputeCapability, nullptr, nullptr, 0);
  REFUSES(kValue, cuDeviceGetPCIBusId, nullptr, 64, 0);
  REFUSES(kValue, cuDeviceGetPCIBusId, name, 0, 0);
  REFUSES(kValue, cuDeviceGetByPCIBusId, nullptr, "0000:00:00.0");
  REFUSES(kValue, cuDeviceGetByPCIBusId, &device, nullptr);
  REFUSES(kValue, cuDeviceCanAccessPeer, nullptr, 0, 0);
  REFUSES(kValue, cuDeviceGetProperties, nullptr, 0);
  REFUSES(kValue, cuDeviceGetExecAffinitySupport, nullptr, 0, 0);
  REFUSES(kValue, cuDevicePrimaryCtxRetain, nullptr, 0);
  // Drivers differ in whether these are questions with no place for the answer.
  int active = 0;
  unsigned int flags = 0;
  REFUSES(kValueOrNone, cuDevicePrimaryCtxGetState, 0, nullptr, &active);
  REFUSES(kValueOrNone, cuDevicePrimaryCtxGetState, 0, &flags, nullptr);
}

TEST_F(ErrorsDeviceTest, NoSuchDevice) {
  int number = 0;
  size_t bytes = 0;
  unsigned int flags = 0;
  char name[64] = {};
  CUuuid uuid = {};
  CUdevprop properties = {};
  CUcontext context = nullptr;
  for (const CUdevice device : {kNoDevice, -1}) {
    REFUSES(kDevice, cuDeviceGet, &number, device);
    REFUSES(kDevice, cuDeviceGetName, name, sizeof(name), device);
    REFUSES(kDevice, cuDeviceGetUuid, &uuid, device);
    REFUSES(kDevice, cuDeviceGetUuid_v2, &uuid, device);
    REFUSES(kDevice, cuDeviceTotalMem_v2, &bytes, device);
    REFUSES(kDevice, cuDeviceGetAttribute, &number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
    REFUSES(kDevice, cuDeviceComputeCapability, &number, &number, device);
    REFUSES(kDevice, cuDeviceGetPCIBusId, name, sizeof(name), device);
    REFUSES(kDevice, cuDeviceGetProperties, &properties, device);
    REFUSES(kDevice, cuDeviceGetExecAffinitySupport, &number, 0, device);
    REFUSES(kDevice, cuDeviceCanAccessPeer, &number, 0, device);
    REFUSES(kDevice, cuDeviceCanAccessPeer, &number, device, 0);
    REFUSES(kDevice, cuDeviceGetP2PAttribute, &number, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0,
            device);
    REFUSES(kDevice, cuDevicePrimaryCtxRetain, &context, device);
    REFUSES(kDevice, cuDevicePrimaryCtxRelease, device);
    REFUSES(kDevice, cuDevicePrimaryCtxRelease_v2, device);
    REFUSES(kDevice, cuDevicePrimaryCtxSetFlags, device, 0);
    REFUSES(kDevice, cuDevicePrimaryCtxSetFlags_v2, device, 0);
    REFUSES(kDevice, cuDevicePrimaryCtxGetState, device, &flags, &number);
    REFUSES(kDevice, cuDevicePrimaryCtxReset, device);
    REFUSES(kDevice, cuDevicePrimaryCtxReset_v2, device);
    REFUSES(kDevice, cuCtxCreate_v2, &context, 0, device);
    REFUSES(kDevice, cuCtxCreate_v3, &context, nullptr, 0, 0, device);
    REFUSES(kDevice, cuCtxCreate_v4, &context, nullptr, 0, device);
  }
  EXPECT_EQ(context, nullptr);
}

TEST_F(ErrorsDeviceTest, ValuesThatDevicesDoNotKnow) {
  int number = 0;
  REFUSES(kValue, cuDeviceGetAttribute, &number, NoSuch<CUdevice_attribute>(), 0);
  REFUSES(kValueOrNone, cuDeviceGetExecAffinitySupport, &number, NoSuch<CUexecAffinityType>(), 0);
  REFUSES(kDeviceOrValue, cuDeviceGetByPCIBusId, &number, "not a bus");
  REFUSES(kValue, cuDevicePrimaryCtxSetFlags, 0, 3);  // two ways to wait at once
  REFUSES(kValue, cuDevicePrimaryCtxSetFlags_v2, 0, 3);
}

TEST_F(ErrorsDeviceTest, Contexts) {
  CUcontext context = nullptr;
  unsigned int number = 0;
  size_t bytes = 0;
  REFUSES(kValue, cuCtxCreate_v2, nullptr, 0, 0);
  REFUSES(kValue, cuCtxCreate_v2, &context, 3, 0);
  REFUSES(kValue, cuCtxCreate_v3, nullptr, nullptr, 0, 0, 0);
  REFUSES(kValue, cuCtxCreate_v4, nullptr, nullptr, 0, 0);
  REFUSES(kValueOrContext, cuCtxDestroy, nullptr);
  REFUSES(kValueOrContext, cuCtxDestroy_v2, nullptr);
  REFUSES(kValueOrContext, cuCtxPushCurrent, nullptr);
  REFUSES(kValueOrContext, cuCtxPushCurrent_v2, nullptr);
  REFUSES(kValue, cuCtxGetCurrent, nullptr);
  REFUSES(kValue, cuCtxGetDevice, nullptr);
  REFUSES(kValue, cuCtxGetFlags, nullptr);
  REFUSES(kValue, cuCtxSetFlags, 3);
  REFUSES(kValue, cuCtxGetApiVersion, context_, nullptr);
  REFUSES(kValue, cuCtxGetId, context_, nullptr);
  REFUSES(kValue, cuCtxGetLimit, nullptr, CU_LIMIT_STACK_SIZE);
  const Answers no_limit = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_UNSUPPORTED_LIMIT};
  // One that newer devices have not got.
  const Answers unsupported = {CUDA_ERROR_UNSUPPORTED_LIMIT, CUDA_SUCCESS};
  REFUSES(unsupported, cuCtxGetLimit, &bytes, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH);
  REFUSES(unsupported, cuCtxSetLimit, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2);
  REFUSES(no_limit, cuCtxGetLimit, &bytes, NoSuch<CUlimit>());
  REFUSES(no_limit, cuCtxSetLimit, NoSuch<CUlimit>(), 1);
  REFUSES(kValue, cuCtxGetCacheConfig, nullptr);
  REFUSES(kValue, cuCtxSetCacheConfig, NoSuch<CUfunc_cache>());
  REFUSES(kValue, cuCtxGetSharedMemConfig, nullptr);
  REFUSES(kValue, cuCtxSetSharedMemConfig, NoSuch<CUsharedconfig>());
  REFUSES(kValueOrContext, cuCtxAttach, nullptr, 0);
  REFUSES(kValue, cuCtxAttach, &context, 1);
  REFUSES(kNullContext, cuCtxDetach, nullptr);
  REFUSES(kValue, cuModuleGetLoadingMode, nullptr);
  TAKES(cuCtxGetApiVersion, context_, &number);
}

// A share of the multiprocessors is something that MPS gives. The structure is a type and a number.
TEST_F(ErrorsDeviceTest, ContextsWithAShareOfTheDevice) {
  int can = 0;
  TAKES(cuDeviceGetExecAffinitySupport, &can, 0, 0);
  if (can != 0) GTEST_SKIP() << "the device gives shares";
  int share[4] = {0, 1};
  CUcontext context = nullptr;
  const Answers unsupported = {CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY};
  auto* shares = reinterpret_cast<CUexecAffinityParam*>(share);
  REFUSES(unsupported, cuCtxCreate_v3, &context, shares, 1, 0, 0);
  CUctxCreateParams parameters = {shares, 1, nullptr};
  REFUSES(unsupported, cuCtxCreate_v4, &context, &parameters, 0, 0);
  EXPECT_EQ(context, nullptr);
}

TEST_F(ErrorsDeviceTest, NoCurrentContext) {
  WithoutContext([&] {
    CUcontext context = nullptr;
    CUdevice device = 0;
    unsigned int flags = 0;
    size_t bytes = 0;
    int config = 0, least = 0, greatest = 0;
    unsigned long long id = 0;
    REFUSES(kContext, cuCtxPopCurrent, &context);
    REFUSES(kContext, cuCtxPopCurrent_v2, &context);
    REFUSES(kContext, cuCtxGetDevice, &device);
    REFUSES(kContext, cuCtxGetFlags, &flags);
    REFUSES(kContext, cuCtxSetFlags, 0);
    REFUSES(kContext, cuCtxGetId, nullptr, &id);
    REFUSES(kContext, cuCtxSynchronize);
    REFUSES(kContext, cuCtxGetLimit, &bytes, CU_LIMIT_STACK_SIZE);
    REFUSES(kContext, cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 2048);
    REFUSES(kContext, cuCtxGetCacheConfig, &config);
    REFUSES(kContext, cuCtxSetCacheConfig, 0);
    REFUSES(kContext, cuCtxGetSharedMemConfig, &config);
    REFUSES(kContext, cuCtxSetSharedMemConfig, 0);
    REFUSES(kContext, cuCtxGetStreamPriorityRange, &least, &greatest);
    REFUSES(kContext, cuCtxResetPersistingL2Cache);
    REFUSES(kContext, cuCtxAttach, &context, 0);
    REFUSES(kContext, cuCtxEnablePeerAccess, context_, 0);
    REFUSES(kContext, cuCtxDisablePeerAccess, context_);
    REFUSES(kContext, cuProfilerStart);
    REFUSES(kContext, cuProfilerStop);
  });
}

// The only handle of something destroyed that the reference has drivers recognise: a context that
// is still current in another thread.
TEST_F(ErrorsDeviceTest, ADestroyedContextStaysCurrentInOtherThreads) {
  CUcontext doomed = nullptr, popped = nullptr;
  TAKES(cuCtxCreate_v2, &doomed, 0, 0);
  TAKES(cuCtxPopCurrent_v2, &popped);
  std::thread([&] {
    const Answers destroyed = {CUDA_ERROR_CONTEXT_IS_DESTROYED};
    CUdeviceptr pointer = 0;
    CUstream stream = nullptr;
    CUmodule module = nullptr;
    TAKES(cuCtxSetCurrent, doomed);
    std::thread([&] { TAKES(cuCtxDestroy_v2, doomed); }).join();
    REFUSES(destroyed, cuCtxSynchronize);
    REFUSES(destroyed, cuMemAlloc_v2, &pointer, 4096);
    REFUSES(destroyed, cuStreamCreate, &stream, 0);
    REFUSES(destroyed, cuModuleLoadData, &module, kKernels);
    REFUSES(destroyed, cuMemsetD8_v2, 4096, 0, 1);
  }).join();
}

TEST_F(ErrorsDeviceTest, PrimaryContexts) {
  unsigned int flags = 0;
  int active = 0;
  CUcontext primary = nullptr;
  TAKES(cuDevicePrimaryCtxGetState, 0, &flags, &active);
  if (active != 0) GTEST_SKIP() << "somebody else in this process has the primary context";
  const Answers none_to_release = {CUDA_ERROR_INVALID_CONTEXT, CUDA_SUCCESS};
  REFUSES(none_to_release, cuDevicePrimaryCtxRelease, 0);
  REFUSES(kContext, cuDevicePrimaryCtxRelease_v2, 0);
  TAKES(cuDevicePrimaryCtxRetain, &primary, 0);
  // The first form takes flags for a context that is yet to come; the second changes the one there
  // is. Newer drivers have the second behind both names.
  const Answers active_or_new = {CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, CUDA_SUCCESS};
  const Answers is_active = {CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE};
  REFUSES(OnSoftwareGpu() ? is_active : active_or_new, cuDevicePrimaryCtxSetFlags, 0, flags ^ 1);
  TAKES(cuDevicePrimaryCtxSetFlags_v2, 0, flags);
  // Only its device's release ends it.
  REFUSES(kContext, cuCtxDestroy_v2, primary);
  REFUSES(kContext, cuCtxDestroy, primary);
  TAKES(cuDevicePrimaryCtxRelease_v2, 0);
}

TEST_F(ErrorsDeviceTest, Peers) {
  int number = 0;
  const Answers no_peer = {CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE,
                           CUDA_ERROR_PEER_ACCESS_UNSUPPORTED};
  REFUSES(no_peer, cuCtxEnablePeerAccess, nullptr, 0);
  REFUSES(no_peer, cuCtxDisablePeerAccess, nullptr);
  REFUSES(no_peer, cuCtxEnablePeerAccess, context_, 0);  // itself
  REFUSES(kDevice, cuDeviceGetP2PAttribute, &number, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0,
          0);
  CUcontext second = nullptr;
  TAKES(cuCtxCreate_v2, &second, 0, 0);
  const Answers not_enabled = {CUDA_ERROR_PEER_ACCESS_NOT_ENABLED};
  REFUSES(not_enabled, cuCtxDisablePeerAccess, context_);
  TAKES(cuCtxDestroy_v2, second);
  int count = 0;
  TAKES(cuDeviceGetCount, &count);
  if (count < 2) GTEST_SKIP() << "there is no second device";
  REFUSES(kValue, cuDeviceGetP2PAttribute, nullptr, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1);
  REFUSES(kValue, cuDeviceGetP2PAttribute, &number, NoSuch<CUdevice_P2PAttribute>(), 0, 1);
  int can = 0;
  TAKES(cuDeviceCanAccessPeer, &can, 0, 1);
  CUcontext popped = nullptr;
  TAKES(cuCtxCreate_v2, &second, 0, 1);
  TAKES(cuCtxPopCurrent_v2, &popped);
  if (can == 0) {
    REFUSES(Answers({CUDA_ERROR_PEER_ACCESS_UNSUPPORTED}), cuCtxEnablePeerAccess, second, 0);
  } else {
    REFUSES(kValue, cuCtxEnablePeerAccess, second, 1);
    TAKES(cuCtxEnablePeerAccess, second, 0);
    const Answers already = {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED};
    REFUSES(already, cuCtxEnablePeerAccess, second, 0);
    TAKES(cuCtxDisablePeerAccess, second);
    REFUSES(not_enabled, cuCtxDisablePeerAccess, second);
  }
  const CUdeviceptr here = Allocate(64);
  REFUSES(kNullContext, cuMemcpyPeer, here, nullptr, here, context_, 4);
  REFUSES(kNullContext, cuMemcpyPeerAsync, here, context_, here, nullptr, 4, nullptr);
  REFUSES(kValue, cuMemcpyPeer, 0x10, context_, here, context_, 4);
  REFUSES(kValue, cuMemcpyPeer, here, context_, 0x10, context_, 4);
  REFUSES(kValue, cuMemcpyPeerAsync, 0x10, context_, here, context_, 4, nullptr);
  CUDA_MEMCPY3D_PEER box = {};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = box.dstDevice = here;
  box.WidthInBytes = box.Height = box.Depth = 1;
  REFUSES(kNullContext, cuMemcpy3DPeer, &box);  // contexts there are none in it
  REFUSES(kNullContext, cuMemcpy3DPeerAsync, &box, nullptr);
  REFUSES(kValue, cuMemcpy3DPeer, nullptr);
  REFUSES(kValue, cuMemcpy3DPeerAsync, nullptr, nullptr);
  TAKES(cuCtxDestroy_v2, second);
}

// A profiler may be attached from outside, or not be there at all.
TEST_F(ErrorsDeviceTest, TheProfiler) {
  const Answers refused = {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_VALUE,
                           CUDA_ERROR_PROFILER_DISABLED};
  REFUSES(refused, cuProfilerInitialize, nullptr, nullptr, 0);
  REFUSES(refused, cuProfilerInitialize, "config", "output", 0);
  TAKES(cuProfilerStart);
  TAKES(cuProfilerStop);
}

}  // namespace
}  // namespace tandem::driver_test
