// Pool: stream-ordered memory of one device. A pool reserves slabs from the device's heap and gives
// out parts of them. A part that was freed in a stream is reused only by work that comes after the
// free, which is usually more of the same stream.
//
// Threading: the owner serialises all calls. The scheduler is asked under the owner's lock.
//
// Slabs of a shareable pool lie in a file of its own instead, which other processes import. A pool
// that was imported has no slabs: its blocks are those whose pointers were imported, each mapped by
// itself with the pages around it.
//
// Invariants:
// 1. Every byte of a slab is free, in a block, or retired (freed in a stream and not yet known to
//    be free for every stream).
// 2. reserved() is what the slabs take from the device, or the imports from the addresses; only
//    whole slabs go back.
// 3. Slabs of a shareable pool stay until it is destroyed, for others may use them. So each of them
//    is one piece of the file, and a pointer is an offset in it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "softgpu/engine/scheduler.h"
#include "softgpu/memory/device_vram.h"
#include "src/base/ranges.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

class Pool {
 public:
  struct Settings {
    bool follow_events = true;
    bool opportunistic = true;
    bool internal_dependencies = true;
    uint64_t release_threshold = 0;
  };
  struct Block {
    Range range;  // as asked for
    uint64_t number = 0;
  };

  // `id` is its handle's value and what the heap knows as the slabs' owner. `max_bytes` zero: no
  // bound but the device's memory.
  Pool(uint64_t id, DeviceVram* device, uint64_t max_bytes, Scheduler* scheduler)
      : id(id), device(device), max_bytes_(max_bytes), scheduler_(scheduler) {}

  const uint64_t id;
  DeviceVram* const device;
  Settings settings;
  std::map<int, CUmemAccess_flags> peers;  // what other devices may do, if anything
  bool doomed = false;                     // destroyed: goes with its last block

  // Memory for work that is submitted to `stream` from now on; zero if there is none. Such work
  // has to wait for what is added to `after`.
  uint64_t Allocate(const std::shared_ptr<Stream>& stream, uint64_t bytes,
                    std::vector<Dependency>* after);
  // Before anything is allocated: that other processes may import it. False if the system refuses.
  bool MakeShareable();
  // Instead of making slabs: `memory` is those of another process's pool.
  void Adopt(std::shared_ptr<ShareableMemory> memory) { imported_ = std::move(memory); }
  bool imported() const { return imported_ != nullptr; }
  // Whether its blocks lie outside the device's heap.
  bool apart() const { return own_ != nullptr || imported(); }
  // A new descriptor of a shareable pool.
  CUresult Export(int* fd) const;
  // What another process finds the block around an address of a shareable pool by.
  CUresult ExportPointer(uint64_t address, CUmemPoolPtrExportData* data) const;
  // REQUIRES: imported().
  CUresult ImportPointer(const CUmemPoolPtrExportData& data, uint64_t* address);

  // The block around an address.
  std::optional<Block> Find(uint64_t address) const;
  // Takes a block out of use, to be freed by Retire() or at once by Release(). REQUIRES: it begins
  // at `address`.
  Range Detach(uint64_t address);
  void Retire(Range range, Dependency freed);
  void Release(Range range);

  // Makes memory that streams are done with free for all streams.
  void Harvest();
  // Returns unused slabs to the device while more than `keep` is reserved.
  void Trim(uint64_t keep);
  // Gives all slabs back. REQUIRES: empty().
  void Close() { heap().FreeAll(id); }
  bool empty() const { return blocks_.empty() && retired_.empty() && detached_ == 0; }

  uint64_t reserved() const { return reserved_; }
  uint64_t reserved_high() const { return reserved_high_; }
  uint64_t used() const { return used_; }
  uint64_t used_high() const { return used_high_; }
  void ResetReservedHigh() { reserved_high_ = reserved_; }
  void ResetUsedHigh() { used_high_ = used_; }

 private:
  struct Slab {
    uint64_t size = 0;
    uint64_t busy = 0;  // bytes that are not free
    RangeAllocator free;
  };
  struct Retired {
    Range range;
    Dependency freed;
  };
  // Of a shareable pool.
  struct OwnMemory {
    std::unique_ptr<PhysicalStore> store;
    Heap heap;
  };

  uint64_t TakeFree(uint64_t size);
  uint64_t TakeRetired(const std::shared_ptr<Stream>& stream, uint64_t size, bool any,
                       std::vector<Dependency>* after);
  bool Grow(uint64_t size);
  void NoteBlock(uint64_t address, uint64_t bytes);
  void NoteReserved(uint64_t bytes);
  void Give(Range range);
  void DropImport(uint64_t address);
  Slab& SlabOf(uint64_t address);
  Heap& heap() { return own_ != nullptr ? own_->heap : device->heap(); }

  const uint64_t max_bytes_;
  Scheduler* const scheduler_;
  std::map<uint64_t, Slab> slabs_;    // by address
  std::map<uint64_t, Block> blocks_;  // by address
  std::vector<Retired> retired_;
  std::unique_ptr<OwnMemory> own_;
  std::shared_ptr<ShareableMemory> imported_;
  std::map<uint64_t, Range> imports_;  // by the block's address, the pages mapped for it
  int detached_ = 0;                   // neither a block nor retired nor free: on the way
  uint64_t reserved_ = 0;
  uint64_t reserved_high_ = 0;
  uint64_t used_ = 0;
  uint64_t used_high_ = 0;
};

// All pools of the process, among them one for each device that it always has.
class Pools {
 public:
  // REQUIRES: outlives this.
  explicit Pools(Scheduler* scheduler) : scheduler_(scheduler) {}

  Pool* Create(DeviceVram* device, uint64_t max_bytes);
  // CUDA_ERROR_INVALID_VALUE for a device's default pool.
  CUresult Destroy(Pool* pool);
  // Null for an unknown handle, and for a destroyed pool.
  Pool* Find(CUmemoryPool handle);
  // The pool that owns the heap's block of this owner, if one does.
  Pool* OfOwner(uint64_t owner);
  // The pool with the block around an address that is in no device's heap.
  const Pool* Around(uint64_t address) const;
  Pool* DefaultOf(DeviceVram* device);
  Pool* CurrentOf(DeviceVram* device);
  // Whether there is one that another process has or may have.
  bool shares() const;
  void SetCurrent(Pool* pool) { current_[pool->device] = pool->id; }

  // The host has synchronised with something: pools fall to what they are to keep.
  void OnSynchronised();
  // Memory is short: all that no pool uses goes back to the device.
  void ReleaseUnused(const DeviceVram* device);

 private:
  void DropDoomed();

  Scheduler* const scheduler_;
  std::map<uint64_t, std::unique_ptr<Pool>> pools_;  // by id
  std::map<const DeviceVram*, uint64_t> default_;
  std::map<const DeviceVram*, uint64_t> current_;
};

}  // namespace tandem::soft
