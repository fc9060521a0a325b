// The layout of a device's file, which all processes that use one software GPU map.
//
// Invariants:
// 1. All bytes zero is a valid state of everything below the header: an idle device.
// 2. No member is a lock. A process may stop or die between any two instructions and the others go
//    on; each member's user (Ledger, Bus, ComputeTurn, DeviceClock, BusyTime) says which process
//    may write it.
#pragma once

#include <atomic>
#include <cstdint>

namespace tandem::soft {

inline constexpr uint64_t kSharedMagic = 0x5550'4753'4d44'4e54;  // "TNDMSGPU"
inline constexpr uint32_t kSharedVersion = 3;
inline constexpr int kSlotCount = 128;  // processes that can use one device at a time
inline constexpr int kBusyBuckets = 8;

// Where a device's size comes from: something sets it, or it is a part of the host's free memory,
// which changes all the time. Of the latter kind the first in the device's file holds.
enum class VramSource { kSet, kHost };

// What processes use in turns.
enum class SharedEngine { kCompute, kToDevice, kToHost };
inline constexpr int kSharedEngines = 3;

// One per process.
struct alignas(64) Slot {
  std::atomic<uint64_t> used;                  // Ledger: what the process holds, and a sequence
  std::atomic<uint64_t> pending;               // Ledger: the change announced
  std::atomic<uint32_t> turn[kSharedEngines];  // ComputeTurn: futexes, count wake-ups
  std::atomic<int32_t> priority;               // the process's own: higher goes first
  std::atomic<uint32_t> pid;                   // the process's own, for monitoring
  alignas(64) std::atomic<uint64_t> busy[kBusyBuckets];  // BusyTime: of the compute engine
};

// One per SharedEngine.
struct alignas(64) EngineState {
  std::atomic<uint64_t> owner;                     // ComputeTurn
  std::atomic<uint64_t> waiting[kSlotCount / 64];  // ComputeTurn: one bit per slot
  std::atomic<int64_t> free_at_ns;  // of the buses by the real clock: Bus; else: DeviceClock
};

struct SharedPage {
  uint64_t magic;
  uint32_t version;
  uint32_t page_bytes;  // sizeof(SharedPage)
  uint64_t vram_bytes;
  uint64_t model_clock;     // 1: the device keeps time by the model clock; 0: by the real one
  uint64_t vram_from_host;  // 1: nothing set vram_bytes, and so it stays

  alignas(64) std::atomic<uint64_t> ledger;
  std::atomic<int64_t> clock_lag_ns;  // DeviceClock
  EngineState engines[kSharedEngines];
  Slot slots[kSlotCount];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(Slot) == 128);

}  // namespace tandem::soft
