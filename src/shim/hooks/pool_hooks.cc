// Hooks of driver_api.def's OWN rows for stream-ordered memory and its pools, and for waiting,
// after which pools give back what they keep. What StreamPools has no answer to goes to the driver.
#include <map>
#include <span>

#include "src/base/mutex.h"
#include "src/shim/driver/capture_mode.h"
#include "src/shim/program/process.h"

namespace tandem::shim {
namespace {

template <typename Visit>
void EachPools(Visit visit) {
  EachGuest([&](Guest* guest) { visit(&guest->pools()); });
}

struct Order {
  Guest* guest = nullptr;
  StreamPools::Place place;
};

Guest* GuestWith(CUcontext context) {
  return FindGuest([context](Guest* guest) { return guest->Has(context); });
}

// Of a default stream, the current one. False where it is no stream.
bool ContextOf(CUstream stream, CUcontext* context) {
  if (stream == kLegacyStream || stream == kPerThreadStream) {
    return Call(Real().cuCtxGetCurrent, context) == CUDA_SUCCESS && *context != nullptr;
  }
  return Call(Real().cuStreamGetCtx, stream, context) == CUDA_SUCCESS;
}

// Nothing where it is the driver's affair: for streams of devices that are not shared, those that
// are being captured, and what is no stream.
std::optional<Order> OrderIn(CUstream stream) {
  CUcontext current = nullptr;
  Order order{GuestOfCurrentContext(&current), {nullptr, stream}};
  if (order.guest == nullptr || MayBeCaptured(stream)) return std::nullopt;
  CUcontext& context = order.place.context;
  if (!ContextOf(stream, &context)) return std::nullopt;
  if (context != current) order.guest = GuestWith(context);
  return order.guest == nullptr ? std::nullopt : std::optional(order);
}

Guest* WhoCounts(CUmemoryPool pool) {
  return FindGuest([pool](Guest* guest) { return guest->driver_pools().Has(pool); });
}

// Pools of managed memory, which a kernel brings onto its card wherever it is to be. They count
// from the first allocation on: for the device that they prefer, or else for the one that
// allocates.
class ManagedPools {
 public:
  // What the driver has made or named, of any type: the handle may have been another's before.
  void Note(CUmemoryPool pool, CUmemAllocationType type, const CUmemLocation& location) {
    const bool on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    MutexLock lock(mutex_);
    preferred_.erase(pool);
    if (type != CU_MEM_ALLOCATION_TYPE_MANAGED) return;
    preferred_[pool] = on_device ? location.id : CU_DEVICE_INVALID;
  }
  // From now on some device counts the pool, if it is one of these.
  void Count(CUmemoryPool pool, Guest* allocating) {
    MutexLock lock(mutex_);
    const auto managed = preferred_.find(pool);
    if (managed == preferred_.end() || WhoCounts(pool) != nullptr) return;
    Guest* const open = OpenGuest(managed->second);
    (open != nullptr ? open : allocating)->driver_pools().Add(pool);
  }

