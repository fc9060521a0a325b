#include "src/shim/swap/slab_pages.h"

#include <algorithm>
#include <iterator>

namespace tandem::shim {
namespace {

constexpr uint64_t kSmallestSlot = 512;  // what cuMemAlloc aligns to

// 512, 768 (not: not a multiple of 512), 1024, 1536, 2048, 3072, …: two sizes per doubling.
uint64_t SlotBytes(uint64_t bytes) {
  uint64_t size = kSmallestSlot;
  while (size < bytes) {
    const uint64_t between = size / 2 * 3;
    if (between >= bytes && between % kSmallestSlot == 0) return between;
    size *= 2;
  }
  return size;
}

}  // namespace

std::optional<BlockMemory> SlabPages::Take(uint64_t bytes, CUcontext context, Slots slots) {
  const uint64_t slot_bytes = SlotBytes(bytes);
  Extent* page = FindFitting(slot_bytes, context);
  if (page == nullptr && slots == Slots::kAnyLarger) page = FindLarger(slot_bytes, context);
  if (page == nullptr) return std::nullopt;
  return TakeFrom(page);
}

// A page with a free slot, if there is one: perhaps one that was kept, whatever it was cut into.
Extent* SlabPages::FindFitting(uint64_t slot_bytes, CUcontext context) {
  if (const auto pages = open_.find({slot_bytes, context}); pages != open_.end()) {
    return pages->second.back();
  }
  const auto fits = [context](const Extent* page) {
    return page->context == context && !page->lost;
  };
  const auto kept = std::find_if(kept_.rbegin(), kept_.rend(), fits);
  if (kept == kept_.rend()) return nullptr;
  Extent* const page = *kept;
  kept_.erase(std::next(kept).base());
  kept_bytes_.fetch_sub(page->bytes, std::memory_order_relaxed);
  untaken_ = std::min(untaken_, kept_.size());
  Cut(page, slot_bytes);
  return page;
}

Extent* SlabPages::FindLarger(uint64_t slot_bytes, CUcontext context) const {
  const auto larger =
      std::find_if(open_.upper_bound({slot_bytes, context}), open_.end(),
                   [context](const auto& pages) { return pages.first.second == context; });
  return larger == open_.end() ? nullptr : larger->second.back();
}

void SlabPages::Cut(Extent* page, uint64_t slot_bytes) {
  page->slots.bytes = slot_bytes;
  page->slots.freed.clear();
  page->slots.fresh = static_cast<uint32_t>(page->bytes / slot_bytes);
  open_[{slot_bytes, page->context}].push_back(page);
}

BlockMemory SlabPages::TakeFrom(Extent* page) {
  PageSlots& slots = page->slots;
  uint32_t slot;
  if (slots.freed.empty()) {
    slot = static_cast<uint32_t>(page->bytes / slots.bytes) - slots.fresh--;
  } else {
    slot = slots.freed.back();
    slots.freed.pop_back();
  }
  if (!slots.any()) Remove(page);
  return {page, slot};
}

BlockMemory SlabPages::Add(Extent* page, uint64_t bytes) {
  Cut(page, SlotBytes(bytes));
  return TakeFrom(page);
}

void SlabPages::Return(const BlockMemory& slot) {
  Extent* const page = slot.extent;
  if (!page->slots.any()) open_[{page->slots.bytes, page->context}].push_back(page);
  page->slots.freed.push_back(slot.slot);
}

void SlabPages::Close(Extent* page) {
  if (!page->slots.any()) return;
  Remove(page);
  page->slots.freed.clear();
  page->slots.fresh = 0;
}

void SlabPages::Remove(Extent* page) {
  const auto pages = open_.find({page->slots.bytes, page->context});
  if (pages->second.back() == page) {
    pages->second.pop_back();
  } else {
    std::erase(pages->second, page);
  }
  if (pages->second.empty()) open_.erase(pages);
}

std::vector<Extent*> SlabPages::Keep(Extent* page) {
  kept_.push_back(page);
  kept_bytes_.fetch_add(page->bytes, std::memory_order_relaxed);
  return TakeOldest(kept_.size() > kMostKept ? 1 : 0);
}

std::vector<Extent*> SlabPages::TakeKept(size_t keep) {
  return TakeOldest(kept_.size() - std::min(keep, kept_.size()));
}

std::vector<Extent*> SlabPages::TakeUntaken(bool* more) {
  std::vector<Extent*> taken = TakeOldest(untaken_);
  untaken_ = kept_.size();
  *more = untaken_ != 0;
  return taken;
}

std::vector<Extent*> SlabPages::TakeKeptOf(CUcontext context) {
  const auto others =
      std::stable_partition(kept_.begin(), kept_.end(),
                            [context](const Extent* page) { return page->context == context; });
  return TakeOldest(static_cast<size_t>(others - kept_.begin()));
}

std::vector<Extent*> SlabPages::TakeOldest(size_t count) {
  const auto end = kept_.begin() + static_cast<ptrdiff_t>(count);
  std::vector<Extent*> taken(kept_.begin(), end);
  kept_.erase(kept_.begin(), end);
  for (const Extent* page : taken) kept_bytes_.fetch_sub(page->bytes, std::memory_order_relaxed);
  untaken_ = std::min(untaken_, kept_.size());
  return taken;
}

}  // namespace tandem::shim
