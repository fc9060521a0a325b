#include "src/service/chaos.h"

#include <algorithm>

namespace tandem::service {
namespace {

constexpr Duration kShortestPause = Milliseconds(1);
constexpr Duration kLongestPause = Milliseconds(10);
constexpr int kMostPutOff = 8;  // a visit, by its pause
constexpr Duration kLongestStay = Milliseconds(3);
// Of most visits, so that a capture or a long kernel may take its time; and of the impatient ones.
constexpr Duration kPatience = Seconds(10);
constexpr Duration kLittlePatience = Milliseconds(5);
constexpr double kImpatient = 0.125;

Bytes Taken(const core::Budget& budget) {
  return budget.charged() - budget.fixed();
}

}  // namespace

Chaos::Chaos(const core::event::SessionAdded& arrival, uint64_t seed, Instant now)
    : arrival_(arrival), random_(seed) {
  EndVisit(now);
}

Chaos::Visit Chaos::Draw() {
  const auto uniform = [this] { return static_cast<double>(random_() >> 11) * 0x1p-53; };
  const auto part = [&](Duration of) {
    return Duration(static_cast<int64_t>(uniform() * static_cast<double>(of.ns)));
  };
  Visit visit;
  visit.pause = kShortestPause + part(kLongestPause - kShortestPause);
  visit.share = uniform();
  visit.stay = part(kLongestStay);
  const Duration little = part(kLittlePatience);
  visit.patience = uniform() < kImpatient ? little : kPatience;
  return visit;
}

void Chaos::EndVisit(Instant now) {
  visit_ = Draw();
  put_off_ = 0;
  state_ = State::kAway;
  epoch_ = 0;
  wake_ = now + visit_.pause;
}

std::vector<core::Event> Chaos::OnTime(const core::Arbiter& arbiter, Instant now) {
  if (!wake_.has_value() || now < *wake_) return {};
  switch (state_) {
    case State::kAway:
      return Ask(arbiter, now);
    case State::kWaiting: {
      EndVisit(now);
      return {core::event::SessionGone{id()}, arrival_};
    }
    case State::kStaying:
      return Leave(now);
  }
  return {};
}

// More than is free, so that some session has to give memory up. It lets others get back what the
// last visit took, or they would get to nothing but coming back; not for ever: where programs do
// not fit together, one is always coming back.
std::vector<core::Event> Chaos::Ask(const core::Arbiter& arbiter, Instant now) {
  const core::Budget& budget = arbiter.budget();
  const Bytes taken = Taken(budget);
  if (taken == Bytes()) {
    wake_.reset();
    return {};
  }
  const bool restoring =
      std::any_of(arbiter.sessions().begin(), arbiter.sessions().end(),
                  [](const auto& entry) { return entry.second.phase == core::Phase::kGranted; });
  if (restoring && ++put_off_ <= kMostPutOff) {
    wake_ = now + visit_.pause;
    return {};
  }
  const auto part = static_cast<uint64_t>(visit_.share * static_cast<double>(taken.count));
  need_ = budget.free() + Bytes(std::min(part + 1, taken.count));
  state_ = State::kWaiting;
  wake_ = now + visit_.patience;
  return {core::event::Ready{id(), need_}};
}

void Chaos::OnChange(const core::Arbiter& arbiter, Instant now) {
  if (!wake_.has_value() && Taken(arbiter.budget()) > Bytes()) wake_ = now + visit_.pause;
}

std::vector<core::Event> Chaos::OnAction(const core::Action& action, Instant now) {
  if (const auto* grant = std::get_if<core::action::Grant>(&action); grant && grant->id == id()) {
    epoch_ = grant->epoch;
    return Advance(grant->credit, now);
  }
  if (const auto* more = std::get_if<core::action::Credit>(&action); more && more->id == id()) {
    return Advance(more->credit, now);
  }
  if (const auto* revoke = std::get_if<core::action::Revoke>(&action);
      revoke && revoke->id == id() && revoke->epoch == epoch_) {
    return Leave(now);
  }
  return {};  // Evict crosses what Leave gives back anyway
}

std::vector<core::Event> Chaos::Advance(Bytes credit, Instant now) {
  if (state_ != State::kWaiting || credit < need_) return {};
  state_ = State::kStaying;
  wake_ = now + visit_.stay;
  return {core::event::Running{id(), epoch_, Bytes()}};
}

std::vector<core::Event> Chaos::Leave(Instant now) {
  const core::event::Released released{id(), epoch_};
  EndVisit(now);
  return {released, core::event::Evicted{id(), Bytes(), Bytes()}};
}

}  // namespace tandem::service
