// StreamPools: stream-ordered allocation (cuMemAllocAsync and its kind) out of memory that may be
// swapped. The program's pools stay the driver's own, and keep its settings; they hand out blocks
// of the guest.
//
// A block that is freed in a stream is the pool's again at once for that stream, and for every
// other once all work submitted before is done. At the next synchronisation a pool gives back what
// it keeps beyond its release threshold. What the driver must do itself it does: pools that other
// devices or processes may use, and allocations that become nodes of a graph.
//
// Threading: any thread. The lock is held while an event is recorded, never while memory is asked
// for.
// Invariants
// 1. `reserved` of a pool is what its blocks take, in use and idle; `used` of those in use.
// 2. A block is handed out again, or given back, only when no work of before can touch it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "src/cuda/real_driver.h"
#include "src/shim/driver/event_pool.h"

namespace tandem::shim {

class StreamPools {
 public:
  // A block of the source's; the number is never given again.
  struct BlockName {
    CUdeviceptr pointer = 0;
    uint64_t id = 0;
  };
  // Where memory comes from, and where it goes when all work that used it is done.
  struct Source {
    std::function<CUresult(uint64_t bytes, CUcontext context, BlockName* block)> allocate;
    std::function<void(const BlockName& block)> free;
  };
  // A place in the order of a stream, which belongs to the context. Default streams by their own
  // handles, never null.
  struct Place {
    CUcontext context = nullptr;
    CUstream stream = nullptr;
  };
  struct Entry {
    CUmemoryPool pool = nullptr;
    uint64_t bytes = 0;  // as the program asked
    bool idle = false;   // freed by the program: it has no such block
  };

  StreamPools(const cuda::RealDriver* real, CUdevice device, Source source)
      : real_(real), device_(device), source_(std::move(source)), events_(real) {}

  // Nothing: that is the driver's affair. CUDA_ERROR_OUT_OF_MEMORY also beyond the pool's maximum.
  std::optional<CUresult> Allocate(CUmemoryPool handle, uint64_t bytes, Place place,
                                   CUdeviceptr* pointer) EXCLUDES_LOCK(mutex_);
  // In a stream's order. Nothing: no block of a pool begins there.
  std::optional<CUresult> Free(CUdeviceptr pointer, Place place) EXCLUDES_LOCK(mutex_);
  // The program has freed it without its pool.
  void Forget(const BlockName& block) EXCLUDES_LOCK(mutex_);
  // False: there has never been a block of a pool.
  bool HaveBlocks() const { return asked_.load(std::memory_order_acquire); }
  // What a pool has to do with the block.
  std::optional<Entry> Find(const BlockName& block) const EXCLUDES_LOCK(mutex_);

  // The program has waited for some of its work.
  void Synchronized() EXCLUDES_LOCK(mutex_) {
    if (idle_.load(std::memory_order_relaxed) != 0) Shrink();
  }
  // Memory is short: returns all unused blocks. Whether there was any. `wait`: also for the work
  // behind which blocks were freed.
  bool GiveWay(bool wait) EXCLUDES_LOCK(mutex_);
  // Before the stream's handle ends, which may then name another.
  void StreamEnds(CUstream stream) EXCLUDES_LOCK(mutex_);
  // Its blocks, and work, go with the context.
  void ContextEnds(CUcontext context) EXCLUDES_LOCK(mutex_);

  // ---- What the driver has been told, and done.
  // False: what it hands out is the driver's own.
  bool Created(CUmemoryPool handle, const CUmemPoolProps& properties) EXCLUDES_LOCK(mutex_);
  // Before the driver destroys it, whose handle may then be another's; and if it will not.
  void Destroying(CUmemoryPool handle) EXCLUDES_LOCK(mutex_);
  void NotDestroyed(CUmemoryPool handle) EXCLUDES_LOCK(mutex_);
  // From now on other devices may use what it hands out. *blocks: it has blocks of the guest.
  // False: it is none of this device's.
  bool Shared(CUmemoryPool handle, bool* blocks) EXCLUDES_LOCK(mutex_);
  void Set(CUmemoryPool handle, CUmemPool_attribute attribute, const void* value)
      EXCLUDES_LOCK(mutex_);
  // Adds to what the driver has answered.
  void Add(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) const
      EXCLUDES_LOCK(mutex_);
  void TrimTo(CUmemoryPool handle, uint64_t bytes) EXCLUDES_LOCK(mutex_);