 private:
  Mutex mutex_;
  std::map<CUmemoryPool, CUdevice> preferred_ GUARDED_BY(mutex_);
};

// Never destroyed: threads outlive static destructors.
ManagedPools& TheManagedPools() {
  static auto* const pools = new ManagedPools;
  return *pools;
}

// What the driver has answered to a question for a pool.
CUresult Named(CUresult result, const CUmemoryPool* pool, const CUmemLocation* location,
               CUmemAllocationType type) {
  if (result == CUDA_SUCCESS) TheManagedPools().Note(*pool, type, *location);
  return result;
}

// From a pool whose memory is the driver's own.
template <typename CallDriver>
CUresult AllocateDrivers(CUmemoryPool pool, Bytes bytes, const CUdeviceptr* pointer,
                         Guest* allocating, CallDriver call_driver) {
  TheManagedPools().Count(pool, allocating);
  Guest* const guest = WhoCounts(pool);
  if (guest == nullptr) return call_driver();
  DriverPools& pools = guest->driver_pools();
  if (!guest->Retry([&] { return pools.MakeRoom(pool, bytes); })) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = call_driver();
  pools.Allocated(pool, bytes, result == CUDA_SUCCESS ? *pointer : 0);
  return result;
}

// `pool` null: the device's current one.
template <typename CallDriver>
CUresult Allocate(CUdeviceptr* pointer, size_t bytes, const CUmemoryPool* pool, CUstream stream,
                  CallDriver call_driver) {
  if (pointer == nullptr || bytes == 0) return call_driver();
  std::optional<CUresult> result;
  CUmemoryPool handle = pool == nullptr ? nullptr : *pool;
  Guest* guest = nullptr;
  {
    // Unlike cuMemAlloc this is allowed while another stream is being captured.
    const RelaxedCapture relaxed(&Real());
    const std::optional<Order> order = OrderIn(stream);
    if (!order.has_value()) return call_driver();
    guest = order->guest;
    const CUresult health = guest->Health(order->place.context);
    if (health != CUDA_SUCCESS) return health;
    if (pool == nullptr) Call(Real().cuDeviceGetMemPool, &handle, guest->device());
    result = guest->pools().Allocate(handle, bytes, order->place, pointer);
  }
  if (result.has_value()) return *result;
  return AllocateDrivers(handle, Bytes(bytes), pointer, guest, call_driver);
}

// In any stream that is not being captured, also of another device.
template <typename CallDriver>
CUresult Free(CUdeviceptr pointer, CUstream stream, CallDriver call_driver) {
  Guest* const guest = FindGuest([pointer](Guest* each) {
    const std::optional<Block> block = each->Find(pointer);
    return block.has_value() && block->address == pointer &&
           each->pools().Find({pointer, block->id}).has_value();
  });
  StreamPools::Place place{nullptr, stream};
  std::optional<CUresult> result;
  if (guest != nullptr && !MayBeCaptured(stream) && ContextOf(stream, &place.context)) {
    result = guest->pools().Free(pointer, place);
  } else if (guest == nullptr && !MayBeCaptured(stream) && ContextOf(stream, &place.context)) {
    result = AskGuests([pointer](Guest* each) { return each->FreeInOrder(pointer); });
  }
  if (result.has_value()) return *result;
  result = call_driver();
  if (*result == CUDA_SUCCESS) {
    EachGuest([=](Guest* each) { each->driver_pools().Freed(pointer); });
  }
  return *result;
}

// The driver grants access to what it allocates from the pool itself; to the blocks that the guest
// has allocated for the pool before, the guest does.
void SetPoolAccess(Guest* guest, CUmemoryPool pool, const CUmemAccessDesc& access) {
  const CUmemLocation own = {CU_MEM_LOCATION_TYPE_DEVICE, guest->device()};
  const bool device = access.location.type == own.type;
  if (device && access.location.id == own.id) return;
  const bool reaches = access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  bool blocks = false;
  if (reaches && guest->pools().Shared(pool, &blocks)) guest->driver_pools().Add(pool);
  if (device && (blocks || !reaches)) guest->SetPoolPeer(pool, access.location.id, reaches);
}

// What a call of the driver's that waits has returned.
CUresult Waited(CUresult result) {
  EachGuest([](Guest* guest) {
    guest->pools().Synchronized();
    guest->driver_pools().Recount();
  });
  return result;
}

CUstream Or(CUstream stream, CUstream standard) {
  return stream == nullptr ? standard : stream;
}

}  // namespace
}  // namespace tandem::shim

using namespace tandem;
using namespace tandem::shim;

