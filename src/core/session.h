// Session: what the arbiter knows about one session.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "src/core/byte_time.h"
#include "src/core/running_time.h"
#include "src/core/switch_cost.h"
#include "src/core/tally.h"
#include "src/core/turns.h"
#include "src/core/types.h"

namespace tandem::core {

enum class Phase {
  kAway,      // no lease
  kGranted,   // Grant sent, restoring
  kRunning,   // Running received
  kRevoking,  // Revoke sent
};

struct FixedRequest : event::FixedWanted {
  Instant asked_at;
};

// Memory that a session did not get.
struct Refusal {
  enum class By {
    kLimit,  // of its run
    kCard,   // it would not fit on the card, even alone beside what cannot be swapped
    kHost,   // there is no host memory for it
  };
  By by = By::kCard;
  Bytes bytes;  // that it asked for on top of what it had
};

struct Session {
  SessionId id;
  Tenant tenant;
  Phase phase = Phase::kAway;
  Class of_class = Class::kInteractive;
  bool stuck = false;  // a deadline passed without a word from it
  // Its work does not end before it has the card again, so none of its bytes can leave. So it is
  // with what it began under a daemon that is gone.
  bool rooted = false;
  // By an order: no wish of its own counts until it is resumed.
  bool suspended = false;
  bool refuses = false;  // it is suspended, and what it asks for is refused, not kept waiting
  // What the host had promised it was taken back, since it had not used any of it. It wishes for
  // nothing until the host has room for that again.
  bool lapsed = false;
  bool leaving = false;  // by its own word: its lease and bytes may go, until it asks for a lease
  bool oversubscribes = false;
  bool spills = false;
  // Cold memory is reached by the card where it lies, which a file does not allow.
  bool needs_memory() const { return oversubscribes || !spills; }
  bool wants_lease = false, wants_growth = false;  // has such a wish
  bool contended = false, watched = false;         // what it was last told
  bool idle = false;
  Epoch epoch = 0;
  Bytes allocated;  // that can be swapped
  Bytes need;       // what must be on the card for it to run
  Bytes asked;      // what it says it needs: more where it oversubscribes
  Bytes credit;     // what it may have there
  Bytes charge;     // of the budget: its credit, and what it has beyond that while it swaps out
  // A Grant or Credit on its way may cross an unasked Evicted: what that says about credit is not
  // to be relied on until Running or Released has shown that the session knows.
  bool credit_in_flight = false;
  Bytes excess;   // claimed from before a restart, and more than there was room for
  Bytes on_host;  // copied there, and kept until it runs again: an upper bound
  Bytes cold;     // there to be reached by its kernels: an upper bound
  uint32_t contexts = 0;
  std::vector<Instant> contexts_wanted;  // when each was asked for; not answered
  Bytes fixed;  // that it has beside its contexts, and that cannot be swapped
  // The last memory it asked for, where that was refused. A grant or a free ends it.
  std::optional<Refusal> refused;
  std::vector<FixedRequest> fixed_wanted;  // not answered, in their order
  // Since when the first of these has been held up (Arbiter::IsHeldUp).
  std::optional<Instant> contexts_held_up, fixed_held_up;
  Duration window;
  Duration deadline;    // for its next Revoke
  Duration backoff;     // after its next Busy
  Instant expected_at;  // silence after this makes it stuck
  Bytes leaving_from;   // while it swaps out: what it had when expected_at was last put off
  std::optional<Instant> leaves_since;  // its next chunk is on the way out
  FadingRatio modified{Bytes(1)};       // part of the evicted bytes that had to be copied
  // Since its grant it has neither run nor told what it has: some of its credit may still be on the
  // host.
  bool restoring = false;
  Bytes arrived;                // while it is brought in: what it has there by its own account
  Instant arrives_since;        // its next chunk is on the way in, or it waits for credit
  Bytes arriving_from;          // what it had there when progressed_at was last put off
  Instant progressed_at;        // since then neither a chunk has arrived nor more credit was given
  bool tells_arrivals = false;  // it is of a version that does
  Instant phase_since;          // it is in this phase
  Instant suspended_at;         // where it is
  Instant reserved_at;          // what it has allocated has grown
  Instant asked_at;             // for this lease
  Instant granted_at;           // of this lease
  Instant running_since;        // of this lease; until it runs, as granted_at
  Instant active_since;         // since then it works without a pause, where it does
  Instant idle_since;
  Instant last_used;
  std::optional<Instant> left_at;  // when its lease was last taken
  bool had_its_turn = false;       // since its turn had ended, and others waited
  // It was asked for its lease or its memory and has not given it, since then or since others wait.
  std::optional<Instant> blocks_since;
  Instant not_before;          // no Revoke before this: it was busy just now
  std::optional<Instant> cap;  // protected no longer than this: it slipped in
  Pauses pauses;
  Recent bursts;         // of work between those that are worth a switch
  Duration declared;     // its current or next burst, by its own word; zero: it does not say
  bool overran = false;  // its last declared burst was longer than it said
  Duration worked;   // in this burst so far, under this lease and others, until it was last active
  int64_t rank = 0;  // that it had while it waited for this lease
  std::optional<SessionId> yields_to;  // while it swaps out
  std::unique_ptr<Handover> record;    // of the hand-over that is bringing it in

