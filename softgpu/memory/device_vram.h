// DeviceVram: the VRAM of one device as this process sees it: the card it is on, with the process's
// share of the joint VRAM, the store that has its pages, and the heap.
//
// Threading: the owner serialises the calls of the heap, and UseCard with them; each other part
// says its own. A DeviceVram lives until the process ends.
#pragma once

#include <atomic>
#include <memory>

#include "softgpu/card/address_space.h"
#include "softgpu/card/card.h"
#include "softgpu/card/physical_store.h"
#include "softgpu/memory/heap.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

class DeviceVram {
 public:
  // REQUIRES: `space` outlives this.
  DeviceVram(int ordinal, std::unique_ptr<Card> card, std::unique_ptr<PhysicalStore> store,
             AddressSpace* space)
      : ordinal_(ordinal),
        own_card_(std::move(card)),
        card_(own_card_.get()),
        store_(std::move(store)),
        space_(space),
        heap_(space, store_.get(), ordinal) {}
  DeviceVram(const DeviceVram&) = delete;
  DeviceVram& operator=(const DeviceVram&) = delete;

  int ordinal() const { return ordinal_; }
  Card* card() const { return card_.load(std::memory_order_acquire); }
  const CUuuid& uuid() const { return card()->uuid; }
  SharedDevice& shared() { return *card()->shared; }
  PhysicalStore& store() { return *store_; }
  AddressSpace* space() { return space_; }
  Heap& heap() { return heap_; }

 protected:
  // REQUIRES: nothing is charged to the card it was on.
  void UseCard(Card* card) {
    card_.store(card, std::memory_order_release);
    store_->ChargeTo(card->shared.get());
  }

 private:
  const int ordinal_;
  const std::unique_ptr<Card> own_card_;  // another device may be on it
  std::atomic<Card*> card_;
  const std::unique_ptr<PhysicalStore> store_;
  AddressSpace* const space_;
  Heap heap_;
};

}  // namespace tandem::soft
