// The words of core: ids, what may happen to a GPU's sessions (events) and what is to be done about
// it (actions). The wire's messages map onto them one to one; times and byte counts are typed here.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/time.h"
#include "src/core/switch_cost.h"

namespace tandem::core {

struct SessionId {
  uint64_t value = 0;
  constexpr auto operator<=>(const SessionId&) const = default;
};

// Sessions of one run share one limit.
struct RunId {
  uint64_t value = 0;
  constexpr auto operator<=>(const RunId&) const = default;
};

// Whose a session is.
struct Tenant {
  std::string project;  // empty: none in particular
  std::string user;
  bool operator==(const Tenant&) const = default;
};

// What kind of work it is, as its user says; the first is the most urgent. The policy `priority`
// goes by it.
enum class Class : uint8_t { kProduction, kInteractive, kBatch, kOpportunistic };
inline constexpr size_t kClasses = 4;

// A project; with a user that user in it; with a session that one of the user's.
struct ShareKey {
  std::string project;
  std::optional<std::string> user;
  std::optional<SessionId> session;
  auto operator<=>(const ShareKey&) const = default;
};

// The part of the contended time that a session or a user gets (shares.h).
struct Share {
  double weight = 1;               // > 0
  std::optional<double> fraction;  // in (0, 1]; then the weight says nothing
  bool operator==(const Share&) const = default;
};

// A lease's number: increasing per GPU, never used twice.
using Epoch = uint64_t;

// Why a lease is taken.
enum class Why {
  kTurnEnded,    // others wait, and it has worked for its quantum
  kMadeWay,      // it slipped in while another waited for a turn to end, which is now
  kPaused,       // others wait, and it does nothing
  kInterrupted,  // by what the policy ranks as more urgent than a turn
  kHeldUp,       // it cannot go on anyway: its bytes do not come, or it needs more of them
  kOrdered,      // it is suspended, or the policy wants it off the card
};

// One change of holders (or growth of one, or room for a context) that moved memory or revoked a
// lease, whether or not the newcomer got all it needs in the end.
struct Handover {
  Epoch epoch = 0;
  SessionId to;
  std::vector<SessionId> from;  // whose lease was taken
  std::optional<Why> why;       // the first of them lost it
  bool given_up = false;        // the newcomer did not get all it needs
  Bytes lacked;                 // need − credit of the newcomer when it was chosen
  Bytes free;                   // of the budget at that moment
  Bytes out;                    // copied to the host by those who yielded
  Bytes evicted;                // dropped from the card by them, since they had to
  Bytes in;                     // copied back by the newcomer
  Moves moved;                  // the same, and what moved without a copy, as far as was told
  Instant revoked_at;           // when the hand-over began: the first Revoke, else the Grant
  Instant released_at;
  Instant running_at;  // or when it was given up
};

namespace event {

// `resident` and `contexts`: what it still has on the card from before the daemon knew it.
struct SessionAdded {
  SessionId id;
  RunId run;
  Bytes limit;  // of the run; may be above the budget; counts when the run's first session comes
  Bytes allocated;
  Bytes resident;
  uint32_t contexts = 0;
  // The same process registered before, perhaps with the same number; its bytes are those that this
  // session claims.
  std::optional<SessionId> replaces;
  // The budget with what this session explains of the card's use; counts where it is more.
  std::optional<Bytes> budget = std::nullopt;
  Bytes fixed = {};  // that it has from before, and that cannot be swapped; contexts excluded
  // It may allocate more than fits: what the card does not hold it reaches on the host.
  bool oversubscribes = false;
  bool spills = false;  // takes a file in the place of the host's memory
  Tenant tenant = {};
  Class of_class = Class::kInteractive;
};
struct SessionGone {
  SessionId id;
};
struct Reserve {
  SessionId id;
  uint64_t sequence = 0;
  Bytes total;
};
struct ContextWanted {
  SessionId id;
};
struct ContextGone {
  SessionId id;
};
// Memory that cannot be swapped, such as an array's. It counts for the run's limit.
struct FixedWanted {
  SessionId id;
  uint64_t sequence = 0;
  Bytes bytes;
};
struct FixedGone {
  SessionId id;
  Bytes bytes;
};
struct Ready {
  SessionId id;
  Bytes need;
};
// It waits for the lease no longer.
struct NotReady {
  SessionId id;
};
struct Running {
  SessionId id;
  Epoch epoch = 0;
  Bytes in;
};
// More of what a holder needs has come onto the card: `resident` is there now. `copied`: of what
// came since the last one; `from_file`: of that.
struct Restored {
  SessionId id;
  Epoch epoch = 0;
  Bytes resident;
  Bytes copied;
  Bytes from_file = {};
};
struct Idle {
  SessionId id;
  Epoch epoch = 0;
};
struct Active {
  SessionId id;
  Epoch epoch = 0;
};
struct Released {
  SessionId id;
  Epoch epoch = 0;
};
// Epoch 0: without a lease, and it cannot give up what Evict asked for.
struct Busy {
  SessionId id;
  Epoch epoch = 0;
};
struct Evicted {
  SessionId id;
  Bytes resident;
  Bytes copied;
  Bytes swapped = {};  // what of it is on the host alone, as far as it says
  Bytes to_file = {};  // of `copied`
};
// An order takes the session off the card, or lets it return: until then it gets no lease and all
// its bytes go to the host.
struct Suspended {
  SessionId id;
  bool suspended = true;
  bool refuses = false;  // what it asks for meanwhile is refused, not kept waiting
};
// The limit of a run that sessions may belong to already.
struct LimitSet {
  RunId run;
  Bytes limit;
};
// A share changes from now on.
struct ShareSet {
  ShareKey of;
  Share share;
};
// What kind of work a session does is another one from now on.
struct ClassSet {
  SessionId id;
  Class of_class = Class::kInteractive;
};
// A burst begins that the session says will be about this long; zero: it does not say. It was idle
// until now, or its work so far belongs to this burst.
struct Declared {
  SessionId id;
  Duration burst;
};
// Its memory may leave the card though no session needs the room, until it asks for a lease.
struct Leaving {
  SessionId id;
};
// Another rule for who is next, by its name (policy.h). One that is not known changes nothing.
struct PolicySet {
  std::string policy;
};
// The bytes that sessions may get. What they have been promised already is kept.
struct BudgetSet {
  Bytes total;
};
struct Tick {};

}  // namespace event

using Event =
    std::variant<event::SessionAdded, event::SessionGone, event::Reserve, event::ContextWanted,
                 event::ContextGone, event::FixedWanted, event::FixedGone, event::Ready,
                 event::NotReady, event::Running, event::Restored, event::Idle, event::Active,
                 event::Released, event::Busy, event::Evicted, event::Suspended, event::LimitSet,
                 event::ShareSet, event::ClassSet, event::Declared, event::Leaving,
                 event::BudgetSet, event::PolicySet, event::Tick>;

namespace action {

using Why = core::Why;

struct Grant {
  SessionId id;
  Epoch epoch = 0;
  Bytes credit;
  Duration window;
};
struct Credit {
  SessionId id;
  Bytes credit;
};
struct Revoke {
  SessionId id;
  Epoch epoch = 0;
  Duration deadline;
  Why why = Why::kTurnEnded;
};
struct Evict {
  SessionId id;
  Bytes target;
};
// Answers to ContextWanted, in their order. Not granted: a context would not fit beside what the
// session itself has allocated and the contexts that there are, or it has been held up too long.
struct ContextReserved {
  SessionId id;
  bool granted = false;
};
// Answers to FixedWanted. Not granted: above the limit, or as for a context.
struct FixedReserved {
  SessionId id;
  uint64_t sequence = 0;
  bool granted = false;
};
struct Reserved {
  SessionId id;
  uint64_t sequence = 0;
  bool granted = false;
};
// Why the session is refused what it asked for: the host's memory is full. Comes before that.
struct HostFull {
  SessionId id;
};
struct SetContended {
  SessionId id;
  bool contended = false;
  bool watched = false;  // it reports its pauses, even if no session waits
};
struct HandoverDone {
  Handover record;
};
// Send Tick then, if nothing happens before. Replaces any earlier WakeAt.
struct WakeAt {
  Instant instant;
};
// The session has kept others waiting for as long as a session may. Comes again while it does.
struct Overdue {
  SessionId id;
};
// The session asked for what no honest one can ask for; it is as it was before.
struct Breach {
  SessionId id;
  std::string reason;
};

}  // namespace action

using Action = std::variant<action::Grant, action::Credit, action::Revoke, action::Evict,
                            action::ContextReserved, action::FixedReserved, action::Reserved,
                            action::HostFull, action::SetContended, action::HandoverDone,
                            action::WakeAt, action::Breach, action::Overdue>;

}  // namespace tandem::core
