#include "softgpu/driver/driver.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace tandem::soft {
namespace {

// Device addresses of a process, enough for all its VRAM and as much again for reservations and
// page-locked memory. Address space only: it costs nothing until it is used.
constexpr uint64_t kAddressSpaceBytes = 2 * kMaxVram.count;

std::atomic<Driver*> g_driver = nullptr;
std::atomic<bool> g_forked = false;
std::atomic<bool> g_shut_down = false;
thread_local int t_host_functions = 0;

void OnForkedChild() {
  KeptFd::AfterFork();
  if (!g_forked.exchange(true)) KeptFd::CloseAll();
}

CUresult Report(const Error& error) {
  std::fprintf(stderr, "tandem software GPU: %s\n", error.message.c_str());
  return error.code == ErrorCode::kInvalid ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_OPERATING_SYSTEM;
}

Result<std::unique_ptr<Driver>> MakeDriver() {
  auto driver = std::make_unique<Driver>();
  ASSIGN_OR_RETURN(driver->options, ParseOptions(secure_getenv));
  const int devices = static_cast<int>(driver->options.devices.size());
  ASSIGN_OR_RETURN(driver->space, AddressSpace::Create(kAddressSpaceBytes, devices));
  driver->faults = std::make_unique<Faults>(driver->options.live, driver->options.live_file);
  driver->memory = std::make_unique<Memory>(driver->space.get(), &driver->scheduler);
  for (const DeviceOption& option : driver->options.devices) {
    const int ordinal = static_cast<int>(driver->devices.size());
    ASSIGN_OR_RETURN(auto device,
                     Device::Open(ordinal, option, driver->options, driver->space.get(),
                                  &driver->scheduler, driver->faults.get()));
    MutexLock lock(driver->memory->mutex());
    driver->memory->AddHeap(ordinal, &device->heap());
    driver->devices.push_back(std::move(device));
  }
  return driver;
}

CUresult InitialiseOnce() {
  auto driver = MakeDriver();
  if (!driver.ok()) return Report(driver.error());
  pthread_atfork(KeptFd::BeforeFork, KeptFd::AfterFork, OnForkedChild);
  g_driver.store(std::move(driver).value().release());
  // What a program's own handlers and destructors call after this one is too late, as with
  // NVIDIA's.
  std::atexit([] { g_shut_down.store(true); });
  return CUDA_SUCCESS;
}

// The calling thread's default stream in a context. The thread's end drops its streams; what ended
// contexts leave behind goes when the next stream is made.
std::shared_ptr<Stream> PerThreadStream(const std::shared_ptr<Context>& context) {
  thread_local std::map<std::weak_ptr<Context>, std::shared_ptr<Stream>, std::owner_less<>> streams;
  std::shared_ptr<Stream>& mine = streams[context];
  if (!mine) {
    mine = std::make_shared<Stream>(context->group, StreamKind::kBlocking, 0);
    std::erase_if(streams, [](const auto& entry) { return entry.first.expired(); });
  }
  return mine;
}

}  // namespace

CUresult Initialise() {
  if (g_forked.load()) return CUDA_ERROR_NOT_INITIALIZED;
  static const CUresult result = InitialiseOnce();
  return result;
}

