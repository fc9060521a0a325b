#include "src/core/session.h"

namespace tandem::core {

void Session::BeginPause(Instant now) {
  worked = BurstSoFar(now);
  idle = true;
  idle_since = last_used = now;
}

void Session::EndPause(Instant now, Duration worth) {
  idle = false;
  active_since = now;
  pauses.Add(now - idle_since);
  if (now - idle_since > worth) EndBurst();
}

void Session::EndBurst() {
  if (worked > Duration()) bursts.Add(worked);
  if (declared > Duration() && worked > Duration()) overran = worked > declared;
  worked = Duration();
}

void Session::Declare(Duration burst, Instant now) {
  if (!working()) {
    EndBurst();
  } else if (declared > Duration()) {
    overran = BurstSoFar(now) > declared;
  }
  declared = burst;
}

Duration Session::ExpectedBurst() const {
  const Duration usual = bursts.Typical().value_or(Duration());
  const bool keeps = declared > Duration() && !overran && worked <= declared;
  return std::max(keeps ? declared : usual, worked);
}

std::optional<Instant> Session::UnusedSince() const {
  const bool used = leases > 0 || charge > Bytes() || on_host > Bytes();
  if (allocated == Bytes() || used || parked() || waits()) return std::nullopt;
  return reserved_at;
}

Tally Session::Count() const {
  Tally tally;
  Sums& sums = tally.sums;
  if (holds_well()) {
    sums.held = std::max(charge, need);
    sums.holders = 1;
    sums.revoking = phase == Phase::kRevoking ? 1 : 0;
  }
  if (immovable()) sums.immovable = charge;
  if (!holds() && !immovable()) {
    sums.coming = SaturatingSubtract(charge, credit);
    sums.evictable = credit;
    if (credit > Bytes() && !asks()) tally.cold_since = last_used;
  }
  sums.excess = excess;
  if (holds() || asks()) {
    sums.wanted = need;
    sums.wanting = 1;
  }
  sums.working = working() ? 1 : 0;
  if (asks()) tally.asked = need;
  tally.keeps_memory = asks() && charge > Bytes();
  tally.must_hold = parked() ? Bytes() : must_hold();
  tally.holds = holds();
  tally.wants_contexts = !contexts_wanted.empty();
  tally.wants_fixed = !fixed_wanted.empty();
  tally.need_is_cut = need_is_cut();
  tally.yields = yields_to.has_value();
  const bool has_to_give = holds() ? phase != Phase::kRevoking : !rooted && credit > Bytes();
  tally.uncleared = goes() && !stuck && has_to_give;
  if (expected() && !stuck) tally.expected_at = expected_at;
  tally.blocks_since = blocks_since;
  tally.unused_since = UnusedSince();
  tally.waits_for_promise = lapsed && waits();
  return tally;
}

}  // namespace tandem::core
