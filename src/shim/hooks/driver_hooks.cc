// Hooks of driver_api.def's OWN rows: initialisation, look-up, contexts, modules, streams. The ones
// for memory are in memory_hooks.cc.
#include <array>
#include <string>
#include <unordered_map>

#include "src/base/mutex.h"
#include "src/shim/driver/unknown_functions.h"
#include "src/shim/hooks/gated_call.h"
#include "src/shim/hooks/hook_table.h"

namespace tandem::shim {
namespace {

// A device's primary context as the program knows it.
struct Primary {
  Mutex mutex;  // held while a retain waits for room: others would wait as well
  int retains GUARDED_BY(mutex) = 0;
  bool alive GUARDED_BY(mutex) = false;  // a reset ends it without releasing it
  CUcontext context GUARDED_BY(mutex) = nullptr;
  // The same while it is alive, for those who must not wait.
  std::atomic<CUcontext> alive_context{nullptr};
};

Primary& PrimaryOf(CUdevice device) {
  static auto* const primaries = new std::array<Primary, Gate::kMostDevices>;
  return (*primaries)[static_cast<size_t>(device)];
}

// Pools of other devices may have freed blocks in its streams, and it may reach their memory.
bool EndContext(Guest* guest, CUcontext context) {
  EachGuest([context](Guest* each) { each->opened().ContextEnds(context); });
  const bool credited = guest->ContextEnds(context);
  EachGuest([&](Guest* each) {
    if (each != guest) each->pools().ContextEnds(context);
    each->PeerEnds(context);
  });
  return credited;
}

using EndFunction = CUresult (*)(CUdevice);

CUresult EndPrimary(EndFunction end, CUdevice device, bool reset) {
  Guest* const guest = OpenGuest(device);
  if (guest == nullptr) return Call(end, device);
  Primary& primary = PrimaryOf(device);
  MutexLock lock(primary.mutex);
  const bool ends = primary.alive && (reset || primary.retains == 1);
  const bool credited = ends && EndContext(guest, primary.context);
  const Bytes fixed = ends ? guest->fixed().TakeAll(primary.context) : Bytes();
  const CUresult result = Call(end, device);
  if (result == CUDA_SUCCESS && !reset && primary.retains > 0) --primary.retains;
  if (ends) {
    primary.alive = false;
    primary.alive_context.store(nullptr, std::memory_order_release);
    guest->fixed().GiveBack(fixed);
    guest->ContextEnded(credited);
  }
  return result;
}

// The driver refuses to destroy a primary context this way.
bool IsPrimary(const Guest& guest, CUcontext context) {
  const Primary& primary = PrimaryOf(guest.device());
  return primary.alive_context.load(std::memory_order_acquire) == context;
}

CUresult DestroyContext(CUresult (*destroy)(CUcontext), CUcontext context) {
  Guest* const guest = FindGuest([context](Guest* each) { return each->Has(context); });
  if (guest == nullptr || IsPrimary(*guest, context)) return Call(destroy, context);
  const bool credited = EndContext(guest, context);
  const Bytes fixed = guest->fixed().TakeAll(context);
  const CUresult result = Call(destroy, context);
  guest->fixed().GiveBack(fixed);
  guest->ContextEnded(credited);
  return result;
}

// How often contexts were attached beside being made.
class Attachments {
 public:
  void Add(CUcontext context) {
    MutexLock lock(mutex_);
    counts_[context] += 1;
  }
  // False if there is none left, so that the next detachment is the context's end.
  bool Remove(CUcontext context) {
    MutexLock lock(mutex_);
    const auto found = counts_.find(context);
    if (found == counts_.end()) return false;
    if (--found->second == 0) counts_.erase(found);
    return true;
  }

