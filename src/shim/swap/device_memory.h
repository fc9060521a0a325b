// DeviceMemory: the table of the program's device memory. It knows every block, what addresses and
// chunks it has, and which chunks are on the card; it moves nothing (swapper.h does).
//
//   extent  a range of addresses of its own: one block of 1 MiB or more, or a slab page
//   page    an extent of one granule, cut into slots of one size for blocks below 1 MiB
//   chunk   the unit of backing: an extent is chunks of the session's chunk size and a tail
//
// What the program frees while work under way may still use it is retired: no block any more, but
// needed like one. Once it is released (free_fence.h says when), a slot can be taken again, and a
// extent is unmapped. Of pages whose last block was released a few are kept for a moment, so that a
// program that allocates and frees by turns does not have one mapped each time; they are needed,
// and on the card, like others.
//
// Threading: any thread, but for members marked "swap lock": those are for the holder of the
// Swapper's lock. Extents are taken apart only under it, so it may keep pointers to them.
// Invariants
// 1. `missing` is the bytes of chunks of live extents that are mapped nowhere or only arriving;
//    `resident` what all chunks take on the card, arriving ones and those of dead extents included;
//    `cold` what cold ones take on the host. Lost extents are neither needed nor missing; pinned
//    ones are in none of these.
// 2. Addresses of an extent are reused only after Bury, when nothing is mapped there any more.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/mutex.h"
#include "src/cuda/real_driver.h"
#include "src/shim/driver/address_regions.h"
#include "src/shim/swap/extent.h"
#include "src/shim/swap/slab_pages.h"

namespace tandem::shim {

struct Block {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;  // as the program asked
  CUcontext context = nullptr;
  uint64_t id = 0;  // never reused
};

struct MemoryView {
  Bytes need;      // all live extents that are not lost
  Bytes resident;  // invariant 1
  Bytes missing;
  Bytes next_chunk;   // of the chunk to be brought in next; none if all that is missing is arriving
  Bytes swapped;      // is in host memory only
  Bytes cold;         // of that, what kernels reach there
  Bytes needed_cold;  // of `need`, the same
};

class DeviceMemory {
 public:
  DeviceMemory(const cuda::RealDriver* real, Bytes region, Bytes chunk)
      : chunk_bytes_(std::max(chunk.count / kGranule * kGranule, kGranule)),
        regions_(real, region.count) {}

  // A slot of a page that is there already; nothing if a new extent is needed. *backed: nothing is
  // missing.
  using Slots = SlabPages::Slots;
  std::optional<Block> AllocateFromPage(uint64_t bytes, CUcontext context, bool* backed = nullptr,
                                        Slots slots = Slots::kFitting) EXCLUDES_LOCK(mutex_);
  // What AllocateExtent(bytes) adds to `need`; 0 when that cannot be said in 64 bits.
  static uint64_t ExtentBytes(uint64_t bytes);
  // A block in a new extent, unbacked.
  CUresult AllocateExtent(uint64_t bytes, CUcontext context, Block* block) EXCLUDES_LOCK(mutex_);

  // An extent without a block, unbacked; in one chunk where its memory may be exported.
  CUresult AllocateExtentFor(const CUmemAllocationProp& properties, uint64_t bytes, Extent** extent)
      EXCLUDES_LOCK(mutex_);
  // Releases it. Returns how much less is needed now.
  Bytes FreeExtent(Extent* extent) EXCLUDES_LOCK(mutex_);
  // It is on the card for good, and counted elsewhere. Swap lock.
  void Pin(Extent* extent) EXCLUDES_LOCK(mutex_);
  // Its memory is one piece from now on. REQUIRES: all of it is there. Swap lock.
  void Join(Extent* extent, CUmemGenericAllocationHandle handle) EXCLUDES_LOCK(mutex_);

