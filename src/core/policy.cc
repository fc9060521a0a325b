#include "src/core/policy.h"

#include <algorithm>

#include "src/core/policies.h"

namespace tandem::core {
namespace {

struct Entry {
  PolicyName name;
  std::unique_ptr<Policy> (*make)(const PolicyContext& context);
};

std::unique_ptr<Policy> MakeRoundRobin(const PolicyContext& context) {
  return std::make_unique<Policy>(context.rules);
}

constexpr Entry kPolicies[] = {
    {{"interactive", "short bursts first; long ones wait longer, but not for ever"},
     MakeInteractive},
    {{"fair", "each user and session its share of the time"}, MakeFair},
    {{"priority", "the more urgent class first; opportunistic work in the pauses of all others"},
     MakePriority},
    {{"round-robin", "in the order of arrival, a turn each"}, MakeRoundRobin},
    {{"fcfs", "in the order of arrival, each until it pauses"}, MakeFcfs},
};

// For comparisons in the simulator and in benchmarks: not listed to users.
constexpr Entry kNvshare = {
    {"nvshare", "as nvshare does it: turns of 30 s, pauses of 5 s, one at a time"}, MakeNvshare};

}  // namespace

std::unique_ptr<Policy> MakePolicy(std::string_view name, const PolicyContext& context) {
  for (const Entry& entry : kPolicies) {
    if (entry.name.name == name) return entry.make(context);
  }
  return name == kNvshare.name.name ? kNvshare.make(context) : nullptr;
}

bool IsPolicyName(std::string_view name) {
  const auto is_it = [&](const Entry& entry) { return entry.name.name == name; };
  return std::ranges::any_of(kPolicies, is_it) || is_it(kNvshare);
}

const std::vector<PolicyName>& PolicyNames() {
  static const std::vector<PolicyName> names = [] {
    std::vector<PolicyName> made;
    for (const Entry& entry : kPolicies) made.push_back(entry.name);
    return made;
  }();
  return names;
}

void Policy::Place(const Session& /*session*/, Wish* /*wish*/) {}

Instant Policy::TurnEnds(const Contest& contest) const {
  const std::optional<Duration> length = TurnLength(contest.quantum);
  return length.has_value() ? contest.holder.running_since + *length : kNever;
}

Instant Policy::InterruptsAt(const Contest& /*contest*/) const {
  return kNever;
}

bool Policy::Outranks(const Contest& /*contest*/) const {
  return false;
}

Duration Policy::MayPause(const Contest& contest) const {
  const std::optional<Duration> burst = contest.waiter.bursts.Typical();
  const bool waiter_pauses = burst.has_value() && *burst <= contest.quantum;
  return IdlePatience(contest.bytes_move, contest.cost, contest.holder.pauses, waiter_pauses);
}

void Policy::OnSwitch(Duration /*cost*/, Instant /*now*/) {}

void Policy::OnSession(const Session& /*session*/, Instant /*now*/) {}

void Policy::OnGone(SessionId /*id*/, Instant /*now*/) {}

void Policy::OnShares(Instant /*now*/) {}

void Policy::BeforeChoice(Instant /*now*/) {}

}  // namespace tandem::core
