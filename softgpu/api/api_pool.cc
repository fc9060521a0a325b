// Entry points: stream-ordered allocation and its pools.
#include <cstring>
#include <span>
#include <vector>

#include "softgpu/api/api_graph.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

CUmemoryPool HandleOf(const Pool* pool) {
  return reinterpret_cast<CUmemoryPool>(pool->id);
}

// What a pool says of its memory.
struct Place {
  DeviceVram* device = nullptr;
  std::vector<CUmemAccessDesc> access;  // of other devices
};

// In a captured stream an allocation becomes a node.
CUresult CaptureAllocation(const std::shared_ptr<Context>& context,
                           const std::shared_ptr<Stream>& stream, const Place& place, size_t bytes,
                           CUdeviceptr* pointer, bool* captured) {
  *captured = false;
  if (TheDriver().capturing.load() == 0) return CUDA_SUCCESS;
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, place.device->ordinal()};
  params.bytesize = bytes;
  params.accessDescs = place.access.data();
  params.accessDescCount = place.access.size();
  Work work;
  CU_TRY(AllocWorkOf(context, place.device, params, &work));
  CU_TRY(CaptureWork(stream, work, captured));
  if (*captured) *pointer = std::get<AllocWork>(work.what).shown.dptr;
  return CUDA_SUCCESS;
}

// In a captured stream the freed memory has to come from a node, too.
CUresult CaptureFree(const std::shared_ptr<Context>& context, const std::shared_ptr<Stream>& stream,
                     CUdeviceptr pointer, bool* captured) {
  *captured = false;
  if (TheDriver().capturing.load() == 0) return CUDA_SUCCESS;
  Work work;
  work.context = context;
  if (FreeWorkOf(pointer, &work) == CUDA_SUCCESS) return CaptureWork(stream, work, captured);
  return RefuseIfCaptured(*stream, CUDA_ERROR_INVALID_VALUE);
}

// What a graph allocated, when the stream comes to it.
CUresult FreeOfGraph(const std::shared_ptr<Stream>& stream, CUdeviceptr pointer) {
  Driver& driver = TheDriver();
  Memory& memory = *driver.memory;
  std::shared_ptr<GraphMemory::Block> block;
  {
    MutexLock lock(memory.mutex());
    block = memory.graphs().Find(pointer);
    if (block == nullptr || !memory.graphs().BeginFree(*block)) return CUDA_ERROR_INVALID_VALUE;
  }
  const Dependency freed = driver.scheduler.Submit(stream, Task());  // without the lock, as below
  MutexLock lock(memory.mutex());
  memory.graphs().Free(*block, freed);
  return CUDA_SUCCESS;
}

// The pool to allocate from: that of a handle, or if any will do, the current one of the device.
// Null for an unknown handle, and for a pool of another process. REQUIRES: the lock of `pools`.
Pool* PoolFor(Pools& pools, CUmemoryPool handle, bool any_pool, const Context& context) {
  Pool* pool = any_pool ? pools.CurrentOf(context.device) : pools.Find(handle);
  return pool != nullptr && !pool->imported() ? pool : nullptr;
}

CUresult PlaceOf(CUmemoryPool handle, bool any_pool, const Context& context, Place* place) {
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  const Pool* pool = PoolFor(memory.pools(), handle, any_pool, context);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  place->device = pool->device;
  for (const auto& [device, flags] : pool->peers) {
    place->access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags});
  }
  return CUDA_SUCCESS;
}

// `handle` null: the current pool of the stream's device.
CUresult Allocate(CUdeviceptr* pointer, size_t bytes, CUmemoryPool handle, bool any_pool,
                  CUstream stream_handle) {
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, stream_handle, &context, &stream));
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Place place;
  bool captured = false;
  CU_TRY(PlaceOf(handle, any_pool, *context, &place));
  if (bytes == 0) {
    *pointer = 0;
    return CUDA_SUCCESS;
  }
  CU_TRY(CaptureAllocation(context, stream, place, bytes, pointer, &captured));
  if (captured) return CUDA_SUCCESS;
  Driver& driver = TheDriver();
  if (driver.faults->Due(kFailAlloc)) return CUDA_ERROR_OUT_OF_MEMORY;
  Task task;
  uint64_t address = 0;
  {
    MutexLock lock(driver.memory->mutex());
    Pool* pool = PoolFor(driver.memory->pools(), handle, any_pool, *context);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto allocate = [&] {
      return (address = pool->Allocate(stream, bytes, &task.after)) != 0;
    };
    if (!driver.memory->Manage(pool->device, allocate)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!task.after.empty()) driver.scheduler.Submit(stream, std::move(task));
  *pointer = address;
  return CUDA_SUCCESS;
}

// A pool and the setting that an attribute names; both null for other attributes.
struct Setting {
  bool* flag = nullptr;
  uint64_t* bytes = nullptr;
};

Setting SettingOf(Pool& pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return {.flag = &pool.settings.follow_events};
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return {.flag = &pool.settings.opportunistic};
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return {.flag = &pool.settings.internal_dependencies};
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return {.bytes = &pool.settings.release_threshold};
    default:
      return {};
  }
}

