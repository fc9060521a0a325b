// VmmMemory: memory that the program makes and maps by itself (cuMemCreate, cuMemMap and their
// kind), as allocators do that grow in place.
//
// What the program holds as a handle is a number of ours for an extent that may be swapped: it has
// addresses of its own, and every mapping of the program's is one more place for it
// (extent_aliases.h). Memory that the program may export lies in one piece, and once exported stays
// on the card, counted as fixed. What swapping is not made for is the driver's own: counted where
// it is on our device, and known by its mappings, since one call may span both.
//
// Threading: any thread. Calls that map or let go of anything hold the Swapper's lock and so may
// wait for a hand-over; those that make memory may wait for the daemon's answer; questions do
// neither. Invariants
// 1. A mapping lies in one reservation, overlaps no other and covers one whole handle.
// 2. Memory lives until its handle is released as often as it was made and retained, and its last
//    mapping is gone. Released memory that is still mapped has no handle.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "src/cuda/real_driver.h"
#include "src/shim/memory/fixed_memory.h"
#include "src/shim/memory/reclaim.h"
#include "src/shim/swap/device_memory.h"
#include "src/shim/swap/swapper.h"

namespace tandem::shim {

class VmmMemory {
 public:
  using Handle = CUmemGenericAllocationHandle;
  // Where extents come from, and how much less is needed when some are gone.
  struct Source {
    // An extent that was added may be taken back; then memory is out.
    std::function<CUresult(uint64_t bytes, const std::function<CUresult(Extent**)>& add)> grow;
    std::function<void(Bytes)> shrink;
    Reclaim* reclaim;
  };
  struct Mapping {
    CUdeviceptr address = 0;
    uint64_t bytes = 0;
    CUdeviceptr home = 0;  // of ours: the addresses that the memory has of its own
    uint64_t id = 0;       // never reused
    bool ours = false;     // may be swapped; else of the driver's own memory
    int flags = 0;         // what its device may do there, as CUmemAccess_flags
    uint64_t handle_types = 0;
  };

  VmmMemory(const cuda::RealDriver* real, CUdevice device, DeviceMemory* memory, Swapper* swapper,
            FixedMemory* fixed, Source source)
      : real_(real),
        device_(device),
        memory_(memory),
        swapper_(swapper),
        fixed_(fixed),
        source_(std::move(source)),
        next_handle_((Handle{1} << 62) + (static_cast<Handle>(device) << 48) + 1) {}

  // Each answers as the driver would, which it asks where need be, or says nothing: then that is
  // the driver's affair.
  // CUDA_ERROR_OUT_OF_MEMORY also beyond the run's limit.
  std::optional<CUresult> Create(uint64_t bytes, const CUmemAllocationProp& properties,
                                 Handle* handle) EXCLUDES_LOCK(mutex_);
  std::optional<CUresult> Release(Handle handle) EXCLUDES_LOCK(mutex_);
  std::optional<CUresult> Retain(CUdeviceptr address, Handle* handle) EXCLUDES_LOCK(mutex_);
  std::optional<CUresult> GetProperties(Handle handle, CUmemAllocationProp* properties) const
      EXCLUDES_LOCK(mutex_);
  // `reserved`: all of it lies in one reservation.
  // CUDA_ERROR_OUT_OF_MEMORY: of what was imported, beyond the run's limit.
  CUresult Map(CUdeviceptr address, uint64_t bytes, Handle handle, bool reserved)
      EXCLUDES_LOCK(mutex_);
  CUresult Unmap(CUdeviceptr address, uint64_t bytes) EXCLUDES_LOCK(mutex_);
  std::optional<CUresult> SetAccess(CUdeviceptr address, uint64_t bytes,
                                    const CUmemAccessDesc* access, size_t count)
      EXCLUDES_LOCK(mutex_);
  std::optional<CUresult> GetAccess(CUdeviceptr address, const CUmemLocation& location,
                                    unsigned long long* flags) const EXCLUDES_LOCK(mutex_);
  // Asks for the room that exported memory takes, which may wait for others to leave the card.
  std::optional<CUresult> PrepareExport(Handle handle, CUmemAllocationHandleType type)
      EXCLUDES_LOCK(mutex_);
  // Exports it with `give`, which gets the driver's own handle. REQUIRES: PrepareExport has said
  // CUDA_SUCCESS, and the calling thread is inside the gate.
  CUresult Export(Handle handle, const std::function<CUresult(Handle)>& give) EXCLUDES_LOCK(mutex_);

