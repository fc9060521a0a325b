#include "src/shim/program/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "src/base/mutex.h"
#include "src/cuda/uuid.h"
#include "src/shim/link/ipc_handle.h"
#include "src/shim/link/run_daemon.h"
#include "src/shim/os/log.h"
#include "src/shim/os/true_symbols.h"
#include "src/wire/channel.h"
#include "src/wire/runtime_dir.h"

namespace tandem::shim {
namespace {

// The real driver as found in a library.
struct Driver {
  void* library;
  cuda::RealDriver table, callable, noting;
};

enum class Mode { kUndecided, kPassThrough, kShared };

// The context that a thread last had on a shared device, as long as no context has gone since.
struct ContextOfThread {
  CUcontext context = nullptr;
  uint64_t generation = 0;
  Guest* guest = nullptr;
};
constinit thread_local ContextOfThread context_of_thread __attribute__((tls_model("initial-exec")));

constinit std::atomic<const Driver*> driver{nullptr};
constinit std::atomic<Guest*> guests[Gate::kMostDevices] = {};  // by device
constinit std::atomic<bool> refused[Gate::kMostDevices] = {};   // for good
constinit std::atomic<bool> shut_out[Gate::kMostDevices] = {};  // it has been said that it is
constinit std::atomic<Mode> mode{Mode::kUndecided};
// The program was interrupted in its cuInit, and has not called it again with more patience.
constinit std::atomic<bool> given_up{false};
constinit std::atomic<bool> notes_names{false};  // some device is oversubscribed

// Never destroyed: threads outlive static destructors.
Mutex& DecisionMutex() {
  static Mutex* const mutex = new Mutex;
  return *mutex;
}

void* LookUp(void* library, const char* symbol) {
  return TrueDlsym()(library, symbol);
}

// For any function: its caller clears the stack.
CUresult Absent() {
  return CUDA_ERROR_NOT_INITIALIZED;
}

template <typename Function>
Function OrAbsent(Function function) {
  return function != nullptr ? function
                             : reinterpret_cast<Function>(reinterpret_cast<void*>(&Absent));
}

cuda::RealDriver Callable(cuda::RealDriver table) {
#define CU(symbol, base, since, shim, soft, parameters, arguments) \
  table.symbol = OrAbsent(table.symbol);
#include "src/cuda/driver_api.def"
#undef CU
  return table;
}

const Driver* MakeDriver(void* library) {
  auto* const made = new Driver;
  made->library = library;
  made->table = cuda::LoadRealDriver(library, &LookUp);
  made->callable = Callable(made->table);
  made->noting = made->table;
  NoteNamesInLaunches(&made->noting);
  made->noting = Callable(made->noting);
  return made;
}

const Driver* TheDriver(bool load) {
  const Driver* known = driver.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | (load ? 0 : RTLD_NOLOAD));
  if (library == nullptr) {
    dlerror();  // ours, not the program's: its own look-up went well
    return nullptr;
  }
  const Driver* const made = MakeDriver(library);
  dlerror();  // of what this driver lacks
  if (driver.compare_exchange_strong(known, made, std::memory_order_acq_rel)) return made;
  delete made;
  return known;
}

void OnBlocked(void*) {
  if (HasGuests()) {
    EachGuest([](Guest* guest) { guest->Wake(); });
  } else if (mode.load(std::memory_order_acquire) != Mode::kShared) {
    process_gate.Open();  // a call before cuInit: the driver itself says what it thinks of that
  }
  // Else a guest is being opened, and will look who waits.
}

void OnMetered(void*, CUstream stream) {
  WorkTracker* const tracker = process_tracker.load(std::memory_order_acquire);
  if (tracker != nullptr && stream != kNoStream) tracker->AwaitWindow(process_gate, stream);
}

// The child has the parent's memory but none of its threads, nor a right to its session.
void AfterForkInChild() {
  Gate::AfterFork();
  mode.store(Mode::kPassThrough, std::memory_order_release);
  process_tracker.store(nullptr, std::memory_order_release);
  for (std::atomic<Guest*>& guest : guests) {
    Guest* const inherited = guest.exchange(nullptr, std::memory_order_acq_rel);
    if (inherited != nullptr) inherited->AbandonInChild();
  }
  process_gate.OpenInChild();
}

Identity IdentityOn(CUdevice device) {
  Identity identity;
  identity.build = TANDEM_BUILD;
  identity.program = program_invocation_short_name;
  identity.run = OwnRun();
  identity.device = cuda::FormatUuid(cuda::UuidOf(Real(), device));
  return identity;
}

}  // namespace

