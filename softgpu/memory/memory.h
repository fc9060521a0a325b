// Memory: all memory that the driver knows in this process, and the one place that answers what an
// address is.
//
// Threading: guarded by its mutex; the parts are used under it. Engines do not come here.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "softgpu/memory/device_vram.h"
#include "softgpu/memory/graph_memory.h"
#include "softgpu/memory/host_memory.h"
#include "softgpu/memory/ipc_memory.h"
#include "softgpu/memory/pool.h"
#include "softgpu/memory/vmm.h"
#include "src/base/mutex.h"

namespace tandem::soft {

inline CUmemAccess_flags FlagsOf(Access access) {
  return access == Access::kReadWrite ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
         : access == Access::kRead    ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                      : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

inline CUresult AccessOf(CUmemAccess_flags flags, Access* access) {
  switch (flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
      *access = Access::kNone;
      return CUDA_SUCCESS;
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
      *access = Access::kRead;
      return CUDA_SUCCESS;
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
      *access = Access::kReadWrite;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

class Memory {
 public:
  Memory(AddressSpace* space, Scheduler* scheduler)
      : space_(space),
        vmm_(space),
        host_(space),
        ipc_(space),
        pools_(scheduler),
        graphs_(space, scheduler) {}

  Mutex& mutex() TANDEM_ATTRIBUTE(lock_returned(mutex_)) { return mutex_; }
  Vmm& vmm() REQUIRES_LOCK(mutex_) { return vmm_; }
  HostMemory& host() REQUIRES_LOCK(mutex_) { return host_; }
  IpcMemory& ipc() REQUIRES_LOCK(mutex_) { return ipc_; }
  Pools& pools() REQUIRES_LOCK(mutex_) { return pools_; }
  GraphMemory& graphs() REQUIRES_LOCK(mutex_) { return graphs_; }
  // Every device's heap is searched by the functions below.
  void AddHeap(int device, Heap* heap) REQUIRES_LOCK(mutex_) { heaps_.push_back({device, heap}); }

  // A block in a device's heap; zero if VRAM is full even without what pools keep for later.
  uint64_t AllocateOn(DeviceVram* device, uint64_t owner, uint64_t bytes,
                      Heap::Use use = Heap::Use::kProgram,
                      Heap::Users users = Heap::Users::kItsDevice) REQUIRES_LOCK(mutex_);
  // For others that need VRAM: tries once more after pools and graphs returned their unused memory.
  template <typename Attempt>
  bool Manage(const DeviceVram* device, Attempt attempt) REQUIRES_LOCK(mutex_) {
    if (attempt()) return true;
    pools_.ReleaseUnused(device);
    graphs_.Trim(device);
    return attempt();
  }

  struct Found {
    enum class Kind { kBlock, kMapping, kHost } kind = Kind::kBlock;
    Range range;
    bool of_graph = false;
    uint64_t owner = 0;      // context; none for mappings and pools' blocks
    uint64_t number = 0;     // of the memory; never used twice
    int device = 0;          // negative for mappings of the host's memory
    uint64_t pool = 0;       // zero for what is not of a pool
    bool internal = false;   // the driver's: not by this name for the program to free
    bool shareable = false;  // has a handle for other processes (cuIpcGetMemHandle)
    CUmemAllocationHandleType handle_types = CU_MEM_HANDLE_TYPE_NONE;
    Access access = Access::kReadWrite;  // of its device, and of the host where it is the host's
    Access copies = Access::kReadWrite;  // what copies may do: as much as any device
    std::shared_ptr<ManagedBlock> managed = nullptr;  // null for what is not managed
  };
  std::optional<Found> Find(uint64_t address) REQUIRES_LOCK(mutex_);
  static bool IsOfHost(const Found& found) {
    return found.kind == Found::Kind::kHost || found.device < 0;
  }

  // Whether [address, address + bytes) is live device memory that may be used so; a range may span
  // mappings that touch, but not blocks.
  bool Usable(uint64_t address, uint64_t bytes, Access access) EXCLUDES_LOCK(mutex_);
  // Whether a copy takes the address for the device's.
  bool IsDeviceAddress(uint64_t address) EXCLUDES_LOCK(mutex_);
  bool IsPinned(uint64_t address, uint64_t bytes) EXCLUDES_LOCK(mutex_);
  // Whether copies and fills of the memory there are always waited for, as the program wants it.
  bool IsSynchronous(uint64_t address) EXCLUDES_LOCK(mutex_);
  // False if the address is unknown.
  bool SetSynchronous(uint64_t address, bool synchronous) EXCLUDES_LOCK(mutex_);

 private:
  struct HeapOf {
    int device;
    Heap* heap;
  };
  static std::optional<Found> FindInPool(const Pool& pool, uint64_t address);

  AddressSpace* const space_;
  Mutex mutex_;
  Vmm vmm_ GUARDED_BY(mutex_);
  HostMemory host_ GUARDED_BY(mutex_);
  IpcMemory ipc_ GUARDED_BY(mutex_);
  Pools pools_ GUARDED_BY(mutex_);
  GraphMemory graphs_ GUARDED_BY(mutex_);
  std::vector<HeapOf> heaps_ GUARDED_BY(mutex_);
  // The number of the memory, by its start. Freed memory stays until other memory begins there.
  std::map<uint64_t, uint64_t> synchronous_ GUARDED_BY(mutex_);
};

}  // namespace tandem::soft
