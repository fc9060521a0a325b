// Chaos: for tests, a session that no program has. At moments and with needs drawn at random it
// asks for the card, so that others have to give way; stays for a moment, or sometimes leaves
// before it has got what it asked for, as a killed program does. A session at work loses the card
// every few milliseconds, and bytes of its own with it, by the messages and rules of any other
// hand-over.
//
// Threading: none; the caller serialises.
// Invariants
// 1. To the arbiter it is a session like any other, and keeps to the protocol.
// 2. It has no memory, so that all its credit goes back the moment its lease ends.
// 3. Its n-th visit follows from the seed alone: how long before it, what share of the bytes on the
//    card it takes, for how long it waits and stays.
#pragma once

#include <optional>
#include <random>
#include <vector>

#include "src/core/arbiter.h"

namespace tandem::service {

// To drain. Programs that have submitted what waits for work still to come, behind the gate that is
// shut, stand still for so long; in tests that is often.
inline constexpr Duration kChaosDeadline = Milliseconds(50);

class Chaos {
 public:
  // `arrival`: how the session is announced to the arbiter, each time that it comes to be.
  Chaos(const core::event::SessionAdded& arrival, uint64_t seed, Instant now);

  core::SessionId id() const { return arrival_.id; }

  // When to call OnTime next. Never, where nothing is on the card that could be taken: until
  // OnChange finds something there.
  std::optional<Instant> wake() const { return wake_; }
  // After each event of others.
  void OnChange(const core::Arbiter& arbiter, Instant now);
  // Both return what the session does then: events for the arbiter, in this order.
  std::vector<core::Event> OnTime(const core::Arbiter& arbiter, Instant now);
  std::vector<core::Event> OnAction(const core::Action& action, Instant now);

 private:
  struct Visit {
    Duration pause;     // before it
    double share = 0;   // of the bytes that others have on the card
    Duration patience;  // how long it waits for all it needs
    Duration stay;
  };
  enum class State { kAway, kWaiting, kStaying };

  Visit Draw();
  std::vector<core::Event> Ask(const core::Arbiter& arbiter, Instant now);
  std::vector<core::Event> Advance(Bytes credit, Instant now);
  std::vector<core::Event> Leave(Instant now);
  void EndVisit(Instant now);

  const core::event::SessionAdded arrival_;
  std::mt19937_64 random_;
  Visit visit_;  // this one, or the next
  int put_off_ = 0;
  State state_ = State::kAway;
  Bytes need_;
  core::Epoch epoch_ = 0;  // of its lease; 0: none
  std::optional<Instant> wake_;
};

}  // namespace tandem::service
