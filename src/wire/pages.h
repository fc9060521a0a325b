// The two pages a session shares with the daemon, each a sealed memfd of kPageBytes.
//
// Decisions: written by the daemon, read-only for the session. Reports: written by the session; the
// daemon reads them as claims. Neither side can resize them, so neither can make the other fault.
// Programs older than the daemon read these pages, too: a field is only ever added at the end.
// All fields are lock-free atomics: a torn or late value costs a decision's quality, never safety.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tandem::wire {

inline constexpr size_t kPageBytes = 4096;
inline constexpr uint64_t kDecisionsMagic = 0x31636544646e6154;  // "TandDec1"
inline constexpr uint64_t kReportsMagic = 0x31706552646e6154;    // "TandRep1"

struct DecisionsPage {
  uint64_t magic;
  std::atomic<uint32_t> contended;       // 1 while another session waits for this GPU
  std::atomic<uint64_t> limit_bytes;     // of its run; may change while it runs
  std::atomic<uint64_t> run_used_bytes;  // allocated by all sessions of its run; for protocol 2
  std::atomic<uint32_t> suspended;       // 1: it gets no lease until it is resumed
  std::atomic<uint64_t> run_others_used_bytes;  // allocated by the other sessions of its run
  std::atomic<uint64_t> host_limit_bytes;       // of the host, for all sessions together
  std::atomic<uint64_t> host_share_bytes;       // the part of it that this one may need
  std::atomic<uint64_t> host_refusals;  // of what it asked for, since the host's memory is full
  std::atomic<uint64_t> run_others;     // number of other sessions of its run
  // Of a session that oversubscribes: no more will be on the card at once. 0: it does not; where
  // nothing is left for it this is 1.
  std::atomic<uint64_t> most_resident_bytes;
  std::atomic<uint64_t> run_oversubscribes;  // 1: its run does, and it would if it could
  std::atomic<uint64_t> host_file_bytes;     // of host_share_bytes, in its file instead of memory
  std::atomic<uint32_t> watched;             // 1: it reports its pauses, even if no session waits
  // For how long it may wait for room that others need, for what cannot be swapped. 0: not said.
  std::atomic<uint64_t> fixed_wait_ms;
  // What a Ready asks for beyond this is not waited for.
  std::atomic<uint64_t> most_needed_bytes;
  // 1: it is suspended, and calls that would wait for a lease return an error instead.
  std::atomic<uint32_t> refuses;
  // The most that it may have allocated while no daemon answers: what fits beside all memory that
  // cannot be swapped. 0: not said, or it oversubscribes.
  std::atomic<uint64_t> most_allocated_bytes;
};

struct ReportsPage {
  uint64_t magic;
  std::atomic<uint64_t> resident_bytes;  // on the card
  std::atomic<uint64_t> swapped_bytes;   // in host memory
  // That came onto the card in the place of others of its own, since it is used more.
  std::atomic<uint64_t> exchanged_bytes;
};

static_assert(sizeof(DecisionsPage) <= kPageBytes && sizeof(ReportsPage) <= kPageBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace tandem::wire
