// Standing: how a session stands, for listings, JSON and messages. The states and reasons here are
// the whole documented set (docs/json.md).
//
// Pure. Threading: none.
// Invariant: a session with a wish of its own is waiting, also while it holds the lease: its
// program stands still until the wish is fulfilled.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/core/arbiter.h"

namespace tandem::service {

enum class State {
  kUnused,      // of a run: none of its processes has a session
  kIdle,        // no lease, and no work that would need one
  kWaiting,     // for what `Reason` says
  kRestoring,   // it has the lease, and its memory is on the way to the card
  kRunning,     // it may submit work
  kReleasing,   // it finishes its work, then others get the lease
  kSuspending,  // on the way off the card, on an order
  kSuspended,   // off the card, on an order
  kStuck,       // it does not answer the daemon
};

enum class Reason {
  kNone,
  kTurn,           // others are before it in line
  kMemory,         // others are still freeing memory
  kContext,        // no room for one more context
  kFixed,          // no room for memory that cannot be swapped
  kFixedOfOthers,  // others' memory that cannot be swapped takes the room
  kPause,          // it is opportunistic, and others work
  kHost,           // no host memory for what it has allocated and never used
  kBlocks,         // it does not wait: it does not give others what it was asked for
  kForeign,        // programs outside Tandem hold the room that it needs
  kRestart,        // the daemon has just started, and waits for programs to come back
  // It does not wait: it was refused memory,
  kLimitRefused,  // by the limit of its run
  kCardRefused,   // that the card does not have for it
  kHostRefused,   // that the host does not have for it
};

// Whether it says what a session went on without.
bool IsRefusal(Reason reason);

std::string_view CodeOf(State state);
std::string_view TextOf(State state);    // in a few words
std::string_view CodeOf(Reason reason);  // empty for kNone

struct Standing {
  State state = State::kIdle;
  Instant since;  // it has been in that state
  Reason reason = Reason::kNone;
  std::string reason_text;  // for people, with numbers
  uint64_t place = 0;       // in line for the GPU, from 1; 0: in none
  // Its program is held back, or would be: since then.
  std::optional<Instant> held_back_since;
};

// What a session stands in, beside the others of its GPU.
struct Surroundings {
  std::vector<core::Wish> waiting;  // what the GPU's sessions wait for: Arbiter::Waiting
  Bytes foreign;                    // of the GPU, that programs outside Tandem hold
  bool settling = false;            // the daemon has just started, and decides nothing yet
};

Standing StandingOf(const core::Arbiter& arbiter, const Surroundings& around, core::SessionId id);

// All that its program was held back for others, to now.
Duration WaitedOf(const core::Session& session, const Standing& standing, Instant now);
// All that it had the lease for.
Duration HeldOf(const core::Session& session, Instant now);

// Since when it has kept others waiting, although it was asked for what it has. A usual
// hand-over does not count.
std::optional<Instant> BlocksSince(const core::Session& session, Instant now);

}  // namespace tandem::service