 private:
  // An unused block.
  struct Idle {
    BlockName block;
    CUcontext context = nullptr;  // that it was allocated in
    Place freed;                  // stream null: in none
    Marker marker;                // behind the work before; no event: it is done
    uint64_t time = 0;            // orders all frees
  };
  struct Amount {
    uint64_t now = 0, high = 0;
    void Grow(uint64_t bytes);
  };
  struct Pool {
    Pool(CUmemoryPool its_handle, uint64_t most) : handle(its_handle), max_bytes(most) {}

    const CUmemoryPool handle;
    const uint64_t max_bytes;  // 0: no maximum
    uint64_t release_threshold = 0;
    bool drivers = false;    // what it hands out is the driver's own
    bool destroyed = false;  // keeps nothing
    Amount used, reserved;
    std::multimap<uint64_t, Idle> idle;  // by their bytes
  };
  struct Live {
    std::shared_ptr<Pool> pool;
    uint64_t id = 0;
    uint64_t asked = 0, bytes = 0;
    CUcontext context = nullptr;
  };
  using IdleBlock = std::multimap<uint64_t, Idle>::iterator;

  std::shared_ptr<Pool> PoolOf(CUmemoryPool handle) REQUIRES_LOCK(mutex_);
  bool IsDone(Idle* idle) REQUIRES_LOCK(mutex_);
  // Hands out again an idle block of at most these bytes. `wait`: the stream may have to wait for
  // the work before.
  bool Reuse(const std::shared_ptr<Pool>& pool, uint64_t bytes, uint64_t most, Place place,
             bool wait, CUdeviceptr* pointer) REQUIRES_LOCK(mutex_);
  bool Orders(Place place, const Idle& idle) const;
  CUresult AllocateNew(const std::shared_ptr<Pool>& pool, uint64_t bytes, Place place,
                       CUdeviceptr* pointer) EXCLUDES_LOCK(mutex_);
  // Takes idle blocks out of the pool until it keeps at most `most`, or work is in the way. They
  // are to be given to the source without the lock.
  void Take(Pool* pool, uint64_t most, std::vector<BlockName>* taken) REQUIRES_LOCK(mutex_);
  // The same of every pool: down to its threshold, or all.
  std::vector<BlockName> TakeOfAll(bool all) REQUIRES_LOCK(mutex_);
  void GiveBack(const std::vector<BlockName>& blocks) const EXCLUDES_LOCK(mutex_);
  void Shrink() EXCLUDES_LOCK(mutex_);
  IdleBlock Drop(Pool* pool, IdleBlock block) REQUIRES_LOCK(mutex_);
  void AddIdle(Pool* pool, uint64_t bytes, Idle idle) REQUIRES_LOCK(mutex_);
  // Makes room below the pool's maximum. False if there is none.
  bool MakeRoom(Pool* pool, uint64_t bytes, std::vector<BlockName>* taken) REQUIRES_LOCK(mutex_);
  template <typename Visit>
  void EachPool(Visit visit) REQUIRES_LOCK(mutex_);

  const cuda::RealDriver* const real_;
  const CUdevice device_;
  const Source source_;
  mutable Mutex mutex_;
  EventPool events_ GUARDED_BY(mutex_);
  std::map<CUmemoryPool, std::shared_ptr<Pool>> pools_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Pool>> destroyed_ GUARDED_BY(mutex_);  // with blocks left
  std::map<CUdeviceptr, Live> live_ GUARDED_BY(mutex_);
  std::set<uint64_t> idle_ids_ GUARDED_BY(mutex_);
  std::atomic<size_t> idle_{0};     // blocks
  std::atomic<bool> asked_{false};  // before any block is a pool's
  uint64_t frees_ GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem::shim
