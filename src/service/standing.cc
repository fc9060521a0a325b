#include "src/service/standing.h"

#include <algorithm>
#include <array>

#include "src/base/text.h"

namespace tandem::service {
namespace {

struct StateName {
  std::string_view code, text;
};
// In the order of State.
constexpr std::array<StateName, 9> kStates = {{
    {"unused", "uses no GPU"},
    {"idle", "has no work for the GPU"},
    {"waiting", "waits"},
    {"restoring", "its memory is coming back to the GPU"},
    {"running", "may submit work to the GPU"},
    {"releasing", "finishes its work, then others get the GPU"},
    {"suspending", "is leaving the GPU, on an order"},
    {"suspended", "is off the GPU, on an order"},
    {"stuck", "does not answer the daemon"},
}};
static_assert(kStates.size() == static_cast<size_t>(State::kStuck) + 1);

// In the order of Reason.
constexpr std::array<std::string_view, 14> kReasons = {"",
                                                       "turn",
                                                       "memory",
                                                       "context",
                                                       "fixed_memory",
                                                       "fixed_memory_of_others",
                                                       "pause_of_others",
                                                       "host_memory",
                                                       "blocks_others",
                                                       "foreign_memory",
                                                       "daemon_restart",
                                                       "limit_refused",
                                                       "gpu_memory_refused",
                                                       "host_memory_refused"};
static_assert(kReasons.size() == static_cast<size_t>(Reason::kHostRefused) + 1);

// What a session waits for first, of what is `waiting` for its GPU; waiting.end() where it does
// not.
std::vector<core::Wish>::const_iterator FirstWish(const std::vector<core::Wish>& waiting,
                                                  core::SessionId id) {
  return std::find_if(waiting.begin(), waiting.end(),
                      [&](const core::Wish& wish) { return wish.id == id; });
}

// What the wish asks for, with all that cannot be swapped already.
Bytes WithFixed(const core::Arbiter& arbiter, const core::Wish& wish) {
  const core::Session& waiter = arbiter.sessions().at(wish.id);
  const Bytes fixed = arbiter.budget().fixed();
  if (wish.kind == core::Wish::Kind::kContext) return fixed + arbiter.config().context;
  if (wish.kind == core::Wish::Kind::kFixed) return fixed + waiter.fixed_wanted.front().bytes;
  return fixed + waiter.need;
}

// Who keeps what the wish would need, and gives no answer: stopped processes as a rule. Nothing
// where the wish fits beside them. For people; begins with a semicolon.
std::string WhoIsStuck(const core::Arbiter& arbiter, const core::Wish& wish) {
  Bytes wanted = WithFixed(arbiter, wish);
  std::string text;
  for (const auto& [id, session] : arbiter.sessions()) {
    const Bytes kept = arbiter.ChargeOf(id);
    if (!session.immovable() || id == wish.id || kept == Bytes()) continue;
    wanted += kept;
    text += (text.empty() ? "; " : ", ") + ("session " + std::to_string(id.value)) +
            (session.stuck ? " does not answer" : " waits in the middle of its work") +
            " and keeps " + FormatBytes(kept);
  }
  return wanted > arbiter.budget().total() ? text : "";
}

// The session that needs most of the card to run at all, beside the one with the wish; or null.
const core::Session* LargestBeside(const core::Arbiter& arbiter, const core::Wish& wish) {
  const core::Session* largest = nullptr;
  for (const auto& [id, session] : arbiter.sessions()) {
    if (id == wish.id || session.suspended) continue;
    if (largest == nullptr || session.must_hold() > largest->must_hold()) largest = &session;
  }
  return largest;
}

// Which session needs the room that the wish is for, or it could never run again. Nothing where
// there is room beside each. For people; begins with a semicolon.
std::string WhoNeedsIt(const core::Arbiter& arbiter, const core::Wish& wish) {
  const core::Session* const largest = LargestBeside(arbiter, wish);
  if (largest == nullptr) return "";
  const Bytes needs = largest->must_hold();
  if (needs + WithFixed(arbiter, wish) <= arbiter.budget().total()) return "";
  return "; session " + std::to_string(largest->id.value) + " needs " + FormatBytes(needs) +
         " of the card to run at all";
}

// Whether a session would not have room on the card even alone, beside what cannot be swapped.
bool IsKeptOut(const core::Arbiter& arbiter, const core::Session& session) {
  return !session.oversubscribes && session.need > arbiter.MostResident();
}

std::string ForeignText(Bytes foreign) {
  return "programs outside Tandem hold " + FormatBytes(foreign) + " of the GPU";
}

// Whether no end of a turn makes room for the wish, but the end of the programs outside Tandem
// does.
bool ForeignIsInTheWay(const core::Arbiter& arbiter, const core::Wish& wish, Bytes foreign) {
  Bytes wanted = WithFixed(arbiter, wish);
  const core::Session* const largest = wish.lasting() ? LargestBeside(arbiter, wish) : nullptr;
  if (largest != nullptr) wanted += largest->must_hold();
  const Bytes total = arbiter.budget().total();
  return wanted > total && wanted <= total + foreign;
}

State StateOf(const core::Session& session, bool has_bytes, bool waits) {
  if (session.stuck) return State::kStuck;
  if (session.suspended) {
    return session.holds() || has_bytes ? State::kSuspending : State::kSuspended;
  }
  if (waits) return State::kWaiting;
  switch (session.phase) {
    case core::Phase::kGranted:
      return State::kRestoring;
    case core::Phase::kRunning:
      return session.idle ? State::kIdle : State::kRunning;
    case core::Phase::kRevoking:
      return State::kReleasing;
    case core::Phase::kAway:
      break;
  }
  return State::kIdle;
}

// Why the wish at `place` in line is not fulfilled.
void Explain(const core::Arbiter& arbiter, const Surroundings& around, const core::Wish& wish,
             uint64_t place, Standing* standing) {
  const core::Session& session = arbiter.sessions().at(wish.id);
  const std::string blame = WhoIsStuck(arbiter, wish);
  const auto because = [&](Reason reason, const std::string& text) {
    standing->reason = reason;
    standing->reason_text = text + blame;
  };
  // Before its lease the holders' work has to end, which is no different from being in line.
  const bool served = arbiter.claimant() == wish.id && (session.holds() || wish.lasting());
  if (served) {
    return because(Reason::kMemory, "others are still freeing memory");
  }
  if (ForeignIsInTheWay(arbiter, wish, around.foreign)) {
    return because(Reason::kForeign, ForeignText(around.foreign));
  }
  if (wish.kind == core::Wish::Kind::kContext) {
    return because(Reason::kContext, "no room for one more context" + WhoNeedsIt(arbiter, wish));
  }
  if (wish.kind == core::Wish::Kind::kFixed) {
    return because(Reason::kFixed, "no room for " +
                                       FormatBytes(session.fixed_wanted.front().bytes) +
                                       " that cannot be swapped" + WhoNeedsIt(arbiter, wish));
  }
  if (IsKeptOut(arbiter, session)) {
    return because(Reason::kFixedOfOthers, "others keep " + FormatBytes(arbiter.budget().fixed()) +
                                               " that cannot be swapped");
  }
  if (arbiter.IsBarred(session)) {
    return because(Reason::kPause, "it is opportunistic, and others work");
  }
  standing->place = place;
  because(Reason::kTurn, Ordinal(place) + " in line");
}

// It goes on without the memory that it was refused.
void ExplainRefusal(const core::Arbiter& arbiter, const Surroundings& around,
                    const core::Session& session, Standing* standing) {
  const core::Refusal& refused = *session.refused;
  const std::string what = FormatBytes(refused.bytes) + " more were refused: ";
  switch (refused.by) {
    case core::Refusal::By::kLimit:
      standing->reason = Reason::kLimitRefused;
      standing->reason_text = what + "its limit is " + FormatBytes(arbiter.LimitOf(session.id));
      return;
    case core::Refusal::By::kHost:
      standing->reason = Reason::kHostRefused;
      standing->reason_text = what + "the host has no memory left for them";
      return;
    case core::Refusal::By::kCard:
      standing->reason = Reason::kCardRefused;
      standing->reason_text =
          what + "programs can share " + FormatBytes(arbiter.MostResident()) + " of the GPU";
      if (around.foreign > Bytes()) standing->reason_text += "; " + ForeignText(around.foreign);
      return;
  }
}

Instant SinceWhen(const core::Session& session, State state) {
  if (state == State::kStuck) return session.expected_at;
  if (state == State::kSuspending || state == State::kSuspended) return session.suspended_at;
  return session.phase_since;
}

}  // namespace

bool IsRefusal(Reason reason) {
  return reason >= Reason::kLimitRefused;
}

std::string_view CodeOf(State state) {
  return kStates[static_cast<size_t>(state)].code;
}

std::string_view TextOf(State state) {
  return kStates[static_cast<size_t>(state)].text;
}

std::string_view CodeOf(Reason reason) {
  return kReasons[static_cast<size_t>(reason)];
}

Standing StandingOf(const core::Arbiter& arbiter, const Surroundings& around, core::SessionId id) {
  const core::Session& session = arbiter.sessions().at(id);
  const auto wish = FirstWish(around.waiting, id);
  const bool waits = wish != around.waiting.end();
  Standing standing;
  const bool lapsed = session.lapsed && !session.suspended && session.waits();
  standing.state = StateOf(session, arbiter.ChargeOf(id) > Bytes(), waits || lapsed);
  standing.since = SinceWhen(session, standing.state);
  if (lapsed) {
    standing.reason = Reason::kHost;
    standing.reason_text = "no host memory is left for what it has allocated and not used yet";
    standing.since = session.asked_at;
  }
  if (waits && !session.suspended) {
    const auto place = static_cast<uint64_t>(wish - around.waiting.begin()) + 1;
    Explain(arbiter, around, *wish, place, &standing);
    if (standing.state == State::kWaiting) standing.since = wish->since;
  }
  if (around.settling && !session.suspended && standing.reason == Reason::kNone) {
    standing.reason = Reason::kRestart;
    standing.reason_text = "the daemon has just started, and waits for programs to come back";
  }
  const bool goes_on = standing.state == State::kIdle || standing.state == State::kRunning;
  if (goes_on && standing.reason == Reason::kNone && session.refused.has_value()) {
    ExplainRefusal(arbiter, around, session, &standing);
  }
  if (arbiter.IsHeldBack(id)) {
    standing.held_back_since = standing.since;
    if (session.phase == core::Phase::kGranted) standing.held_back_since = session.asked_at;
  }
  return standing;
}

Duration WaitedOf(const core::Session& session, const Standing& standing, Instant now) {
  const bool waits = standing.state == State::kWaiting;
  if (session.phase == core::Phase::kGranted) return session.waited + (now - session.granted_at);
  return waits ? session.waited + (now - standing.since) : session.waited;
}

Duration HeldOf(const core::Session& session, Instant now) {
  return session.holds() ? session.held + (now - session.granted_at) : session.held;
}

std::optional<Instant> BlocksSince(const core::Session& session, Instant now) {
  constexpr Duration kUsual = Seconds(3);
  const bool blocks = session.blocks_since.has_value() && now - *session.blocks_since >= kUsual;
  return blocks ? session.blocks_since : std::nullopt;
}

}  // namespace tandem::service