constinit Gate process_gate(&OnBlocked, nullptr, &OnMetered);
constinit std::atomic<WorkTracker*> process_tracker{nullptr};
constinit std::atomic<int> guests_end{0};
constinit std::atomic<const cuda::RealDriver*> callable_driver{nullptr};

const cuda::RealDriver& Real() {
  static constexpr cuda::RealDriver kNone;
  const Driver* const found = TheDriver(true);
  if (found != nullptr) {
    // Every thread that finds the driver waits here, not only the first: none may go on before this
    // is done.
    const bool notes = notes_names.load(std::memory_order_acquire);
    const cuda::RealDriver* const callable = notes ? &found->noting : &found->callable;
    const cuda::RealDriver* known = callable_driver.load(std::memory_order_relaxed);
    // Who has not heard yet that launches note names does not take that away again.
    while (known != callable && known != &found->noting) {
      if (callable_driver.compare_exchange_weak(known, callable, std::memory_order_acq_rel)) break;
    }
    return found->table;
  }
  static const cuda::RealDriver absent = Callable(kNone);
  const cuda::RealDriver* nothing = nullptr;
  callable_driver.compare_exchange_strong(nothing, &absent, std::memory_order_acq_rel);
  return kNone;
}

void* DriverLibrary() {
  const Driver* const found = TheDriver(false);
  return found == nullptr ? nullptr : found->library;
}

bool MayBeCaptured(CUstream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  return Call(Real().cuStreamIsCapturing, stream, &capture) != CUDA_SUCCESS ||
         capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

namespace {

// REQUIRES: DecisionMutex() is held.
void StartSharing() {
  Gate::RegisterProcess();
  pthread_atfork(&Gate::BeforeFork, &Gate::AfterFork, &AfterForkInChild);
  process_tracker.store(new WorkTracker(&Real()), std::memory_order_release);
  mode.store(Mode::kShared, std::memory_order_release);
}

}  // namespace

bool JoinDaemon() {
  if (mode.load(std::memory_order_acquire) != Mode::kUndecided) return true;
  const auto channel = AwaitDaemon([] { return wire::ConnectDaemon(wire::SocketPath()); });
  const bool interrupted = !channel.ok() && channel.error().code == ErrorCode::kInterrupted;
  MutexLock lock(DecisionMutex());
  if (mode.load(std::memory_order_acquire) != Mode::kUndecided) return true;
  if (interrupted) {
    given_up.store(true, std::memory_order_release);
    return false;
  }
  // What keeps a program of a run from its daemon is said when it wants to use a device.
  if (channel.ok() || OwnRun() != 0) {
    StartSharing();
  } else {
    Log(LogLevel::kWarn, "%s; this program runs unshared", channel.error().message.c_str());
    mode.store(Mode::kPassThrough, std::memory_order_release);
  }
  given_up.store(false, std::memory_order_release);
  process_gate.Open();  // until there is a guest, that is a context, there is nothing to hold back
  return true;
}

bool IsUnshared() {
  return mode.load(std::memory_order_acquire) == Mode::kPassThrough;
}

bool HasGuests() {
  return FindGuest([](Guest*) { return true; }) != nullptr;
}

Guest* OpenGuest(CUdevice device) {
  const bool known = device >= 0 && device < guests_end.load(std::memory_order_acquire);
  return known ? guests[device].load(std::memory_order_acquire) : nullptr;
}

namespace {

// REQUIRES: DecisionMutex() is held, which keeps a device from having two.
Result<Guest*> MakeGuest(CUdevice device) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<Guest> opened,
      Guest::Open(&Real(), &process_gate, process_tracker.load(), device, IdentityOn(device)));
  Guest* const made = opened.release();
  guests[device].store(made, std::memory_order_seq_cst);
  if (guests_end.load() <= device) guests_end.store(device + 1, std::memory_order_seq_cst);
  if (made->oversubscribes()) {
    notes_names.store(true, std::memory_order_release);
    Real();
  }
  made->Wake();  // for threads that the gate held back before
  return made;
}