 private:
  Mutex mutex_;
  std::unordered_map<CUcontext, int> counts_ GUARDED_BY(mutex_);
};

Attachments& TheAttachments() {
  static Attachments* const attachments = new Attachments;
  return *attachments;
}

// The driver detaches the current context only.
bool IsCurrent(CUcontext context) {
  CUcontext current = nullptr;
  return Call(Real().cuCtxGetCurrent, &current) == CUDA_SUCCESS && current == context;
}

// A new context takes memory that cannot be swapped: there must be room for it first.
template <typename Create>
CUresult CreateContext(CUcontext* context, CUdevice device, Create create) {
  const auto [guest, refusal] = context == nullptr ? GuestResult() : GuestOn(device);
  if (guest == nullptr) return refusal != CUDA_SUCCESS ? refusal : create();
  const auto wait = [guest = guest] { return guest->WaitForContext(); };
  if (!guest->Retry(wait)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = create();
  if (result == CUDA_SUCCESS) {
    guest->ContextMade(*context);
  } else {
    guest->ContextNotMade();
  }
  return result;
}

CUresult DestroyStream(CUresult (*destroy)(CUstream), CUstream stream) {
  if (destroy == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  EachGuest([stream](Guest* guest) { guest->pools().StreamEnds(stream); });
  WorkTracker* const tracker = process_tracker.load(std::memory_order_acquire);
  return tracker != nullptr ? tracker->DestroyStream(stream, destroy) : destroy(stream);
}

// What a look-up found, or the hook for it. A driver that hands out other pointers than it exports
// is recognised by name and version.
void* SubstituteFound(void* found, const char* name, int version, cuuint64_t flags) {
  void* const hook = Substitute(found, name);
  if (hook != found || found == nullptr) return hook;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const cuda::ProcAddress row = cuda::ResolveProcAddress(name, version, per_thread);
  void* const by_name = row.symbol == nullptr ? nullptr : HookOf(row.symbol);
  if (row.known && by_name == nullptr) return found;
  // A driver newer than our table may mean another function by the name: then not the one that it
  // gives for the version that our hook is of.
  void* of_hook = nullptr;
  if (by_name == nullptr) {
    // Nor is the name in our table.
  } else if (Real().cuGetProcAddress_v2 != nullptr) {
    CUdriverProcAddressQueryResult status;
    Real().cuGetProcAddress_v2(name, &of_hook, row.since, flags, &status);
  } else {
    Call(Real().cuGetProcAddress, name, &of_hook, row.since, flags);
  }
  if (of_hook == found) return by_name;
  const std::string described = std::string(name) + " of CUDA " + std::to_string(version / 1000);
  void* const refusal = RefusalOf(described.c_str());
  return refusal != nullptr ? refusal : found;
}

}  // namespace
}  // namespace tandem::shim

using namespace tandem;
using namespace tandem::shim;

extern "C" {

CUresult cuInit(unsigned int flags) noexcept {
  const CUresult result = Call(Real().cuInit, flags);
  if (result != CUDA_SUCCESS || JoinDaemon()) return result;
  return CUDA_ERROR_SYSTEM_NOT_READY;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version,
                          cuuint64_t flags) noexcept {
  const CUresult result = Call(Real().cuGetProcAddress, symbol, function, version, flags);
  if (result == CUDA_SUCCESS && function != nullptr) {
    *function = SubstituteFound(*function, symbol, version, flags);
  }
  return result;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) noexcept {
  const CUresult result =
      Call(Real().cuGetProcAddress_v2, symbol, function, version, flags, status);
  if (result == CUDA_SUCCESS && function != nullptr) {
    *function = SubstituteFound(*function, symbol, version, flags);
  }
  return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) noexcept {
  const auto retain = [&] { return Call(Real().cuDevicePrimaryCtxRetain, context, device); };
  const auto [guest, refusal] = context == nullptr ? GuestResult() : GuestOn(device);
  if (guest == nullptr) return refusal != CUDA_SUCCESS ? refusal : retain();
  Primary& primary = PrimaryOf(device);
  MutexLock lock(primary.mutex);
  const CUresult result = primary.alive ? retain() : CreateContext(context, device, retain);
  if (result == CUDA_SUCCESS) {
    ++primary.retains;
    primary.alive = true;
    primary.context = *context;
    primary.alive_context.store(*context, std::memory_order_release);
  }
  return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) noexcept {
  return EndPrimary(Real().cuDevicePrimaryCtxRelease, device, false);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) noexcept {
  return EndPrimary(Real().cuDevicePrimaryCtxRelease_v2, device, false);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) noexcept {
  return EndPrimary(Real().cuDevicePrimaryCtxReset, device, true);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) noexcept {
  return EndPrimary(Real().cuDevicePrimaryCtxReset_v2, device, true);
}

CUresult cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) noexcept {
  if (Real().cuCtxCreate == nullptr) return CUDA_ERROR_NOT_INITIALIZED;  // before others give way
  return CreateContext(context, device,
                       [&] { return Call(Real().cuCtxCreate, context, flags, device); });
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) noexcept {
  return CreateContext(context, device,
                       [&] { return Call(Real().cuCtxCreate_v2, context, flags, device); });
}

CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinities, int count,
                        unsigned int flags, CUdevice device) noexcept {
  return CreateContext(context, device, [&] {
    return Call(Real().cuCtxCreate_v3, context, affinities, count, flags, device);
  });
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned int flags,
                        CUdevice device) noexcept {
  return CreateContext(context, device, [&] {
    return Call(Real().cuCtxCreate_v4, context, parameters, flags, device);
  });
}

CUresult cuCtxDestroy(CUcontext context) noexcept {
  return DestroyContext(Real().cuCtxDestroy, context);
}

CUresult cuCtxDestroy_v2(CUcontext context) noexcept {
  return DestroyContext(Real().cuCtxDestroy_v2, context);
}

CUresult cuCtxAttach(CUcontext* context, unsigned int flags) noexcept {
  const CUresult result = Call(Real().cuCtxAttach, context, flags);
  if (result == CUDA_SUCCESS && context != nullptr) TheAttachments().Add(*context);
  return result;
}

// The last one destroys the context.
CUresult cuCtxDetach(CUcontext context) noexcept {
  const bool ends = IsCurrent(context) && !TheAttachments().Remove(context);
  if (!ends) return Call(Real().cuCtxDetach, context);
  return DestroyContext(Real().cuCtxDetach, context);
}

// Our memory is its device's alone until others are let at it, too.
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) noexcept {
  const CUresult result = Call(Real().cuCtxEnablePeerAccess, peer, flags);
  if (result == CUDA_SUCCESS) EachGuest([peer](Guest* guest) { guest->SetPeer(peer, true); });
  return result;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) noexcept {
  const CUresult result = Call(Real().cuCtxDisablePeerAccess, peer);
  if (result == CUDA_SUCCESS) EachGuest([peer](Guest* guest) { guest->SetPeer(peer, false); });
  return result;
}

// The stream stands in the configuration, where no row of the table could name it.
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) noexcept {
  const GatedCall call(config == nullptr ? nullptr : config->hStream);
  if (call.refused()) return kRefusal;
  return callable_driver.load(std::memory_order_acquire)
      ->cuLaunchKernelEx(config, function, parameters, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction function, void** parameters,
                               void** extra) noexcept {
  const CUstream given = config == nullptr ? nullptr : config->hStream;
  const GatedCall call(given == nullptr ? reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD_VALUE)
                                        : given);
  if (call.refused()) return kRefusal;
  return callable_driver.load(std::memory_order_acquire)
      ->cuLaunchKernelEx_ptsz(config, function, parameters, extra);
}

CUresult cuStreamDestroy(CUstream stream) noexcept {
  return DestroyStream(Real().cuStreamDestroy, stream);
}

CUresult cuStreamDestroy_v2(CUstream stream) noexcept {
  return DestroyStream(Real().cuStreamDestroy_v2, stream);
}

}  // extern "C"