  // For listings.
  uint64_t leases = 0;
  Duration waited;
  Duration held;
  RunningTime active;  // working()
  ByteTime allocated_for, resident_for, swapped_for;

  // Of the roster.
  Tally counted;
  bool touched = false;

  void Enter(Phase next, Instant now) {
    phase = next;
    phase_since = now;
  }
  // What it has worked since its last pause that was worth a switch.
  Duration BurstSoFar(Instant now) const {
    return working() ? worked + (now - active_since) : worked;
  }
  // It has nothing to do; it has something again. A pause that is longer than `worth` ends a burst.
  void BeginPause(Instant now);
  void EndPause(Instant now, Duration worth);
  void EndBurst();
  void Declare(Duration burst, Instant now);
  // How long its burst will be, as far as can be told: as long as it says, if it keeps to that,
  // else as long as usual; and no less than it is.
  Duration ExpectedBurst() const;
  // Has work to do, or may have.
  bool busy() const { return !stuck && (asks() || wants_growth || (holds() && !idle)); }
  bool working() const {
    return phase != Phase::kAway && phase != Phase::kGranted && !idle && !stuck;
  }
  // All of it goes to the host, though no session needs the room.
  bool goes() const { return suspended || leaving; }
  // What it needs is cut to what the card can hold: it oversubscribes, or asks for room that it has
  // not allocated yet.
  bool need_is_cut() const { return oversubscribes || asked > allocated; }
  // Its wishes do not count for now.
  bool parked() const { return suspended || lapsed; }
  // Waits for a lease, and its wishes count.
  bool asks() const { return wants_lease && !parked(); }
  // Waits for anything.
  bool waits() const {
    return wants_lease || wants_growth || !contexts_wanted.empty() || !fixed_wanted.empty();
  }
  // Since when it has had memory without using any; nothing where it does, or may not.
  std::optional<Instant> UnusedSince() const;
  bool holds() const { return phase != Phase::kAway; }
  // And answers.
  bool holds_well() const { return holds() && !stuck; }
  // Whether what it has without a lease cannot be counted on to leave.
  bool immovable() const { return stuck || (rooted && !holds()); }
  bool evicting() const { return excess > Bytes() || charge > credit; }
  // Whether something is to come from it by expected_at.
  bool expected() const { return phase == Phase::kRevoking || (!rooted && evicting()); }
  // What the card must have room for, or it could never run.
  Bytes must_hold() const { return oversubscribes ? Bytes() : allocated; }
  Tally Count() const;
};

}  // namespace tandem::core
