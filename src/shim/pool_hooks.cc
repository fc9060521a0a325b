// Hooks of driver_api.def's OWN rows for stream-ordered memory and its pools, and for waiting,
// after which pools give back what they keep. What StreamPools has no answer to goes to the driver.
#include "src/shim/capture_mode.h"
#include "src/shim/process.h"

namespace tandem::shim {
namespace {

const CUstream kLegacy = reinterpret_cast<CUstream>(CU_STREAM_LEGACY_VALUE);
const CUstream kPerThread = reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD_VALUE);

StreamPools* Pools() {
  Guest* const guest = CurrentGuest();
  return guest == nullptr ? nullptr : &guest->pools();
}

struct Order {
  Guest* guest = nullptr;
  StreamPools::Place place;
};

// Nothing where it is the driver's affair: for streams of other devices, those that are being
// captured, and what is no stream.
std::optional<Order> OrderIn(CUstream stream) {
  Order order;
  order.place.stream = stream;
  order.guest = GuestOfCurrentContext(&order.place.context);
  if (order.guest == nullptr) return std::nullopt;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  if (Call(Real().cuStreamIsCapturing, stream, &capture) != CUDA_SUCCESS ||
      capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    return std::nullopt;
  }
  if (stream == kLegacy || stream == kPerThread) return order;
  CUcontext context = nullptr;
  if (Call(Real().cuStreamGetCtx, stream, &context) != CUDA_SUCCESS) return std::nullopt;
  if (context != order.place.context && !order.guest->Has(context)) return std::nullopt;
  order.place.context = context;
  return order;
}

// A context that is broken or destroyed answers everything with its error.
CUresult HealthOf(CUcontext context) {
  WorkTracker* const tracker = process_tracker.load(std::memory_order_acquire);
  const CUresult health = tracker == nullptr ? CUDA_SUCCESS : tracker->Health(context);
  const bool refused = IsSticky(health) || health == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
                       health == CUDA_ERROR_INVALID_CONTEXT;
  return refused ? health : CUDA_SUCCESS;
}

// `pool` null: the device's current one.
template <typename CallDriver>
CUresult Allocate(CUdeviceptr* pointer, size_t bytes, const CUmemoryPool* pool, CUstream stream,
                  CallDriver call_driver) {
  if (pointer == nullptr || bytes == 0) return call_driver();
  std::optional<CUresult> result;
  {
    // Unlike cuMemAlloc this is allowed while another stream is being captured.
    const RelaxedCapture relaxed(&Real());
    const std::optional<Order> order = OrderIn(stream);
    if (!order.has_value()) return call_driver();
    if (const CUresult health = HealthOf(order->place.context); health != CUDA_SUCCESS) {
      return health;
    }
    CUmemoryPool handle = pool == nullptr ? nullptr : *pool;
    if (pool == nullptr) Call(Real().cuDeviceGetMemPool, &handle, order->guest->device());
    result = order->guest->pools().Allocate(handle, bytes, order->place, pointer);
  }
  return result.has_value() ? *result : call_driver();
}

template <typename CallDriver>
CUresult Free(CUdeviceptr pointer, CUstream stream, CallDriver call_driver) {
  StreamPools* const pools = Pools();
  if (pools == nullptr || !pools->Find(pointer).has_value()) return call_driver();
  const std::optional<Order> order = OrderIn(stream);
  if (!order.has_value()) return call_driver();
  const std::optional<CUresult> result = pools->Free(pointer, order->place);
  return result.has_value() ? *result : call_driver();
}

// What a call of the driver's that waits has returned.
CUresult Waited(CUresult result) {
  if (StreamPools* const pools = Pools()) pools->Synchronized();
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
  return Allocate(pointer, bytes, nullptr, Or(stream, kLegacy),
                  [=] { return Call(Real().cuMemAllocAsync, pointer, bytes, stream); });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUstream stream) noexcept {
  return Allocate(pointer, bytes, nullptr, Or(stream, kPerThread),
                  [=] { return Call(Real().cuMemAllocAsync_ptsz, pointer, bytes, stream); });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) noexcept {
  return Allocate(pointer, bytes, &pool, Or(stream, kLegacy), [=] {
    return Call(Real().cuMemAllocFromPoolAsync, pointer, bytes, pool, stream);
  });
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) noexcept {
  return Allocate(pointer, bytes, &pool, Or(stream, kPerThread), [=] {
    return Call(Real().cuMemAllocFromPoolAsync_ptsz, pointer, bytes, pool, stream);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) noexcept {
  return Free(pointer, Or(stream, kLegacy),
              [=] { return Call(Real().cuMemFreeAsync, pointer, stream); });
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) noexcept {
  return Free(pointer, Or(stream, kPerThread),
              [=] { return Call(Real().cuMemFreeAsync_ptsz, pointer, stream); });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) noexcept {
  const CUresult result = Call(Real().cuMemPoolCreate, pool, properties);
  if (result != CUDA_SUCCESS || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return result;
  }
  Guest* const guest = GuestFor(properties->location.id);
  if (guest != nullptr) guest->pools().Created(*pool, *properties);
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) noexcept {
  const CUresult result = Call(Real().cuMemPoolDestroy, pool);
  StreamPools* const pools = Pools();
  if (result == CUDA_SUCCESS && pools != nullptr) pools->Destroyed(pool);
  return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                               void* value) noexcept {
  const CUresult result = Call(Real().cuMemPoolSetAttribute, pool, attribute, value);
  StreamPools* const pools = Pools();
  if (result == CUDA_SUCCESS && pools != nullptr) pools->Set(pool, attribute, value);
  return result;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                               void* value) noexcept {
  const CUresult result = Call(Real().cuMemPoolGetAttribute, pool, attribute, value);
  StreamPools* const pools = Pools();
  if (result == CUDA_SUCCESS && pools != nullptr) pools->Add(pool, attribute, value);
  return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes) noexcept {
  const CUresult result = Call(Real().cuMemPoolTrimTo, pool, bytes);
  StreamPools* const pools = Pools();
  if (result == CUDA_SUCCESS && pools != nullptr) pools->TrimTo(pool, bytes);
  return result;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* access,
                            size_t count) noexcept {
  const CUresult result = Call(Real().cuMemPoolSetAccess, pool, access, count);
  StreamPools* const pools = Pools();
  if (result != CUDA_SUCCESS || pools == nullptr) return result;
  const CUdevice own = CurrentGuest()->device();
  for (size_t i = 0; i < count; ++i) {
    if (access[i].location.id != own) pools->Shared(pool);
  }
  return result;
}

CUresult cuCtxSynchronize() noexcept {
  return Waited(Call(Real().cuCtxSynchronize));
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
