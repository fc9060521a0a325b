// The hook for the limits of a context: the heap of its kernels, what they print into, and their
// stacks are memory that stays on the card.
#include <algorithm>
#include <limits>

#include "src/shim/hooks/gated_call.h"

namespace tandem::shim {
namespace {

// In place of a handle: no object begins there.
const void* KeyOf(CUcontext context, CUlimit limit) {
  return reinterpret_cast<const char*>(context) + 1 + limit;
}

bool TakesMemory(CUlimit limit) {
  return limit == CU_LIMIT_PRINTF_FIFO_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE ||
         limit == CU_LIMIT_STACK_SIZE;
}

uint64_t AttributeOf(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  const CUresult result = Call(Real().cuDeviceGetAttribute, &value, attribute, device);
  return result == CUDA_SUCCESS && value > 0 ? static_cast<uint64_t>(value) : 0;
}

// How often the card has what the limit stands for: there is a stack for every thread that it can
// hold. They count at once, though drivers may set them aside only when a kernel starts.
uint64_t TimesOnCard(CUlimit limit, CUdevice device) {
  if (limit != CU_LIMIT_STACK_SIZE) return 1;
  return AttributeOf(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
         AttributeOf(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
}

Bytes Product(uint64_t value, uint64_t times) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  return Bytes(times != 0 && value > kMost / times ? kMost : value * times);
}

uint64_t Limit(CUlimit limit) {
  size_t value = 0;
  return Call(Real().cuCtxGetLimit, &value, limit) == CUDA_SUCCESS ? value : 0;
}

CUresult SetLimit(CUlimit limit, size_t value) {
  const HeldCall call;
  if (call.refused()) return kRefusal;
  return Call(Real().cuCtxSetLimit, limit, value);
}

}  // namespace
}  // namespace tandem::shim

using namespace tandem;
using namespace tandem::shim;

extern "C" {

// What a context begins with is part of what it costs; only the rest is counted here.
CUresult cuCtxSetLimit(CUlimit limit, size_t value) noexcept {
  CUcontext context = nullptr;
  Guest* const guest = TakesMemory(limit) ? GuestOfCurrentContext(&context) : nullptr;
  if (guest == nullptr) return SetLimit(limit, value);
  const uint64_t times = TimesOnCard(limit, guest->device());
  const Bytes before = Product(Limit(limit), times);
  const Bytes more = SaturatingSubtract(Product(value, times), before);
  if (more > Bytes() && !guest->MakeRoom(more)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = SetLimit(limit, value);
  const Bytes after = Product(Limit(limit), times);
  FixedMemory& fixed = guest->fixed();
  const Bytes had = fixed.Take(KeyOf(context, limit)).bytes;
  const Bytes due = SaturatingSubtract(had + after, before);
  const Bytes has = std::min(due, had + more);
  if (has > Bytes()) fixed.Put(KeyOf(context, limit), {context, has});
  fixed.GiveBack(had + more - has);
  return result;
}

}  // extern "C"
