// What is refused, and how: what a device has not got. A card may have it, which the tests then
// leave alone.
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

const Answers kNotSupported = {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_VALUE};
const Answers kNotPermitted = {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_PERMITTED,
                               CUDA_ERROR_INVALID_VALUE};

class ErrorsUnsupportedTest : public ErrorsTest {
 protected:
  static bool Has(CUdevice_attribute attribute) {
    int value = 0;
    return Cu().cuDeviceGetAttribute(&value, attribute, 0) == CUDA_SUCCESS && value != 0;
  }
  void OfTheMachine() {
    may_skip_ = true;
    GTEST_SKIP() << "the device has it";
  }
};

// Handles that other machines can open.
TEST_F(ErrorsUnsupportedTest, Fabric) {
  if (Has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)) return OfTheMachine();
  constexpr auto kFabric = CU_MEM_HANDLE_TYPE_FABRIC;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.requestedHandleTypes = kFabric;
  CUmemPoolProps of_pool = {};
  of_pool.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  of_pool.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  of_pool.handleTypes = kFabric;
  char handle[64] = {};
  CUmemGenericAllocationHandle memory = 0;
  CUmemoryPool pool = nullptr;
  size_t granularity = 0;
  REFUSES(kNotPermitted, cuMemCreate, &memory, kPage, &properties, 0);
  REFUSES(kNotPermitted, cuMemGetAllocationGranularity, &granularity, &properties,
          CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  REFUSES(kNotPermitted, cuMemImportFromShareableHandle, &memory, handle, kFabric);
  REFUSES(kNotPermitted, cuMemPoolCreate, &pool, &of_pool);
}

TEST_F(ErrorsUnsupportedTest, WaitingForWritesFromOutside) {
  if (Has(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES)) return OfTheMachine();
  CUstream stream = nullptr;
  const CUdeviceptr block = Allocate(64);
  CUstreamBatchMemOpParams flush = {};
  flush.operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
  TAKES(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  REFUSES(kNotSupported, cuStreamWaitValue32_v2, stream, block, 0, CU_STREAM_WAIT_VALUE_FLUSH);
  REFUSES(kNotSupported, cuStreamWaitValue64_v2, stream, block, 0, CU_STREAM_WAIT_VALUE_FLUSH);
  REFUSES(kNotSupported, cuStreamBatchMemOp_v2, stream, 1, &flush, 0);
  TAKES(cuStreamDestroy_v2, stream);
}

TEST_F(ErrorsUnsupportedTest, Mipmaps) {
  if (!OnSoftwareGpu()) return OfTheMachine();
  const CUDA_ARRAY3D_DESCRIPTOR shape = {8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUmipmappedArray mipmap = nullptr;
  CUarray array = nullptr, part = nullptr;
  TAKES(cuArray3DCreate_v2, &array, &shape);
  REFUSES(kNotSupported, cuMipmappedArrayCreate, &mipmap, &shape, 3);
  REFUSES(kNotSupported, cuMipmappedArrayGetLevel, &part, nullptr, 0);
  REFUSES(kNotSupported, cuMipmappedArrayDestroy, nullptr);
  REFUSES(kNotSupported, cuArrayGetPlane, &part, array, 0);
  TAKES(cuArrayDestroy, array);
}

// Addresses of other devices, which this memory has none of.
TEST_F(ErrorsUnsupportedTest, RegisteringOtherDevicesMemory) {
  std::vector<uint8_t> memory(4 * 4096);
  REFUSES(kNotPermitted, cuMemHostRegister_v2, memory.data(), memory.size(),
          CU_MEMHOSTREGISTER_IOMEMORY);
}

// The reference does not say whether events of other processes may be in a graph.
TEST_F(ErrorsUnsupportedTest, SharedEventsInGraphs) {
  const Answers may_be = {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS};
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUevent event = nullptr;
  TAKES(cuGraphCreate, &graph, 0);
  TAKES(cuEventCreate, &event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  REFUSES(may_be, cuGraphAddEventRecordNode, &node, graph, nullptr, 0, event);
  REFUSES(may_be, cuGraphAddEventWaitNode, &node, graph, nullptr, 0, event);
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  params.eventRecord.event = event;
  REFUSES(may_be, cuGraphAddNode, &node, graph, nullptr, 0, &params);
  TAKES(cuGraphDestroy, graph);
  TAKES(cuEventDestroy_v2, event);
}

TEST_F(ErrorsUnsupportedTest, MemoryOfGraphs) {
  if (!Has(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)) GTEST_SKIP() << "there are no pools";
  CUgraph graph = nullptr, child = nullptr, embedded = nullptr;
  CUgraphNode node = nullptr, alloc_node = nullptr, free_node = nullptr, child_node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS alloc = {}, exported = {};
  alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  alloc.bytesize = 4096;
  exported = alloc;
  exported.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  TAKES(cuGraphCreate, &graph, 0);
  TAKES(cuGraphCreate, &child, 0);
  REFUSES(kNotSupported, cuGraphAddMemAllocNode, &node, graph, nullptr, 0, &exported);
  TAKES(cuGraphAddMemAllocNode, &alloc_node, graph, nullptr, 0, &alloc);
  TAKES(cuGraphAddMemFreeNode, &free_node, graph, &alloc_node, 1, alloc.dptr);
  TAKES(cuGraphInstantiateWithFlags, &exec, graph, 0);
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  params.free.dptr = alloc.dptr;
  REFUSES(kNotSupported, cuGraphNodeSetParams, free_node, &params);
  REFUSES(kNotSupported, cuGraphExecNodeSetParams, exec, free_node, &params);
  // Neither in a graph within another.
  TAKES(cuGraphCreate, &embedded, 0);
  TAKES(cuGraphAddChildGraphNode, &child_node, child, nullptr, 0, embedded);
  TAKES(cuGraphDestroy, embedded);
  TAKES(cuGraphChildGraphNodeGetGraph, child_node, &embedded);
  REFUSES(kNotSupported, cuGraphAddMemAllocNode, &node, embedded, nullptr, 0, &alloc);
  REFUSES(kNotSupported, cuGraphAddMemFreeNode, &node, embedded, nullptr, 0, alloc.dptr);
  TAKES(cuGraphExecDestroy, exec);
  TAKES(cuGraphDestroy, graph);
  TAKES(cuGraphDestroy, child);
}

}  // namespace
}  // namespace tandem::driver_test
