// SlabPages: pages cut into slots of one size each, for blocks below 1 MiB of one context. It knows
// which pages have free slots, and the few without a block that are kept for a moment.
//
// Threading: the owner serialises all calls, but for kept(), which any thread may ask for.
// Invariant: a page is open, and may give a slot, exactly while its PageSlots has any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/shim/swap/extent.h"

namespace tandem::shim {

// Blocks from this size on have an extent of their own.
inline constexpr uint64_t kLargeBlock = uint64_t{1} << 20;

class SlabPages {
 public:
  static constexpr size_t kMostKept = 4;
  enum class Slots { kFitting, kAnyLarger };

  // A slot for a block of that size, of an open page or of one that was kept; nothing if there is
  // none. REQUIRES: bytes < kLargeBlock.
  std::optional<BlockMemory> Take(uint64_t bytes, CUcontext context, Slots slots);
  // Cuts a new page and takes its first slot. REQUIRES: the same.
  BlockMemory Add(Extent* page, uint64_t bytes);
  // The slot is free again.
  void Return(const BlockMemory& slot);
  // Nothing more is taken from the page. Any extent will do.
  void Close(Extent* page);
  // Keeps the page, which has no block and is closed. Returns pages to be released instead: this
  // and those that the following return are kept no longer.
  std::vector<Extent*> Keep(Extent* page);
  // All but this number; those that were kept the longest.
  std::vector<Extent*> TakeKept(size_t keep);
  // Those from which nothing was taken since the last time. *more: there are others.
  std::vector<Extent*> TakeUntaken(bool* more);
  std::vector<Extent*> TakeKeptOf(CUcontext context);
  Bytes kept() const { return Bytes(kept_bytes_.load(std::memory_order_relaxed)); }

 private:
  Extent* FindFitting(uint64_t slot_bytes, CUcontext context);
  Extent* FindLarger(uint64_t slot_bytes, CUcontext context) const;
  void Cut(Extent* page, uint64_t slot_bytes);
  BlockMemory TakeFrom(Extent* page);
  void Remove(Extent* page);
  std::vector<Extent*> TakeOldest(size_t count);

  // By slot size and context.
  std::map<std::pair<uint64_t, CUcontext>, std::vector<Extent*>> open_;
  std::vector<Extent*> kept_;  // longest kept first
  size_t untaken_ = 0;         // the least of those since the last look
  std::atomic<uint64_t> kept_bytes_{0};
};

}  // namespace tandem::shim
