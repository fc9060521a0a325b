// Calls that the tests of the things themselves do without: older and newer forms of a call, which
// do what the form does that those tests use, and settings that nothing else looks at.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

class FormsTest : public ErrorsTest {
 protected:
  std::vector<uint32_t> Words(CUdeviceptr pointer, size_t count) {
    std::vector<uint32_t> words(count);
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyDtoH_v2(words.data(), pointer, 4 * count));
    return words;
  }
};

TEST_F(FormsTest, Devices) {
  CUuuid one = {}, two = {};
  int major = 0, minor = 0, major_again = 0, minor_again = 0, supported = -1;
  TAKES(cuDeviceGetUuid, &one, 0);
  TAKES(cuDeviceGetUuid_v2, &two, 0);  // may differ: that of an instance of the card
  TAKES(cuDeviceComputeCapability, &major, &minor, 0);
  TAKES(cuDeviceGetAttribute, &major_again, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
  TAKES(cuDeviceGetAttribute, &minor_again, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
  EXPECT_EQ(major, major_again);
  EXPECT_EQ(minor, minor_again);
  TAKES(cuDeviceGetExecAffinitySupport, &supported, 0, 0);
  EXPECT_TRUE(supported == 0 || supported == 1);
}

TEST_F(FormsTest, PrimaryContexts) {
  constexpr unsigned int kYield = 2, kBlocking = 4;
  unsigned int flags = 0;
  int active = 0;
  CUcontext primary = nullptr;
  TAKES(cuDevicePrimaryCtxGetState, 0, &flags, &active);
  if (active != 0) GTEST_SKIP() << "somebody else in this process has the primary context";
  TAKES(cuDevicePrimaryCtxSetFlags, 0, kYield);
  TAKES(cuDevicePrimaryCtxRetain, &primary, 0);
  TAKES(cuDevicePrimaryCtxGetState, 0, &flags, &active);
  EXPECT_EQ(flags & CU_CTX_SCHED_MASK, kYield);
  EXPECT_EQ(active, 1);
  TAKES(cuDevicePrimaryCtxSetFlags_v2, 0, kBlocking);  // from 11.0 on also while it is active
  TAKES(cuDevicePrimaryCtxGetState, 0, &flags, &active);
  EXPECT_EQ(flags & CU_CTX_SCHED_MASK, kBlocking);
  TAKES(cuDevicePrimaryCtxRelease, 0);
  TAKES(cuDevicePrimaryCtxGetState, 0, &flags, &active);
  EXPECT_EQ(active, 0);
  TAKES(cuDevicePrimaryCtxReset, 0);
  TAKES(cuDevicePrimaryCtxReset_v2, 0);
}

TEST_F(FormsTest, ResettingAPrimaryContextEndsWhatIsInIt) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  unsigned int flags = 0;
  int active = 0;
  CUcontext primary = nullptr;
  CUdeviceptr pointer = 0;
  size_t before = 0, during = 0, after = 0, total = 0;
  TAKES(cuDevicePrimaryCtxGetState, 0, &flags, &active);
  if (active != 0) GTEST_SKIP() << "somebody else in this process has the primary context";
  TAKES(cuMemGetInfo_v2, &before, &total);
  TAKES(cuDevicePrimaryCtxRetain, &primary, 0);
  TAKES(cuCtxPushCurrent, primary);
  TAKES(cuMemAlloc_v2, &pointer, 4 << 20);
  TAKES(cuMemGetInfo_v2, &during, &total);
  EXPECT_LE(during + (4 << 20), before);
  TAKES(cuCtxPopCurrent, &primary);
  TAKES(cuDevicePrimaryCtxReset_v2, 0);
  TAKES(cuMemGetInfo_v2, &after, &total);
  EXPECT_TRUE(IsAbout(after, before)) << after << " after, " << before << " before";
  TAKES(cuDevicePrimaryCtxRelease_v2, 0);
}

TEST_F(FormsTest, Contexts) {
  constexpr unsigned int kSpin = 1, kBlocking = 4;
  CUcontext context = nullptr, popped = nullptr;
  unsigned int flags = 0, version = 0;
  int config = 0;
  TAKES(cuCtxCreate_v4, &context, nullptr, kSpin, 0);
  if (context != nullptr) TAKES(cuCtxDestroy_v2, context);
  CUctxCreateParams plain = {};
  TAKES(cuCtxCreate_v4, &context, &plain, kSpin, 0);
  if (context != nullptr) TAKES(cuCtxDestroy_v2, context);
  TAKES(cuCtxCreate_v3, &context, nullptr, 0, kSpin, 0);
  TAKES(cuCtxGetFlags, &flags);
  EXPECT_EQ(flags & CU_CTX_SCHED_MASK, kSpin);
  if (Cu().cuCtxSetFlags != nullptr) {
    TAKES(cuCtxSetFlags, kBlocking);
    TAKES(cuCtxGetFlags, &flags);
    EXPECT_EQ(flags & CU_CTX_SCHED_MASK, kBlocking);
  }
  TAKES(cuCtxGetApiVersion, context, &version);
  EXPECT_GE(version, 3010u);
  for (const CUfunc_cache wanted : {0, 1, 2, 3}) {  // a wish that a device need not heed
    TAKES(cuCtxSetCacheConfig, wanted);
    TAKES(cuCtxGetCacheConfig, &config);
    EXPECT_TRUE(config == wanted || config == 0);
  }
  REFUSES(Answers({CUDA_SUCCESS, CUDA_ERROR_NOT_SUPPORTED}), cuCtxResetPersistingL2Cache);
  TAKES(cuCtxPopCurrent, &popped);
  EXPECT_EQ(popped, context);
  TAKES(cuCtxPushCurrent, context);
  TAKES(cuCtxDestroy, context);
  TAKES(cuCtxGetCurrent, &popped);
  EXPECT_EQ(popped, context_);
}

TEST_F(FormsTest, FunctionsKnowTheirModule) {
  const CUfunction store = Kernel("store");
  CUmodule module = nullptr;
  TAKES(cuFuncGetModule, &module, store);
  EXPECT_EQ(module, module_);
  for (const CUfunc_cache wanted : {0, 1, 2, 3}) TAKES(cuFuncSetCacheConfig, store, wanted);
  for (const CUsharedconfig wanted : {0, 1, 2}) TAKES(cuFuncSetSharedMemConfig, store, wanted);
}

TEST_F(FormsTest, TheLinkersFirstForms) {
  char path[] = "/tmp/tandem_linkXXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  const std::string text = kKernels;
  ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  close(fd);
  for (const bool from_file : {false, true}) {
    CUlinkState state = nullptr;
    void* image = nullptr;
    size_t bytes = 0;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    TAKES(cuLinkCreate, 0, nullptr, nullptr, &state);
    if (from_file) {
      TAKES(cuLinkAddFile, state, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr);
    } else {
      TAKES(cuLinkAddData, state, CU_JIT_INPUT_PTX, const_cast<char*>(kKernels), text.size() + 1,
            "kernels", 0, nullptr, nullptr);
    }
    TAKES(cuLinkComplete, state, &image, &bytes);
    TAKES(cuModuleLoadData, &module, image);
    TAKES(cuModuleGetFunction, &function, module, "store");
    TAKES(cuLinkDestroy, state);
  }
  std::remove(path);
}

TEST_F(FormsTest, CopiesAndFills) {
  CUstream stream = nullptr;
  TAKES(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  const CUdeviceptr block = Allocate(256), copy = Allocate(256);
  const std::vector<uint8_t> zeros(256);
  Write(block, zeros);
  TAKES(cuCtxSynchronize);
  TAKES(cuMemsetD16Async, block, 0x1122, 2, stream);                    // word 0
  TAKES(cuMemsetD2D16_v2, block + 16, 16, 0x3344, 2, 2);                // words 4 and 8
  TAKES(cuMemsetD2D16Async, block + 48, 16, 0x5566, 2, 2, stream);      // words 12 and 16
  TAKES(cuMemsetD2D32Async, block + 80, 16, 0x778899aa, 1, 2, stream);  // words 20 and 24
  TAKES(cuStreamSynchronize, stream);
  TAKES(cuCtxSynchronize);
  TAKES(cuMemcpyAsync, copy, block, 256, stream);
  TAKES(cuStreamSynchronize, stream);
  std::vector<uint32_t> expected(64);
  expected[0] = 0x11221122;
  expected[4] = expected[8] = 0x33443344;
  expected[12] = expected[16] = 0x55665566;
  expected[20] = expected[24] = 0x778899aa;
  EXPECT_EQ(Words(copy, 64), expected);
  TAKES(cuStreamDestroy, stream);
}

// A driver may be told to keep the forms before 11.7 switched off.
TEST_F(FormsTest, ValuesInMemory) {
  const CUdeviceptr block = Allocate(64);
  Write(block, std::vector<uint8_t>(64));
  TAKES(cuCtxSynchronize);
  CUstream stream = nullptr;
  TAKES(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  TAKES(cuStreamWriteValue64_v2, stream, block, 0x1'0000'0002, 0);
  TAKES(cuStreamWaitValue64_v2, stream, block, 0x1'0000'0002, CU_STREAM_WAIT_VALUE_EQ);
  TAKES(cuStreamSynchronize, stream);
  EXPECT_EQ(Words(block, 2), (std::vector<uint32_t>{2, 1}));
  if (Cu().cuStreamWriteValue32 == nullptr ||
      Cu().cuStreamWriteValue32(stream, block, 3, 0) == CUDA_ERROR_NOT_SUPPORTED) {
    TAKES(cuStreamDestroy_v2, stream);
    GTEST_SKIP() << "the first forms of these calls are switched off";
  }
  CUstreamBatchMemOpParams operation = {};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = block + 16;
  operation.writeValue.value = 5;
  TAKES(cuStreamWaitValue32, stream, block, 3, CU_STREAM_WAIT_VALUE_EQ);
  TAKES(cuStreamWriteValue64, stream, block + 8, 0x4'0000'0003, 0);
  TAKES(cuStreamWaitValue64, stream, block + 8, 0x4'0000'0000, CU_STREAM_WAIT_VALUE_GEQ);
  TAKES(cuStreamBatchMemOp, stream, 1, &operation, 0);
  TAKES(cuStreamSynchronize, stream);
  EXPECT_EQ(Words(block, 5), (std::vector<uint32_t>{3, 1, 3, 4, 5}));
  TAKES(cuStreamDestroy_v2, stream);
}

TEST_F(FormsTest, ManagedMemoryByLocation) {
  int concurrent = 0;
  CUdeviceptr pointer = 0;
  ASSERT_CU(
      Cu().cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
  if (concurrent == 0) GTEST_SKIP() << "the device takes no advice about managed memory";
  constexpr size_t kBytes = 1 << 20;
  const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                      host = {CU_MEM_LOCATION_TYPE_HOST, 0};
  TAKES(cuMemAllocManaged, &pointer, kBytes, CU_MEM_ATTACH_GLOBAL);
  TAKES(cuMemAdvise_v2, pointer, kBytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device);
  TAKES(cuMemPrefetchAsync_v2, pointer, kBytes, device, 0, nullptr);
  TAKES(cuMemPrefetchAsync_v2, pointer, kBytes, host, 0, nullptr);
  TAKES(cuCtxSynchronize);
  if (Cu().cuMemAdvise_v2 != nullptr) {
    int preferred = 0, last = 0;
    TAKES(cuMemRangeGetAttribute, &preferred, sizeof(preferred),
          CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, pointer, kBytes);
    TAKES(cuMemRangeGetAttribute, &last, sizeof(last),
          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, pointer, kBytes);
    EXPECT_EQ(preferred, 0);
    EXPECT_EQ(last, CU_DEVICE_CPU);
  }
  TAKES(cuMemFree_v2, pointer);
}

TEST_F(FormsTest, TexturesKeepTheirView) {
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR plane = {16, 8, CU_AD_FORMAT_FLOAT, 1};
  TAKES(cuArrayCreate_v2, &array, &plane);
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  const CUDA_TEXTURE_DESC sampling = {};
  CUDA_RESOURCE_VIEW_DESC view = {}, told = {};
  view.width = 16;
  view.height = 8;
  CUtexObject texture = 0;
  if (Cu().cuTexObjectCreate(&texture, &resource, &sampling, &view) != CUDA_SUCCESS) {
    TAKES(cuArrayDestroy, array);
    GTEST_SKIP() << "this driver takes no view without a format";
  }
  TAKES(cuTexObjectGetResourceViewDesc, &told, texture);
  EXPECT_EQ(told.width, 16u);
  EXPECT_EQ(told.height, 8u);
  TAKES(cuTexObjectDestroy, texture);
  TAKES(cuArrayDestroy, array);
}

TEST_F(FormsTest, StatesOfCaptures) {
  CUstream stream = nullptr;
  CUstreamCaptureStatus status = {};
  cuuint64_t id = 0, id_again = 0;
  CUgraph graph = nullptr, ended = nullptr;
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  const CUdeviceptr block = Allocate(64);
  TAKES(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  TAKES(cuStreamGetCaptureInfo, stream, &status, &id);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  TAKES(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  TAKES(cuMemsetD8Async, block, 1, 64, stream);
  TAKES(cuStreamGetCaptureInfo, stream, &status, &id);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  if (Cu().cuStreamGetCaptureInfo_v3 != nullptr) {
    TAKES(cuStreamGetCaptureInfo_v3, stream, &status, &id_again, &graph, &dependencies, &edges,
          &count);
    EXPECT_EQ(id, id_again);
    ASSERT_EQ(count, 1u);
    CUgraphNode node = dependencies[0], added = nullptr;
    TAKES(cuGraphAddEmptyNode, &added, graph, &node, 1);
    TAKES(cuStreamUpdateCaptureDependencies_v2, stream, &added, nullptr, 1,
          CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    TAKES(cuStreamGetCaptureInfo_v3, stream, &status, &id_again, &graph, &dependencies, &edges,
          &count);
    ASSERT_EQ(count, 1u);
    EXPECT_EQ(dependencies[0], added);
  }
  TAKES(cuStreamEndCapture, stream, &ended);
  TAKES(cuGraphDestroy, ended);
  TAKES(cuStreamDestroy_v2, stream);
}

}  // namespace
}  // namespace tandem::driver_test
