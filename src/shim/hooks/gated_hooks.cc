// The hooks of all rows GATE(stream) and HOLD of driver_api.def: wait at the gate, note the stream
// if there is one, call the driver. Copies and fills may be done without (unleased_call.h).
#include <string_view>

#include "src/shim/hooks/gated_call.h"
#include "src/shim/hooks/pointer_hooks.h"
#include "src/shim/hooks/unleased_call.h"

namespace tandem::shim {

constinit thread_local CUstream GatedCall::wanted_stream
    __attribute__((tls_model("initial-exec"))) = nullptr;

ThreadSlot* GatedCall::EnterAtLength() {
  const CUstream stream = wanted_stream;
  Real();
  ThreadSlot* const slot = process_gate.Enter(stream);
  if (slot == nullptr) return nullptr;
  WorkTracker* const tracker = process_tracker.load(std::memory_order_acquire);
  if (tracker != nullptr) tracker->Note(slot, stream);
  return slot;
}

namespace {

// A copy that blocks would block inside the gate, which could not close meanwhile. Most of that
// time is spent on work submitted before it, which can as well be waited for outside. An error
// comes back from the copy itself.
inline void WaitForEarlierWork(CUstream stream) {
  if (process_tracker.load(std::memory_order_relaxed) != nullptr) {
    Real().cuStreamSynchronize(stream);
  }
}

// Whether the driver makes the caller wait for such a copy: not where both sides are on the card.
inline bool Blocks(CUdeviceptr to, CUdeviceptr from, size_t) {
  const auto on_device = [](CUdeviceptr pointer) {
    return FindGuest([=](Guest* guest) { return guest->OnDevice(pointer); }) != nullptr;
  };
  return HasGuests() && !(on_device(to) && on_device(from));
}
inline bool Blocks(const CUDA_MEMCPY2D* copy) {
  return copy != nullptr &&
         (copy->srcMemoryType == CU_MEMORYTYPE_HOST || copy->dstMemoryType == CU_MEMORYTYPE_HOST);
}
template <typename... Arguments>
bool Blocks(Arguments...) {  // between the card and the host, by name
  return true;
}

// Whether the program wants calls to wait for what they do with that memory.
inline bool IsWaitedFor(CUdeviceptr pointer) {
  return IsSynchronous(pointer);
}
template <typename Copy>
requires requires(const Copy* copy) {
  copy->srcDevice;
}
bool IsWaitedFor(const Copy* copy) {
  return copy != nullptr && (IsSynchronous(copy->srcDevice) || IsSynchronous(copy->dstDevice));
}
template <typename Argument>
bool IsWaitedFor(Argument) {
  return false;
}
template <typename... Arguments>
bool AreWaitedFor(Arguments... arguments) {
  return (IsWaitedFor(arguments) || ...);
}

// Not inline, or the compiler would not have GatedCall inline around launches.
template <typename Submit>
[[gnu::noinline]] CUresult SubmitAndWait(CUstream stream, Submit submit) {
  CUresult result = CUDA_SUCCESS;
  {
    const GatedCall call(stream);
    if (call.refused()) return kRefusal;
    result = submit(*callable_driver.load(std::memory_order_acquire));
  }
  return result == CUDA_SUCCESS ? Real().cuStreamSynchronize(stream) : result;
}

}  // namespace
}  // namespace tandem::shim

#define TANDEM_DEFINE_PLAIN(symbol, stream, blocking, parameters, arguments)
#define TANDEM_DEFINE_GATED(symbol, stream, blocking, parameters, arguments)           \
  extern "C" CUresult symbol parameters noexcept {                                     \
    using namespace tandem::shim;                                                      \
    constexpr bool kCopies = std::string_view(#symbol).starts_with("cuMemcpy");        \
    constexpr bool kFills = std::string_view(#symbol).starts_with("cuMemset");         \
    if constexpr (kCopies || kFills) {                                                 \
      if (!process_gate.open() && UnleasedCall(stream) arguments) return CUDA_SUCCESS; \
    }                                                                                  \
    constexpr bool kBlocks = blocking && kCopies;                                      \
    if constexpr (kBlocks) {                                                           \
      if (Blocks arguments) WaitForEarlierWork(stream);                                \
    }                                                                                  \
    if constexpr (blocking && (kCopies || kFills)) {                                   \
      const auto submit = [&](auto& driver) { return driver.symbol arguments; };       \
      if (AreWaitedFor arguments) return SubmitAndWait(stream, submit);                \
    }                                                                                  \
    const GatedCall call(stream);                                                      \
    if (call.refused()) [[unlikely]]                                                   \
      return kRefusal;                                                                 \
    return callable_driver.load(std::memory_order_acquire)->symbol arguments;          \
  }
#define TANDEM_DEFINE_HELD(symbol, stream, blocking, parameters, arguments) \
  extern "C" CUresult symbol parameters noexcept {                          \
    using namespace tandem::shim;                                           \
    const HeldCall call;                                                    \
    if (call.refused()) return kRefusal;                                    \
    return Call(Real().symbol, TANDEM_STRIP arguments);                     \
  }
#define TANDEM_STRIP(...) __VA_ARGS__
#define TANDEM_KIND_PASS PLAIN, , false
#define TANDEM_KIND_OWN PLAIN, , false
#define TANDEM_KIND_HOLD HELD, , false
#define TANDEM_KIND_GATE(stream) GATED, stream, TANDEM_IS_NULL_##stream
#define TANDEM_IS_NULL_nullptr true
#define TANDEM_IS_NULL_stream false
#define TANDEM_DEFINE_(kind, stream, blocking, symbol, parameters, arguments) \
  TANDEM_DEFINE_##kind(symbol, stream, blocking, parameters, arguments)
#define TANDEM_DEFINE(...) TANDEM_DEFINE_(__VA_ARGS__)

#define CU(symbol, base, since, shim, soft, parameters, arguments) \
  TANDEM_DEFINE(TANDEM_KIND_##shim, symbol, parameters, arguments)
// In the variants the default stream, also a blocking call's, is the thread's own.
#define TANDEM_PER_THREAD(stream) \
  (stream == nullptr ? reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD_VALUE) : stream)
#define TANDEM_VARIANT_PASS PLAIN, , false
#define TANDEM_VARIANT_OWN PLAIN, , false
#define TANDEM_VARIANT_HOLD HELD, , false
#define TANDEM_VARIANT_GATE(stream) GATED, TANDEM_PER_THREAD(stream), TANDEM_IS_NULL_##stream
#define CU_PT(symbol, suffix, base, since, shim, soft, parameters, arguments) \
  TANDEM_DEFINE(TANDEM_KIND_##shim, symbol, parameters, arguments)            \
  TANDEM_DEFINE(TANDEM_VARIANT_##shim, symbol##suffix, parameters, arguments)
#include "src/cuda/driver_api.def"
#undef CU_PT
#undef CU