  // The driver has given the handle for memory of our device that was exported, here or elsewhere.
  // It counts here, too, from its first mapping on: only that says how large it is.
  void Imported(Handle handle, const CUmemAllocationProp& properties) EXCLUDES_LOCK(mutex_);

  // The mapping around the pointer.
  std::optional<Mapping> Find(CUdeviceptr pointer) const EXCLUDES_LOCK(mutex_);
  // Whether it is a number of the shim's own, which a driver would take for an address and follow.
  static bool IsOwn(Handle handle) { return handle >> 62 == 1; }
  // Whether the handle is of memory that is swapped or counted here.
  bool Knows(Handle handle) const EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    return physical_.count(handle) != 0;
  }
  // Whether anything is mapped there that this knows of.
  bool Touches(CUdeviceptr address, uint64_t bytes) const EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    return Overlaps(address, bytes);
  }
  // The home address of the memory mapped there; 0 where nothing of ours is.
  CUdeviceptr HomeOf(CUdeviceptr pointer) const EXCLUDES_LOCK(mutex_);
  // Whether anything of ours is mapped there.
  bool AnyIn(CUdeviceptr address, uint64_t bytes) const EXCLUDES_LOCK(mutex_);

 private:
  // Memory of one handle.
  struct Physical {
    Extent* extent = nullptr;  // null: the driver's own
    uint64_t bytes = 0;
    CUmemAllocationProp properties = {};
    int references = 1;
    int mappings = 0;
    Bytes fixed = {};  // counted so; of ours once it is exported, or about to be
    bool imported = false;
    int being_mapped = 0;  // by this number of threads; of imported memory
  };
  struct Mapped {
    uint64_t bytes = 0;
    Handle handle = 0;  // of a Physical, or 0: the driver's own, of which no more is known
    uint64_t id = 0;
    std::vector<CUmemAccessDesc> access;  // of ours
  };
  using Mappings = std::map<CUdeviceptr, Mapped>;
  struct Part {
    CUdeviceptr address = 0;
    uint64_t bytes = 0;
    Handle handle = 0;
    Extent* extent = nullptr;  // null: the driver's own
  };
  enum class Whose { kDrivers, kOurs, kOursWithGaps, kInvalid };

  std::optional<CUresult> CreateFixed(uint64_t bytes, const CUmemAllocationProp& properties,
                                      Handle* handle) EXCLUDES_LOCK(mutex_);
  bool BeginMapping(Handle handle, uint64_t bytes) EXCLUDES_LOCK(mutex_);
  void EndMapping(Handle handle) EXCLUDES_LOCK(mutex_);
  Physical* FindImported(Handle handle) REQUIRES_LOCK(mutex_);
  CUresult MapCounted(CUdeviceptr address, uint64_t bytes, Handle handle, bool reserved)
      EXCLUDES_LOCK(mutex_);
  Mappings::const_iterator Around(CUdeviceptr address) const REQUIRES_LOCK(mutex_);
  bool Overlaps(CUdeviceptr address, uint64_t bytes) const REQUIRES_LOCK(mutex_);
  // What is mapped in a range: by the driver alone, or also by us. kOursWithGaps: parts of it are
  // not mapped. kInvalid: part of it is ours, and a mapping lies in it only in part.
  Whose Cover(CUdeviceptr address, uint64_t bytes, std::vector<Part>* parts) const
      EXCLUDES_LOCK(mutex_);
  void Forget(const Part& part) REQUIRES_LOCK(swapper_->mutex()) EXCLUDES_LOCK(mutex_);
  void DropIfUnused(Handle handle) REQUIRES_LOCK(swapper_->mutex()) EXCLUDES_LOCK(mutex_);
  CUresult CheckUser(const CUmemAccessDesc& access) const;

  const cuda::RealDriver* const real_;
  const CUdevice device_;
  DeviceMemory* const memory_;
  Swapper* const swapper_;
  FixedMemory* const fixed_;
  const Source source_;
  mutable Mutex mutex_;  // after the Swapper's
  std::map<Handle, Physical> physical_ GUARDED_BY(mutex_);
  Mappings mappings_ GUARDED_BY(mutex_);
  // The driver's own are addresses or small. Those of different devices differ.
  Handle next_handle_ GUARDED_BY(mutex_);
  uint64_t next_id_ GUARDED_BY(mutex_) = uint64_t{1} << 49;
};

}  // namespace tandem::shim
