// Entry points: several devices in one program.
#include <cstring>

#include "softgpu/driver/driver.h"
#include "softgpu/driver/submit.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

CUresult CopyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                  size_t bytes, CUstream stream, Blocking blocking) {
  CU_TRY(Ready());
  Driver& driver = TheDriver();
  if (!driver.FindLiving(to_context) || !driver.FindLiving(from_context)) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return SubmitCopy(stream, blocking, Copy{{to, bytes}, {from, bytes}, bytes, 1}, true, true);
}

// A copy that comes after all work of the contexts it names, and before what they are given later.
template <typename SubmitCopies>
CUresult Between(CUcontext to, CUcontext from, SubmitCopies submit) {
  std::shared_ptr<Context> current;
  CU_TRY(HealthyContext(&current));
  Driver& driver = TheDriver();
  bool others = false;
  for (const CUcontext handle : {to, from}) {
    const std::shared_ptr<Context> context = driver.FindLiving(handle);
    if (context == nullptr || context == current) continue;
    CU_TRY(driver.Synchronise(*context));
    others = true;
  }
  CU_TRY(submit());
  return others ? driver.Synchronise(*current) : CUDA_SUCCESS;
}

// Of each side, in the context that it names where it is on a device. Which device that is, the
// addresses tell.
CUresult Copy3DPeer(const CUDA_MEMCPY3D_PEER* copy, CUDA_MEMCPY3D* plain) {
  CU_TRY(Ready());
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto check = [](CUmemorytype type, CUcontext context) {
    const bool on_device = type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY;
    return !on_device || TheDriver().FindLiving(context) != nullptr;
  };
  if (!check(copy->srcMemoryType, copy->srcContext) ||
      !check(copy->dstMemoryType, copy->dstContext)) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  std::memcpy(plain, copy, sizeof(*plain));
  plain->reserved0 = plain->reserved1 = nullptr;
  return CUDA_SUCCESS;
}

// The current context and another on a device that it could reach.
CUresult FindPeer(CUcontext handle, std::shared_ptr<Context>* current,
                  std::shared_ptr<Context>* peer) {
  CU_TRY(HealthyContext(current));
  *peer = TheDriver().FindLiving(handle);
  return *peer == nullptr || *peer == *current ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuDeviceCanAccessPeer(int* can, CUdevice ordinal, CUdevice peer) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  CU_TRY(FindDevice(peer, &device));
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = ordinal != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from,
                                 CUdevice to) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(from, &device));
  CU_TRY(FindDevice(to, &device));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (from == to) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      *value = 1;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags) noexcept {
  std::shared_ptr<Context> current, peer;
  CU_TRY(FindPeer(handle, &current, &peer));
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (peer->device == current->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  MutexLock lock(TheDriver().memory->mutex());
  if (current->destroyed.load() || peer->destroyed.load()) return CUDA_ERROR_INVALID_CONTEXT;
  MutexLock own(current->mutex);
  std::erase_if(current->peers, [](const auto& other) { return other.expired(); });
  if (!current->peers.insert(peer).second) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  TheDriver().space->Give({current->device->ordinal(), peer->id, current->id});
  return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle) noexcept {
  std::shared_ptr<Context> current, peer;
  CU_TRY(FindPeer(handle, &current, &peer));
  CU_TRY(TheDriver().Synchronise(*current));  // what was submitted had leave
  MutexLock lock(TheDriver().memory->mutex());
  MutexLock own(current->mutex);
  if (current->peers.erase(peer) == 0) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  TheDriver().space->Take({current->device->ordinal(), peer->id, current->id});
  return CUDA_SUCCESS;
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes) noexcept {
  return Between(to_context, from_context, [=] {
    return CopyPeer(to, to_context, from, from_context, bytes, nullptr, Blocking::kYes);
  });
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes, CUstream stream) noexcept {
  return CopyPeer(to, to_context, from, from_context, bytes, stream, Blocking::kNo);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) noexcept {
  CUDA_MEMCPY3D plain;
  CU_TRY(Copy3DPeer(copy, &plain));
  return Between(copy->dstContext, copy->srcContext, [&] { return cuMemcpy3D_v2(&plain); });
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) noexcept {
  CUDA_MEMCPY3D plain;
  CU_TRY(Copy3DPeer(copy, &plain));
  return cuMemcpy3DAsync_v2(&plain, stream);
}
