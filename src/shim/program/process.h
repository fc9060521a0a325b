// Process: what libtandem.so keeps once per process: the real driver, the gate, and a guest for
// each GPU that the program uses, if they are shared.
//
// Before cuInit nothing is done: no connection, no thread, no allocation. cuInit looks for a
// daemon; where there is none every call goes straight to the driver. The first context on a device
// opens its guest. A program with several is let through the gate when all of them let it.
//
// Threading: any thread. Nothing here holds a lock while it calls the dynamic linker: a program may
// be inside its lock and wait for us.
#pragma once

#include <type_traits>

#include "src/cuda/real_driver.h"
#include "src/shim/gate/gate.h"
#include "src/shim/gate/work_tracker.h"
#include "src/shim/program/guest.h"

namespace tandem::shim {

// The gate of the process. Shut until cuInit (or the first call without it) has found the driver.
[[gnu::visibility("hidden")]] extern Gate process_gate;
// In the place of a stream, for calls that submit to none.
inline const CUstream kNoStream = reinterpret_cast<CUstream>(~uintptr_t{0});
// The default streams by their own handles.
inline const CUstream kLegacyStream = reinterpret_cast<CUstream>(CU_STREAM_LEGACY_VALUE);
inline const CUstream kPerThreadStream = reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD_VALUE);
// Null as long as nothing is shared: then calls are not counted.
extern std::atomic<WorkTracker*> process_tracker;

// The real driver, loaded if the program has not done so itself; all functions are null where there
// is none.
const cuda::RealDriver& Real();

// The same for calls inside the gate: nothing in it is null, what the driver lacks answers
// CUDA_ERROR_NOT_INITIALIZED. REQUIRES: Real() has been called, without which the gate stays shut.
[[gnu::visibility("hidden")]] extern std::atomic<const cuda::RealDriver*> callable_driver;

// Has the launches of a table, which is to be called inside the gate, note what memory they name
// (launch_names.cc).
void NoteNamesInLaunches(cuda::RealDriver* table);

// The driver's library, if the program has loaded it; null otherwise.
void* DriverLibrary();

// Calls a function of the real driver; what cuInit would have been needed for, where it has none.
template <typename Result, typename... Parameters, typename... Arguments>
Result Call(Result (*function)(Parameters...), Arguments... arguments) {
  return function == nullptr ? CUDA_ERROR_NOT_INITIALIZED : function(arguments...);
}

// Whether work in the stream becomes part of a graph; true also where the driver will not say.
bool MayBeCaptured(CUstream stream);

// Whether it is settled that the program shares nothing: no daemon was there, or it is a forked
// child of a program that used the GPU.
bool IsUnshared();

// After a successful cuInit: looks for a daemon, once. False where the program was interrupted
// while it waited for its run's: nothing may be made on a device before it has called again.
bool JoinDaemon();

// The first answer of one of the open guests, asked in the order of their devices. What `ask`
// returns converts to false where a guest has no answer, and is default-constructed where none has.
template <typename Ask>
std::invoke_result_t<Ask, Guest*> AskGuests(Ask ask);
// The first of the open guests, in the order of their devices, for which `is` holds; or null.
template <typename Predicate>
Guest* FindGuest(Predicate is);
template <typename Visit>
void EachGuest(Visit visit);
// Whether there is any.
bool HasGuests();
// The guest for `device` if it is open, else null.
Guest* OpenGuest(CUdevice device);
// The program's guest on a device, or why it has none.
struct GuestResult {
  Guest* guest = nullptr;
  // Where there is no guest: what to answer to a call that would make something on the device; or
  // success, and the call is the driver's.
  CUresult refusal = CUDA_SUCCESS;
};
// The program's guest on `device`, which is opened if need be.
GuestResult GuestOn(CUdevice device);
// The guest for the device of the calling thread's context, which is *context.
Guest* GuestOfCurrentContext(CUcontext* context);

// How many devices have ever had a guest, counted from the first ordinal on.
extern std::atomic<int> guests_end;

template <typename Ask>
std::invoke_result_t<Ask, Guest*> AskGuests(Ask ask) {
  const int end = guests_end.load(std::memory_order_acquire);
  for (CUdevice device = 0; device < end; ++device) {
    Guest* const guest = OpenGuest(device);
    if (guest == nullptr) continue;
    if (auto answer = ask(guest)) return answer;
  }
  return {};
}

template <typename Predicate>
Guest* FindGuest(Predicate is) {
  return AskGuests([&](Guest* guest) { return is(guest) ? guest : nullptr; });
}

template <typename Visit>
void EachGuest(Visit visit) {
  AskGuests([&](Guest* guest) {
    visit(guest);
    return false;  // so that all are asked
  });
}

}  // namespace tandem::shim