CUresult Usable() {
  if (g_driver.load(std::memory_order_acquire) == nullptr || g_forked.load()) {
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  if (g_shut_down.load()) return CUDA_ERROR_DEINITIALIZED;
  return t_host_functions > 0 ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult Ready() {
  CU_TRY(Usable());
  TheDriver().checkpoint.Pass();
  return CUDA_SUCCESS;
}

Driver& TheDriver() {
  return *g_driver.load(std::memory_order_acquire);
}

CUresult FindDevice(CUdevice ordinal, Device** device) {
  CU_TRY(Ready());
  *device = TheDriver().FindDevice(ordinal);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

HostFunctionScope::HostFunctionScope() {
  ++t_host_functions;
}
HostFunctionScope::~HostFunctionScope() {
  --t_host_functions;
}

std::vector<std::shared_ptr<Context>>& ContextStack() {
  thread_local std::vector<std::shared_ptr<Context>> stack;
  return stack;
}

CUresult CurrentContext(std::shared_ptr<Context>* context) {
  CU_TRY(Ready());
  auto& stack = ContextStack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.back()->destroyed.load()) {
    // A primary context that was made anew is the one that was current all the time.
    const auto again = TheDriver().FindLiving(HandleOf(stack.back()));
    if (!again) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    stack.back() = again;
  }
  *context = stack.back();
  return CUDA_SUCCESS;
}

CUresult HealthyContext(std::shared_ptr<Context>* context) {
  CU_TRY(CurrentContext(context));
  return (*context)->error();
}

CUresult HealthyOrNoContext() {
  CU_TRY(Ready());
  std::shared_ptr<Context> unused;
  return ContextStack().empty() ? CUDA_SUCCESS : HealthyContext(&unused);
}

thread_local int PerThreadDefault::depth = 0;

CUresult FindStream(const std::shared_ptr<Context>& current, CUstream handle,
                    std::shared_ptr<Context>* context, std::shared_ptr<Stream>* stream) {
  const auto value = reinterpret_cast<uintptr_t>(handle);
  *context = current;
  if (value == CU_STREAM_LEGACY_VALUE || (value == 0 && !PerThreadDefault::active())) {
    *stream = current->legacy;
    return CUDA_SUCCESS;
  }
  if (value == 0 || value == CU_STREAM_PER_THREAD_VALUE) {
    *stream = PerThreadStream(current);
    return CUDA_SUCCESS;
  }
  const auto found = TheDriver().streams.Find(handle);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  *context = found->context;
  *stream = found->stream;
  return found->context->error();
}

std::optional<Dependency> PendingShared(const Event& event,
                                        const std::shared_ptr<StreamGroup>& group) {
  constexpr int kLooksBetweenQuestions = 256;
  const std::shared_ptr<IpcEvent> shared = event.shared;
  const auto mark = shared->Latest();
  if (!mark || shared->Reached(*mark)) return std::nullopt;
  if (auto own = shared->TaskOf(*mark)) return own;
  const auto holds = [shared, mark = *mark, looks = 0]() mutable {
    return shared->Reached(mark) ||
           (looks++ % kLooksBetweenQuestions == 0 && shared->Abandoned(mark));
  };
  return TheDriver().watch.Until(group, {}, holds);
}

Device* Driver::FindDevice(CUdevice device) {
  if (device < 0 || static_cast<size_t>(device) >= devices.size()) return nullptr;
  return devices[device].get();
}

int Driver::OrdinalOf(const CUuuid& device) const {
  for (const auto& known : devices) {
    const CUuuid uuid = known->uuid();
    if (std::memcmp(&uuid, &device, sizeof(uuid)) == 0) return known->ordinal();
  }
  return -1;
}

CUresult Driver::CreateContext(Device* device, unsigned int flags, uint64_t primary_id,
                               std::shared_ptr<Context>* context) {
  {
    MutexLock lock(memory->mutex());
    const auto charge = [&] { return device->shared().Charge(options.context); };
    if (!memory->Manage(device, charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const bool primary = primary_id != 0;
  *context = std::make_shared<Context>(primary ? primary_id : NewHandle(), device, flags, primary);
  contexts.InsertAs((*context)->id, *context);
  return CUDA_SUCCESS;
}

std::shared_ptr<Context> Driver::FindLiving(CUcontext handle) {
  auto context = contexts.Find(handle);
  return context && !context->destroyed.load() ? context : nullptr;
}

CUresult Driver::Synchronise(const Context& context) {
  scheduler.Wait(scheduler.PendingOf(context.group.get()));
  ReleasePoolMemory();
  return context.error();
}

void Driver::ReleasePoolMemory() {
  MutexLock lock(memory->mutex());
  memory->pools().OnSynchronised();
}

CUresult Driver::SynchroniseOwner(uint64_t context_id) {
  const auto owner = contexts.Find(reinterpret_cast<CUcontext>(context_id));
  return owner ? Synchronise(*owner) : CUDA_SUCCESS;
}

void Driver::DestroyContext(const std::shared_ptr<Context>& context) {
  DropCapturesOf(context->group.get());
  Synchronise(*context);
  {
    MutexLock lock(memory->mutex());
    context->destroyed.store(true);
    context->device->heap().FreeAll(context->id);
    memory->host().FreeAll(context->id);
    memory->ipc().FreeAll(context->id);
    memory->graphs().FreeAll(context->id);
    space->TakeAll(context->id);
  }
  const auto is_its = [&](const auto& object) { return object.context == context; };
  streams.EraseIf(is_its);
  events.EraseIf(is_its);
  functions.EraseIf(is_its);
  modules.EraseIf(is_its);
  arrays.EraseIf(is_its);
  textures.EraseOf(*context);
  context->device->shared().Return(options.context);
}

CUresult Driver::Allocate(const std::shared_ptr<Context>& context, size_t bytes, Heap::Users users,
                          CUdeviceptr* pointer) {
  CU_TRY(RefuseUnsafe());
  if (faults->Due(kFailAlloc)) return CUDA_ERROR_OUT_OF_MEMORY;
  MutexLock lock(memory->mutex());
  if (context->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const uint64_t address =
      memory->AllocateOn(context->device, context->id, bytes, Heap::Use::kProgram, users);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = address;
  return CUDA_SUCCESS;
}

}  // namespace tandem::soft
