// Entry points: memory and events shared with other processes.
#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

CUresult Open(CUdeviceptr* pointer, const CUipcMemHandle& handle, unsigned int flags) {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (pointer == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CU_TRY(RefuseUnsafe());
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  if (context->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  uint64_t address = 0;
  const auto ordinal_of = [](const CUuuid& device) { return TheDriver().OrdinalOf(device); };
  CU_TRY(memory.ipc().Open(handle, context->id, context->device->ordinal(), ordinal_of, &address));
  *pointer = address;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  const auto found = memory.Find(pointer);
  if (!found || !found->shareable) return CUDA_ERROR_INVALID_VALUE;
  Device* device = TheDriver().FindDevice(found->device);
  return memory.ipc().Export(device->heap(), device->uuid(), pointer, handle);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle,
                            unsigned int flags) noexcept {
  return Open(pointer, handle, flags);
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle,
                               unsigned int flags) noexcept {
  return Open(pointer, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  Memory& memory = *TheDriver().memory;
  std::optional<IpcMemory::Block> block;
  {
    MutexLock lock(memory.mutex());
    block = memory.ipc().Find(pointer);
  }
  if (!block || block->range.begin != pointer) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(RefuseUnsafe());
  CU_TRY(TheDriver().SynchroniseOwner(block->owner));
  MutexLock lock(memory.mutex());
  return memory.ipc().Close(pointer);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event_handle) noexcept {
  CU_TRY(Ready());
  const auto event = TheDriver().events.Find(event_handle);
  if (!event || event->shared == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return event->shared->Export(handle);
}

CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<IpcEvent> shared;
  const auto find = [](const CUuuid& uuid) {
    Device* device = TheDriver().FindDevice(TheDriver().OrdinalOf(uuid));
    return device == nullptr ? nullptr : &device->shared();
  };
  CU_TRY(IpcEvent::Open(handle, find, &shared));
  constexpr unsigned int kFlags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  *event = TheDriver().events.Insert(std::make_shared<Event>(context, kFlags, std::move(shared)));
  return CUDA_SUCCESS;
}
