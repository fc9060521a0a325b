// The hook for the limits of a context: the heap of its kernels, and what they print into, are
// memory that stays on the card.
#include <algorithm>

#include "src/shim/gated_call.h"

namespace tandem::shim {
namespace {

// In place of a handle: no object begins there.
const void* KeyOf(CUcontext context, CUlimit limit) {
  return reinterpret_cast<const char*>(context) + 1 + limit;
}

bool TakesMemory(CUlimit limit) {
  return limit == CU_LIMIT_PRINTF_FIFO_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE;
}

Bytes Limit(CUlimit limit) {
  size_t value = 0;
  return Call(Real().cuCtxGetLimit, &value, limit) == CUDA_SUCCESS ? Bytes(value) : Bytes();
}

CUresult SetLimit(CUlimit limit, size_t value) {
  const HeldCall call;
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
  const Bytes before = Limit(limit);
  const Bytes more = SaturatingSubtract(Bytes(value), before);
  if (more > Bytes() && !guest->MakeRoom(more)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = SetLimit(limit, value);
  const Bytes after = Limit(limit);
  FixedMemory& fixed = guest->fixed();
  const Bytes had = fixed.Take(KeyOf(context, limit)).bytes;
  const Bytes due = SaturatingSubtract(had + after, before);
  const Bytes has = std::min(due, had + more);
  if (has > Bytes()) fixed.Put(KeyOf(context, limit), {context, has});
  fixed.GiveBack(had + more - has);
  return result;
}

}  // extern "C"
