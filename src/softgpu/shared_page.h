// What all processes that use one software GPU share: the layout of the device's file, which each
// of them maps.
//
// Invariants:
// 1. All bytes zero is a valid state of everything below the header: an idle device.
// 2. No member is a lock. A process may stop or die between any two instructions and the others go
//    on; who may write what is said at each member's user (Ledger, Bus, ComputeTurn).
#pragma once

#include <atomic>
#include <cstdint>

namespace tandem::soft {

inline constexpr uint64_t kSharedMagic = 0x5550'4753'4d44'4e54;  // "TNDMSGPU"
inline constexpr uint32_t kSharedVersion = 1;
inline constexpr int kSlotCount = 128;  // processes that can use one device at a time

// One per process.
struct alignas(64) Slot {
  std::atomic<uint64_t> used;     // Ledger: what the process holds, and a sequence number
  std::atomic<uint64_t> pending;  // Ledger: the change announced
  std::atomic<uint32_t> turn;     // ComputeTurn: futex, counts wake-ups
};

struct SharedPage {
  uint64_t magic;
  uint32_t version;
  uint32_t page_bytes;  // sizeof(SharedPage)
  uint64_t vram_bytes;

  alignas(64) std::atomic<uint64_t> ledger;
  alignas(64) std::atomic<int64_t> bus_free_at_ns[2];  // one per direction
  alignas(64) std::atomic<uint64_t> engine_owner;
  std::atomic<uint64_t> engine_waiting[kSlotCount / 64];  // one bit per slot
  Slot slots[kSlotCount];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(Slot) == 64);

}  // namespace tandem::soft
