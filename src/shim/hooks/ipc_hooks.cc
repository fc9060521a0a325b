// Hooks of driver_api.def's OWN rows for memory that processes share by handles of 64 bytes.
// Handles that are the driver's own, of programs that run unshared, are its affair; what it opens
// counts.
#include <algorithm>
#include <iterator>
#include <optional>

#include "src/cuda/uuid.h"
#include "src/shim/hooks/fixed_call.h"
#include "src/shim/hooks/gated_call.h"
#include "src/shim/link/ipc_handle.h"
#include "src/shim/os/log.h"

namespace tandem::shim {
namespace {

// What the driver says of any handle: a broken context answers everything with its error.
CUresult Health() {
  constexpr CUdeviceptr kNobodys = 0x10;
  CUipcMemHandle unused;
  const CUresult result = Call(Real().cuIpcGetMemHandle, &unused, kNobodys);
  return IsSticky(result) ? result : CUDA_SUCCESS;
}

CUresult Offer(Guest* guest, CUdeviceptr pointer, CUipcMemHandle* handle) {
  const std::optional<Block> block = guest->Find(pointer);
  const bool plain = block.has_value() && !guest->pools().Find({block->address, block->id});
  if (!plain) return CUDA_ERROR_INVALID_VALUE;
  if (!guest->offers().Supported()) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult health = Health(); health != CUDA_SUCCESS) return health;
  return guest->offers().Offer(
      pointer, [] { const HeldCall call; }, handle);
}

std::optional<CUdevice> DeviceCalled(const CUuuid& uuid) {
  int count = 0;
  if (Call(Real().cuDeviceGetCount, &count) != CUDA_SUCCESS) return std::nullopt;
  for (CUdevice device = 0; device < count; ++device) {
    const CUuuid its = cuda::UuidOf(Real(), device);
    if (std::equal(std::begin(uuid.bytes), std::end(uuid.bytes), std::begin(its.bytes))) {
      return device;
    }
  }
  return std::nullopt;
}

CUresult OpenOurs(const IpcHandle& handle, CUcontext context, CUdevice user, CUdeviceptr* pointer) {
  if (!IsSound(handle)) return CUDA_ERROR_INVALID_VALUE;
  const auto has = [&](Guest* guest) { return guest->offers().Has(handle.token()); };
  if (FindGuest(has) != nullptr) return CUDA_ERROR_INVALID_CONTEXT;  // it is this process's
  const std::optional<CUdevice> device = DeviceCalled(handle.device);
  if (!device.has_value() || Real().cuMemImportFromShareableHandle == nullptr) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  const auto [guest, refusal] = GuestOn(*device);
  if (guest == nullptr) return refusal != CUDA_SUCCESS ? refusal : CUDA_ERROR_MAP_FAILED;
  return guest->opened().Open(handle, context, user, pointer);
}

// Held while the driver opens or closes a handle of its own and that is looked at, but never while
// waiting for room.
Mutex& DriversHandles() {
  static Mutex* const mutex = new Mutex;
  return *mutex;
}

// The driver's own stays counted as long as the driver knows it: it may have been opened twice.
CUresult CloseDrivers(CUdeviceptr pointer) {
  MutexLock lock(DriversHandles());
  const CUresult result = Call(Real().cuIpcCloseMemHandle, pointer);
  size_t bytes = 0;
  if (result != CUDA_SUCCESS ||
      Call(Real().cuMemGetAddressRange_v2, nullptr, &bytes, pointer) == CUDA_SUCCESS) {
    return result;
  }
  EachGuest(
      [=](Guest* guest) { guest->fixed().GiveBack(guest->fixed().Take(FixedKey(pointer)).bytes); });
  return result;
}

// How much that is is known only afterwards. Several threads may open the same at once.
template <typename Open>
CUresult OpenDrivers(Guest* guest, CUcontext context, CUdeviceptr* pointer, Open open) {
  size_t bytes = 0;
  {
    MutexLock lock(DriversHandles());
    const CUresult result = open();
    if (result != CUDA_SUCCESS ||
        Call(Real().cuMemGetAddressRange_v2, nullptr, &bytes, *pointer) != CUDA_SUCCESS ||
        guest->fixed().Has(FixedKey(*pointer))) {
      return result;
    }
  }
  if (!guest->MakeRoom(Bytes(bytes))) {
    CloseDrivers(*pointer);
    *pointer = 0;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!guest->fixed().PutNew(FixedKey(*pointer), {context, Bytes(bytes)})) {
    guest->fixed().GiveBack(Bytes(bytes));
  }
  return CUDA_SUCCESS;
}

template <typename CallDriver>
CUresult Open(CUdeviceptr* pointer, const CUipcMemHandle& packed, unsigned int flags,
              CallDriver open) {
  CUcontext context = nullptr;
  Guest* const current = GuestOfCurrentContext(&context);
  const bool sound = pointer != nullptr && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
  if (current == nullptr || !sound) return open();
  const std::optional<IpcHandle> handle = Unpack(packed);
  if (!handle.has_value()) return OpenDrivers(current, context, pointer, open);
  const CUresult health = current->Health(context);
  if (health != CUDA_SUCCESS) return health;
  return OpenOurs(*handle, context, current->device(), pointer);
}

}  // namespace
}  // namespace tandem::shim

using namespace tandem;
using namespace tandem::shim;

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) noexcept {
  CUcontext context = nullptr;
  Guest* const owner = handle == nullptr || GuestOfCurrentContext(&context) == nullptr
                           ? nullptr
                           : FindGuest([=](Guest* guest) { return guest->Owns(pointer); });
  return owner != nullptr ? Offer(owner, pointer, handle)
                          : Call(Real().cuIpcGetMemHandle, handle, pointer);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle,
                            unsigned int flags) noexcept {
  return Open(pointer, handle, flags,
              [&] { return Call(Real().cuIpcOpenMemHandle, pointer, handle, flags); });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle,
                               unsigned int flags) noexcept {
  return Open(pointer, handle, flags,
              [&] { return Call(Real().cuIpcOpenMemHandle_v2, pointer, handle, flags); });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) noexcept {
  const std::optional<CUresult> result =
      AskGuests([=](Guest* guest) { return guest->opened().Close(pointer); });
  return result.has_value() ? *result : CloseDrivers(pointer);
}

}  // extern "C"