template <typename T>
void Put(void* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

// The peak attributes may be set to zero, which starts them anew.
CUresult ResetPeak(Pool& pool, CUmemPool_attribute attribute, uint64_t value) {
  if (value != 0) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
    pool.ResetReservedHigh();
    return CUDA_SUCCESS;
  }
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
    pool.ResetUsedHigh();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult CheckAccess(const Pool& pool, const CUmemAccessDesc& access) {
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (TheDriver().FindDevice(access.location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const bool own = access.location.id == pool.device->ordinal();
  switch (access.flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:  // a device always reaches its own memory
      return own ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  int reachable = 0;
  if (!own) {
    CU_TRY(cuDeviceCanAccessPeer(&reachable, access.location.id, pool.device->ordinal()));
  }
  return own || reachable != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// Pools are of pinned memory of devices; the host and managed memory have none.
CUresult CheckPools(const CUmemLocation* location, CUmemAllocationType type) {
  CU_TRY(Ready());
  if (location == nullptr ||
      (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (TheDriver().FindDevice(location->id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
      return managed ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_MEM_LOCATION_TYPE_INVALID:  // for managed memory: none
      return managed ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  *pool = HandleOf(memory.pools().DefaultOf(device));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  *pool = HandleOf(memory.pools().CurrentOf(device));
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  Pool* pool = memory.pools().Find(handle);
  if (pool == nullptr || pool->imported() || pool->device != device) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  memory.pools().SetCurrent(pool);
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                CUmemAllocationType type) noexcept {
  CU_TRY(CheckPools(location, type));
  return cuDeviceGetDefaultMemPool(pool, location->id);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                         CUmemAllocationType type) noexcept {
  CU_TRY(CheckPools(location, type));
  return cuDeviceGetMemPool(pool, location->id);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                         CUmemoryPool pool) noexcept {
  CU_TRY(CheckPools(location, type));
  return cuDeviceSetMemPool(location->id, pool);
}

CUresult cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) noexcept {
  CU_TRY(Ready());
  if (handle == nullptr || properties == nullptr ||
      properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Device* device = TheDriver().FindDevice(properties->location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool shareable = properties->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (!shareable && properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  Pool* pool = memory.pools().Create(device, properties->maxSize);
  if (shareable && !pool->MakeShareable()) {
    memory.pools().Destroy(pool);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = HandleOf(pool);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) noexcept {
  CU_TRY(Ready());
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  Pool* pool = memory.pools().Find(handle);
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : memory.pools().Destroy(pool);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                               void* value) noexcept {
  CU_TRY(Ready());
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  Pool* pool = memory.pools().Find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Setting setting = SettingOf(*pool, attribute);
  if (setting.flag != nullptr) {
    int flag = 0;
    std::memcpy(&flag, value, sizeof(flag));
    *setting.flag = flag != 0;
    return CUDA_SUCCESS;
  }
  uint64_t bytes = 0;
  std::memcpy(&bytes, value, sizeof(bytes));
  if (setting.bytes == nullptr) return ResetPeak(*pool, attribute, bytes);
  *setting.bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                               void* value) noexcept {
  CU_TRY(Ready());
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  Pool* pool = memory.pools().Find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Setting setting = SettingOf(*pool, attribute);
  if (setting.flag != nullptr) {
    Put(value, int{*setting.flag});
  } else if (setting.bytes != nullptr) {
    Put(value, *setting.bytes);
  } else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) {
    Put(value, pool->reserved());
  } else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
    Put(value, pool->reserved_high());
  } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) {
    Put(value, pool->used());
  } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
    Put(value, pool->used_high());
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes) noexcept {
  CU_TRY(Ready());
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  Pool* pool = memory.pools().Find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  pool->Harvest();
  pool->Trim(bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access,
                            size_t count) noexcept {
  CU_TRY(Ready());
  if (access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  Pool* pool = memory.pools().Find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) CU_TRY(CheckAccess(*pool, access[i]));
  for (const CUmemAccessDesc& each : std::span(access, count)) {
    const AddressSpace::Leave leave = {each.location.id, pool->id, pool->id};
    if (each.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
      pool->peers.erase(each.location.id);
      TheDriver().space->Take(leave);
    } else {
      pool->peers[each.location.id] = each.flags;
      TheDriver().space->Give(leave);
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                            CUmemLocation* location) noexcept {
  CU_TRY(Ready());
  if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (TheDriver().FindDevice(location->id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  Pool* pool = memory.pools().Find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto peer = pool->peers.find(location->id);
  const bool own = location->id == pool->device->ordinal();
  *flags = own                         ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : peer != pool->peers.end() ? peer->second
                                       : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) noexcept {
  return Allocate(pointer, bytes, nullptr, true, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) noexcept {
  return Allocate(pointer, bytes, pool, false, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream_handle) noexcept {
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, stream_handle, &context, &stream));
  bool captured = false;
  CU_TRY(CaptureFree(context, stream, pointer, &captured));
  if (captured) return CUDA_SUCCESS;
  Driver& driver = TheDriver();
  Memory& memory = *driver.memory;
  Pool* pool = nullptr;
  Range range;
  bool of_graph = false, plain = false;
  {
    MutexLock lock(memory.mutex());
    const auto found = memory.Find(pointer);
    if (!found || found->range.begin != pointer) return CUDA_ERROR_INVALID_VALUE;
    of_graph = found->of_graph;
    plain = !of_graph && found->pool == 0;
    pool = of_graph || plain ? nullptr : memory.pools().OfOwner(found->pool);
    if (pool != nullptr) range = pool->Detach(pointer);
  }
  // A card takes memory of cuMemAlloc, too. Here that waits for the work of its context.
  if (plain) return cuMemFree_v2(pointer);
  if (of_graph) return FreeOfGraph(stream, pointer);
  // Without the lock: a full queue is waited for. What is detached keeps the pool.
  const Dependency freed = driver.scheduler.Submit(stream, Task());
  MutexLock lock(memory.mutex());
  pool->Retire(range, freed);
  return CUDA_SUCCESS;
}
