// Swapper: says which chunks come onto the card and which leave it, and has them moved (mover.h).
//
// Threading: one lock, mutex(), which the caller takes; the agent holds it while it moves chunks,
// so a thread of the program that must not wait uses TryLock.
// Invariants
// 1. A chunk that is away has its bytes in its host copy, or never had any.
// 2. A host copy of a chunk on the card is equal to it until the gate opens (Expose) or the chunk
// is
//    written to (FindToWrite). From then on it is only kept, while there is room: it is what the
//    chunk was, and the chunk leaves for it only if the card finds the two equal (clean_check.h).
// 3. An operation that fails leaves every chunk as it was or as it was meant to become.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/mutex.h"
#include "src/cuda/real_driver.h"
#include "src/shim/swap/device_memory.h"
#include "src/shim/swap/mover.h"

namespace tandem::shim {

class Swapper {
 public:
  Swapper(const cuda::RealDriver* real, CUdevice device, DeviceMemory* memory, Bytes chunk)
      : memory_(memory), mover_(real, device, memory, chunk) {}
  Swapper(const Swapper&) = delete;
  Swapper& operator=(const Swapper&) = delete;

  Mutex& mutex() TANDEM_ATTRIBUTE(lock_returned(mutex_)) { return mutex_; }

  // Work runs in `context` from now on. Before a context is destroyed the swapper must leave it;
  // null: it has none and can only unmap.
  void UseContext(CUcontext context) REQUIRES_LOCK(mutex_) { mover_.UseContext(context); }
  CUcontext context() const REQUIRES_LOCK(mutex_) { return mover_.context(); }

  // Backs a new extent at once. The gate is open: its bytes may change from now on.
  // CUDA_ERROR_NOT_READY: RestoreSome has begun with it, and goes on.
  CUresult BackNew(Extent* extent) REQUIRES_LOCK(mutex_);

  // The same without the card. CUDA_ERROR_NOT_READY, too: it is too large to have the lock held for
  // all of it. CUDA_ERROR_OUT_OF_MEMORY: the host has no room.
  CUresult ChillNew(Extent* extent) REQUIRES_LOCK(mutex_);