extern "C" {

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) noexcept {
  return Allocate(pointer, bytes, nullptr, Or(stream, kLegacyStream),
                  [=] { return Call(Real().cuMemAllocAsync, pointer, bytes, stream); });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUstream stream) noexcept {
  return Allocate(pointer, bytes, nullptr, Or(stream, kPerThreadStream),
                  [=] { return Call(Real().cuMemAllocAsync_ptsz, pointer, bytes, stream); });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) noexcept {
  return Allocate(pointer, bytes, &pool, Or(stream, kLegacyStream), [=] {
    return Call(Real().cuMemAllocFromPoolAsync, pointer, bytes, pool, stream);
  });
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) noexcept {
  return Allocate(pointer, bytes, &pool, Or(stream, kPerThreadStream), [=] {
    return Call(Real().cuMemAllocFromPoolAsync_ptsz, pointer, bytes, pool, stream);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) noexcept {
  return Free(pointer, Or(stream, kLegacyStream),
              [=] { return Call(Real().cuMemFreeAsync, pointer, stream); });
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) noexcept {
  return Free(pointer, Or(stream, kPerThreadStream),
              [=] { return Call(Real().cuMemFreeAsync_ptsz, pointer, stream); });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) noexcept {
  const bool on_device =
      properties != nullptr && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const auto [guest, refusal] = on_device ? GuestOn(properties->location.id) : GuestResult();
  if (refusal != CUDA_SUCCESS) return refusal;
  const CUresult result = Call(Real().cuMemPoolCreate, pool, properties);
  if (result != CUDA_SUCCESS) return result;
  TheManagedPools().Note(*pool, properties->allocType, properties->location);
  if (guest != nullptr && !guest->pools().Created(*pool, *properties)) {
    guest->driver_pools().Add(*pool);
  }
  return result;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                CUmemAllocationType type) noexcept {
  return Named(Call(Real().cuMemGetDefaultMemPool, pool, location, type), pool, location, type);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                         CUmemAllocationType type) noexcept {
  return Named(Call(Real().cuMemGetMemPool, pool, location, type), pool, location, type);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) noexcept {
  EachGuest([pool](Guest* guest) {
    guest->pools().Destroying(pool);
    guest->driver_pools().Destroying(pool);
  });
  const CUresult result = Call(Real().cuMemPoolDestroy, pool);
  if (result == CUDA_SUCCESS) return Waited(result);
  EachGuest([pool](Guest* guest) {
    guest->pools().NotDestroyed(pool);
    guest->driver_pools().NotDestroyed(pool);
  });
  return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                               void* value) noexcept {
  const CUresult result = Call(Real().cuMemPoolSetAttribute, pool, attribute, value);
  if (result != CUDA_SUCCESS) return result;
  EachPools([=](StreamPools* pools) { pools->Set(pool, attribute, value); });
  return result;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                               void* value) noexcept {
  const CUresult result = Call(Real().cuMemPoolGetAttribute, pool, attribute, value);
  if (result != CUDA_SUCCESS) return result;
  EachPools([=](StreamPools* pools) { pools->Add(pool, attribute, value); });
  return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes) noexcept {
  const CUresult result = Call(Real().cuMemPoolTrimTo, pool, bytes);
  if (result != CUDA_SUCCESS) return result;
  EachGuest([=](Guest* guest) {
    guest->pools().TrimTo(pool, bytes);
    guest->driver_pools().Recount();
  });
  return result;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* access,
                            size_t count) noexcept {
  const CUresult result = Call(Real().cuMemPoolSetAccess, pool, access, count);
  if (result != CUDA_SUCCESS) return result;
  EachGuest([=](Guest* guest) {
    for (const CUmemAccessDesc& each : std::span(access, count)) SetPoolAccess(guest, pool, each);
  });
  return result;
}

CUresult cuCtxSynchronize() noexcept {
  return Waited(Call(Real().cuCtxSynchronize));
}

CUresult cuCtxSynchronize_v2(CUcontext context) noexcept {
  return Waited(Call(Real().cuCtxSynchronize_v2, context));
}

CUresult cuStreamSynchronize(CUstream stream) noexcept {
  return Waited(Call(Real().cuStreamSynchronize, stream));
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) noexcept {
  return Waited(Call(Real().cuStreamSynchronize_ptsz, stream));
}

CUresult cuEventSynchronize(CUevent event) noexcept {
  return Waited(Call(Real().cuEventSynchronize, event));
}

}  // extern "C"