  // The block around `pointer`.
  std::optional<Block> Find(CUdeviceptr pointer) const EXCLUDES_LOCK(mutex_);
  // The block around `pointer`, and the extent that it is in: a page may hold others.
  struct Home {
    Block block;
    CUdeviceptr extent = 0;
    uint64_t extent_bytes = 0;
  };
  // The extent lives on, whatever is freed, until it is let go of; which returns how much less is
  // needed then.
  std::optional<Home> HoldHome(CUdeviceptr pointer) EXCLUDES_LOCK(mutex_);
  Bytes LetGo(const Home& home) EXCLUDES_LOCK(mutex_);
  // Whether no other block has memory there.
  bool Owns(CUdeviceptr pointer) const EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    return regions_.Contain(pointer);
  }
  // Forgets the block. `unused`: no work under way may use it, so it is released; else it retires.
  // Returns how much less is needed now; nothing if there is no such block.
  std::optional<Bytes> Free(CUdeviceptr pointer, uint64_t id, bool unused) EXCLUDES_LOCK(mutex_);
  // The same of the context's block that begins there, whatever its id, unused.
  std::optional<Bytes> FreeIn(CUcontext context, CUdeviceptr pointer) EXCLUDES_LOCK(mutex_);
  // Releases kept pages except this number. Returns the same.
  Bytes FreePages(size_t keep) EXCLUDES_LOCK(mutex_);
  // Releases those that were not taken since the last time. Returns the same, and whether there are
  // more.
  Bytes FreeUntakenPages(bool* more) EXCLUDES_LOCK(mutex_);
  // What kept pages take: needed, but for nothing of the program's.
  Bytes kept() const NO_THREAD_SAFETY_ANALYSIS { return pages_.kept(); }
  // Releases all that the context has, retired or not. Returns the same.
  Bytes FreeContext(CUcontext context) EXCLUDES_LOCK(mutex_);

  // What blocks that are retired took.
  Bytes retired() const { return Bytes(retired_bytes_.load(std::memory_order_relaxed)); }
  // Memory retired so far waits for work that a fence is now put behind, and no later one.
  void Fence() EXCLUDES_LOCK(mutex_);
  // That fence has come to pass. Returns how much less is needed now.
  Bytes ReleaseFenced() EXCLUDES_LOCK(mutex_);

  // A launch was given that address: the memory there is in use. False where nothing is. Only noted
  // for programs that oversubscribe (device_memory_heat.cc).
  bool NoteNamedByLaunch(CUdeviceptr pointer) EXCLUDES_LOCK(mutex_);
  // A step of time: what was named since the last becomes hotter, and all else colder.
  void Age() EXCLUDES_LOCK(mutex_);

  MemoryView GetView() const EXCLUDES_LOCK(mutex_);
  Bytes resident() const { return Bytes(resident_.load(std::memory_order_relaxed)); }
  bool HasDead() const { return has_dead_.load(std::memory_order_acquire); }

