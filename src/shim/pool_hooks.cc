// Hooks of driver_api.def's OWN rows for stream-ordered memory and its pools, and for waiting,
// after which pools give back what they keep. What StreamPools has no answer to goes to the driver.
#include <span>

#include "src/shim/capture_mode.h"
#include "src/shim/process.h"

namespace tandem::shim {
namespace {

const CUstream kLegacy = reinterpret_cast<CUstream>(CU_STREAM_LEGACY_VALUE);
const CUstream kPerThread = reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD_VALUE);

template <typename Visit>
void EachPools(Visit visit) {
  EachGuest([&](Guest* guest) { visit(&guest->pools()); });
}

struct Order {
  Guest* guest = nullptr;
  StreamPools::Place place;
};

// Or the driver will not say.
bool MayBeCaptured(CUstream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  return Call(Real().cuStreamIsCapturing, stream, &capture) != CUDA_SUCCESS ||
         capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

Guest* GuestWith(CUcontext context) {
  return FindGuest([context](Guest* guest) { return guest->Has(context); });
}

// Of a default stream, the current one. False where it is no stream.
bool ContextOf(CUstream stream, CUcontext* context) {
  if (stream == kLegacy || stream == kPerThread) {
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
    const CUresult health = order->guest->Health(order->place.context);
    if (health != CUDA_SUCCESS) return health;
    CUmemoryPool handle = pool == nullptr ? nullptr : *pool;
    if (pool == nullptr) Call(Real().cuDeviceGetMemPool, &handle, order->guest->device());
    result = order->guest->pools().Allocate(handle, bytes, order->place, pointer);
  }
  return result.has_value() ? *result : call_driver();
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
  if (guest == nullptr || MayBeCaptured(stream) || !ContextOf(stream, &place.context))
    return call_driver();
  const std::optional<CUresult> result = guest->pools().Free(pointer, place);
  return result.has_value() ? *result : call_driver();
}

// What a call of the driver's that waits has returned.
CUresult Waited(CUresult result) {
  EachPools([](StreamPools* pools) { pools->Synchronized(); });
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
  EachPools([pool](StreamPools* pools) { pools->Destroying(pool); });
  const CUresult result = Call(Real().cuMemPoolDestroy, pool);
  EachPools([&](StreamPools* pools) {
    if (result != CUDA_SUCCESS) pools->NotDestroyed(pool);
    pools->Synchronized();
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
  EachPools([=](StreamPools* pools) { pools->TrimTo(pool, bytes); });
  return result;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* access,
                            size_t count) noexcept {
  const CUresult result = Call(Real().cuMemPoolSetAccess, pool, access, count);
  if (result != CUDA_SUCCESS) return result;
  EachGuest([=](Guest* guest) {
    for (const CUmemAccessDesc& each : std::span(access, count)) {
      const CUmemLocation own = {CU_MEM_LOCATION_TYPE_DEVICE, guest->device()};
      const bool others = each.location.type != own.type || each.location.id != own.id;
      if (others) guest->pools().Shared(pool);
    }
  });
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