// Whether no device is left that may be shared.
bool NoneIsLeft() {
  int count = 0;
  Call(Real().cuDeviceGetCount, &count);
  count = std::min(count, static_cast<int>(Gate::kMostDevices));
  return std::all_of(refused, refused + count, [](const auto& each) { return each.load(); });
}

// REQUIRES: DecisionMutex() is held.
void Unshare(CUdevice device, const Error& why) {
  refused[device].store(true, std::memory_order_release);
  if (!NoneIsLeft()) {
    Log(LogLevel::kWarn, "%s; device %d is not shared", why.message.c_str(), device);
  } else {
    Log(LogLevel::kWarn, "%s; this program runs unshared", why.message.c_str());
    mode.store(Mode::kPassThrough, std::memory_order_release);
    process_tracker.store(nullptr, std::memory_order_release);
  }
}

bool MayBeShared(CUdevice device) {
  return mode.load(std::memory_order_acquire) == Mode::kShared &&
         !refused[device].load(std::memory_order_acquire);
}

// A device that has no guest, for `why`.
GuestResult Without(CUdevice device, const Error& why) {
  MutexLock lock(DecisionMutex());
  if (Guest* const open = OpenGuest(device)) return {open};
  if (!MayBeShared(device)) return {};
  const bool alone = OwnRun() == 0 && why.code != ErrorCode::kForbidden;
  if (alone || why.code == ErrorCode::kUnsupported) {
    Unshare(device, why);
    return {};
  }
  // Beside the others of its run, or of the GPU's jobs, it would take what they were promised.
  if (why.code != ErrorCode::kInterrupted && !shut_out[device].exchange(true)) {
    Log(LogLevel::kWarn, "%s; device %d is out of memory for this program", why.message.c_str(),
        device);
  }
  return {nullptr, CUDA_ERROR_OUT_OF_MEMORY};
}

}  // namespace

GuestResult GuestOn(CUdevice device) {
  static_assert(Gate::kMostDevices <= 63);
  if (Guest* const open = OpenGuest(device)) return {open};
  if (device < 0 || device >= static_cast<CUdevice>(Gate::kMostDevices)) return {};
  if (mode.load(std::memory_order_acquire) == Mode::kPassThrough) return {};
  int count = 0;
  if (Call(Real().cuDeviceGetCount, &count) != CUDA_SUCCESS || device >= count) return {};
  // The driver may be ready while another thread still waits for a daemon.
  if (given_up.load(std::memory_order_acquire) || !JoinDaemon()) {
    return {nullptr, CUDA_ERROR_NOT_INITIALIZED};
  }
  if (!MayBeShared(device)) return {};
  const Result<Guest*> guest = AwaitDaemon([device]() -> Result<Guest*> {
    MutexLock lock(DecisionMutex());
    if (Guest* const open = OpenGuest(device)) return open;
    if (!MayBeShared(device)) return Error{ErrorCode::kUnsupported, "the device is not shared"};
    return MakeGuest(device);
  });
  return guest.ok() ? GuestResult{*guest} : Without(device, guest.error());
}

Guest* GuestOfCurrentContext(CUcontext* context) {
  if (mode.load(std::memory_order_acquire) != Mode::kShared) return nullptr;
  CUdevice device = 0;
  const cuda::RealDriver& real = Real();
  if (real.cuCtxGetCurrent(context) != CUDA_SUCCESS || *context == nullptr) return nullptr;
  const uint64_t generation = WorkTracker::Generation();
  ContextOfThread& last = context_of_thread;
  if (last.context == *context && last.generation == generation) return last.guest;
  if (real.cuCtxGetDevice(&device) != CUDA_SUCCESS) return nullptr;
  Guest* const found = GuestOn(device).guest;
  if (found != nullptr) last = {*context, generation, found};
  return found;
}

}  // namespace tandem::shim