  // Runs `action` if nothing is missing (`backed`), or if something is, with the table held: no
  // allocation can change the answer meanwhile.
  template <typename Action>
  bool IfBacked(bool backed, Action action) EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    if ((missing_ == 0) != backed) return false;
    action();
    return true;
  }

  // ---- swap lock
  struct Place {
    Extent* extent = nullptr;
    Chunk* chunk = nullptr;
  };
  // The live extent that begins at `address`, or null.
  Extent* FindExtent(CUdeviceptr address) const EXCLUDES_LOCK(mutex_);
  // The chunk around `pointer`, of a live extent that is not lost; or nothing.
  std::optional<Place> FindChunk(CUdeviceptr pointer) const EXCLUDES_LOCK(mutex_);
  // Missing chunks of live extents that are not arriving, in order of their addresses, together at
  // most `most` bytes.
  std::vector<Place> Missing(uint64_t most, size_t count) const EXCLUDES_LOCK(mutex_);
  // Chunks on the card that are not arriving, those first that need no copying, then those that may
  // need none, at least `least` bytes if there are.
  std::vector<Place> Victims(uint64_t least) const EXCLUDES_LOCK(mutex_);
  std::vector<Place> Resident() const EXCLUDES_LOCK(mutex_);
  // Those and cold ones.
  std::vector<Place> Mapped() const EXCLUDES_LOCK(mutex_);
  // Cold chunks that had better be on the card, where `room` bytes of credit are unused, and those
  // that may leave it for them; at most `count` each.
  struct Exchange {
    std::vector<Place> in, out;
  };
  Exchange PlanExchange(uint64_t room, size_t count) const EXCLUDES_LOCK(mutex_);
  // Cold chunks, the hottest first, together at most `most` bytes.
  std::vector<Place> Hottest(uint64_t most, size_t count) const EXCLUDES_LOCK(mutex_);
  void SetState(const Place& place, Chunk::State state) EXCLUDES_LOCK(mutex_);
  // The host copy came (+) or went (−).
  void CountSwapped(int64_t bytes) EXCLUDES_LOCK(mutex_);
  // The context is broken: its memory will never be read or written. Returns its chunks.
  std::vector<Place> Lose(CUcontext context) EXCLUDES_LOCK(mutex_);
  // The same of an extent that the driver has torn. No more blocks are cut from it.
  void LoseExtent(Extent* extent) EXCLUDES_LOCK(mutex_);
  // Dead extents, to be unmapped by the caller and then given to Bury, or to KeepDead where that
  // failed.
  std::vector<std::unique_ptr<Extent>> TakeDead() EXCLUDES_LOCK(mutex_);
  void Bury(std::unique_ptr<Extent> extent) EXCLUDES_LOCK(mutex_);
  void KeepDead(std::unique_ptr<Extent> extent) EXCLUDES_LOCK(mutex_);

 private:
  struct Entry {
    Block block;
    BlockMemory memory;
  };
  using Blocks = std::map<CUdeviceptr, Entry>;

  CUresult AddExtent(std::unique_ptr<Extent> extent, uint64_t chunk_bytes, Extent** added)
      REQUIRES_LOCK(mutex_);
  Block AddBlock(uint64_t bytes, const BlockMemory& memory) REQUIRES_LOCK(mutex_);
  Bytes Release(const BlockMemory& memory) REQUIRES_LOCK(mutex_);
  Bytes Drop(Extent* extent) REQUIRES_LOCK(mutex_);
  Bytes ReleaseRetired(std::vector<BlockMemory>* retired) REQUIRES_LOCK(mutex_);
  Blocks::const_iterator Around(CUdeviceptr pointer) const REQUIRES_LOCK(mutex_);
  Extent* ExtentAround(CUdeviceptr pointer) const REQUIRES_LOCK(mutex_);
  Bytes ReleasePages(const std::vector<Extent*>& pages) REQUIRES_LOCK(mutex_);
  void Kill(Extent* extent) REQUIRES_LOCK(mutex_);
  void Uncount(const Extent& extent) REQUIRES_LOCK(mutex_);  // from what is needed
  void Uncount(const Place& place) REQUIRES_LOCK(mutex_);

  const uint64_t chunk_bytes_;
  mutable Mutex mutex_;
  AddressRegions regions_ GUARDED_BY(mutex_);
  std::map<CUdeviceptr, std::unique_ptr<Extent>> extents_ GUARDED_BY(mutex_);
  std::vector<BlockMemory> retired_ GUARDED_BY(mutex_);  // since the last fence
  std::vector<BlockMemory> fenced_ GUARDED_BY(mutex_);   // before it
  std::atomic<uint64_t> retired_bytes_{0};
  std::vector<std::unique_ptr<Extent>> dead_ GUARDED_BY(mutex_);
  std::atomic<bool> has_dead_{false};  // changed under the lock, as `dead_` is
  Blocks blocks_ GUARDED_BY(mutex_);
  SlabPages pages_ GUARDED_BY(mutex_);  // but for kept()
  uint64_t need_ GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> resident_{0};  // changed under the lock
  uint64_t missing_ GUARDED_BY(mutex_) = 0;
  uint64_t swapped_ GUARDED_BY(mutex_) = 0;  // without cold chunks
  uint64_t cold_ GUARDED_BY(mutex_) = 0;
  uint64_t needed_cold_ GUARDED_BY(mutex_) = 0;
  // The driver counts its own from 1.
  uint64_t next_id_ GUARDED_BY(mutex_) = uint64_t{1} << 48;
};

}  // namespace tandem::shim