  // Takes chunks off the card until at most `target` is there. `moved` is told after every chunk
  // how many bytes of it were copied.
  CUresult Evict(Bytes target, const std::function<void(Bytes copied)>& moved)
      REQUIRES_LOCK(mutex_);
  // Begins to restore some of the missing memory, up to `credit` in all, and notes what has
  // arrived: *copied grows by that. CUDA_ERROR_NOT_READY: it can only wait for the copies under
  // way, or for more credit.
  CUresult RestoreSome(Bytes credit, Bytes* copied) REQUIRES_LOCK(mutex_);
  // What is on the card and whole.
  Bytes arrived() const REQUIRES_LOCK(mutex_) {
    return SaturatingSubtract(memory_->GetView().resident, mover_.arriving_bytes());
  }
  // Of what was copied since the last time, what went to the spill file, and what came from it.
  Bytes TakeToFile() REQUIRES_LOCK(mutex_) { return mover_.TakeToFile(); }
  Bytes TakeFromFile() REQUIRES_LOCK(mutex_) { return mover_.TakeFromFile(); }
  // There will be no more credit: makes cold a few of the chunks that are larger than what is left
  // of it. CUDA_ERROR_NOT_READY: there is none. Memory that is out is the host's.
  CUresult ChillSome(Bytes credit) REQUIRES_LOCK(mutex_);
  // The card has no room for the first that is missing: that becomes cold. The same.
  CUresult ChillFirst() REQUIRES_LOCK(mutex_);
  // Brings in what launches name and is cold, and makes cold for it what they do not, a little of
  // it; and whether there is any. REQUIRES: no work is under way, nor can any come.
  bool CanExchange(Bytes credit) const REQUIRES_LOCK(mutex_);
  CUresult Exchange(Bytes credit) REQUIRES_LOCK(mutex_);
  // Takes a few cold chunks off the host's memory, the hottest first, that RestoreSome would bring
  // in if there were `room` for that much more. Whether there were any. REQUIRES: the same.
  bool Thaw(Bytes room) REQUIRES_LOCK(mutex_);
  // What exchanges have brought in so far.
  Bytes exchanged() const { return Bytes(exchanged_.load(std::memory_order_relaxed)); }
  // The gate opens: from now on chunks may differ from their host copies. Those are kept as long as
  // all copies take no more than `keep` of the host.
  void Expose(Bytes keep) REQUIRES_LOCK(mutex_);
  // Lowers that bound to `keep`.
  void Keep(Bytes keep) REQUIRES_LOCK(mutex_) { mover_.DropKeptBeyond(keep); }
  // The context is broken: its memory is not copied any more. Work runs in `other` if it ran there.
  void Lose(CUcontext context, CUcontext other) REQUIRES_LOCK(mutex_);
  // The last context is gone, and was broken: the program's mapped memory outlives it, but where
  // only the card holds it, it cannot be copied any more. It is lost, and so can leave the card.
  // REQUIRES: context() is null.
  void LoseUncopied() REQUIRES_LOCK(mutex_);
  // Puts an extent into one piece of memory of the card, and pins it. CUDA_ERROR_NOT_READY: some
  // of it is missing, which cold chunks are not. REQUIRES: no work is under way, nor can any come.
  CUresult Gather(Extent* extent, CUmemGenericAllocationHandle piece) REQUIRES_LOCK(mutex_);
  // Hears of each extent that was shared, once it is unmapped.
  void OnSharedGone(std::function<void(const Extent&)> gone) REQUIRES_LOCK(mutex_) {
    shared_gone_ = std::move(gone);
  }
  // Lets another device of the program's use all extents, those to come too, or no longer.
  CUresult SetPeer(CUdevice peer, bool reaches) REQUIRES_LOCK(mutex_) {
    return mover_.SetPeer(peer, reaches);
  }
  // Some of the program's memory, as far as one chunk goes, where its bytes are: until the lock is
  // let go.
  struct Piece {
    CUdeviceptr address = 0;
    uint64_t size = 0;
    bool here = false;          // mapped there: on the card, or cold
    std::byte* host = nullptr;  // else: null if it never had any bytes
  };
  // None where the chunk around `pointer` is lost, or is arriving. REQUIRES, of both: no work is
  // under way, nor can any come.
  std::optional<Piece> Find(CUdeviceptr pointer) REQUIRES_LOCK(mutex_);
  // The same to be written to. None, too, if it has yet to have a place on the host and there is no
  // memory made for it, or if more than `most` would lie there: PrepareHostMemory may make some.
  std::optional<Piece> FindToWrite(CUdeviceptr pointer, Bytes most) REQUIRES_LOCK(mutex_);
  // Copies what is on the card; done on return.
  CUresult CopyOut(void* to, CUdeviceptr from, uint64_t bytes) REQUIRES_LOCK(mutex_) {
    return mover_.CopyOut(to, from, bytes);
  }
  CUresult CopyIn(CUdeviceptr to, const void* from, uint64_t bytes) REQUIRES_LOCK(mutex_) {
    return mover_.CopyIn(to, from, bytes);
  }
  // Gives back what dead extents still hold, but for those with chunks that are arriving.
  void Reap() REQUIRES_LOCK(mutex_);
  // One small step of the host memory's upkeep, so that there is room for `ahead`. Whether there is
  // more.
  bool PrepareHostMemory(const HostShare& ahead) REQUIRES_LOCK(mutex_) {
    return mover_.PrepareHostMemory(ahead);
  }
  // Whether PrepareHostMemory has host memory to zero.
  bool HasReturned() const REQUIRES_LOCK(mutex_) { return mover_.HasReturned(); }
  // Gives host memory back that nothing has used for a while, beyond `ahead`.
  void Trim(const HostShare& ahead) REQUIRES_LOCK(mutex_) { mover_.Trim(ahead); }
  // For what that has no room for.
  SpillFile& spill_file() REQUIRES_LOCK(mutex_) { return mover_.spill_file(); }

  // In a forked child, which takes no lock.
  void AbandonInChild() NO_THREAD_SAFETY_ANALYSIS { mover_.spill_file().AbandonInChild(); }

 private:
  using Place = DeviceMemory::Place;

  DeviceMemory::Exchange PlanExchange(Bytes credit) const REQUIRES_LOCK(mutex_);
  CUresult Leave(const std::vector<Place>& places) REQUIRES_LOCK(mutex_);
  CUresult Arrive(const std::vector<Place>& places, Bytes credit) REQUIRES_LOCK(mutex_);
  CUresult Chill(const std::vector<Place>& places) REQUIRES_LOCK(mutex_);
  CUresult Clear(Extent* extent) REQUIRES_LOCK(mutex_);
  CUresult Remove(const std::vector<Place>& victims, const std::function<void(Bytes copied)>& moved)
      REQUIRES_LOCK(mutex_);

  DeviceMemory* const memory_;
  Mutex mutex_;
  Mover mover_ GUARDED_BY(mutex_);
  std::function<void(const Extent&)> shared_gone_ GUARDED_BY(mutex_);
  std::atomic<uint64_t> exchanged_{0};
  bool reap_failed_ GUARDED_BY(mutex_) = false;  // and was told
};

}  // namespace tandem::shim
