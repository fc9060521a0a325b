// A scene for the arbiter's tests: a card with a budget of 100 MiB, three names for sessions, and a
// clock that the scene moves.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "src/core/arbiter.h"

namespace tandem::core {

inline constexpr SessionId kA{1};
inline constexpr SessionId kB{2};
inline constexpr SessionId kC{3};

class ArbiterTest : public ::testing::Test {
 protected:
  explicit ArbiterTest(Bytes spare = {}) : arbiter_(Config(spare)) {}

  static ArbiterConfig Config(Bytes spare = {}) {
    ArbiterConfig config;
    config.spare = spare;
    config.budget = MiB(100);
    config.chunk = MiB(2);
    config.policy = "round-robin";
    config.context = MiB(8);
    config.reserved = 1;
    config.bytes_per_second = static_cast<double>(MiB(1000).count);  // 10 MiB cost 11 ms
    return config;
  }

  // Another arbiter in the place of the one there was.
  void Begin(const ArbiterConfig& config) {
    std::destroy_at(&arbiter_);
    std::construct_at(&arbiter_, config);
  }
  void On(const Event& event) { said_ = arbiter_.On(event, now_); }
  void Later(Duration duration) {
    now_ = now_ + duration;
    On(event::Tick{});
  }
  void Add(SessionId id, Bytes resident = {}) {
    On(event::SessionAdded{id, RunId{id.value}, MiB(100), resident, resident, 0, {}});
  }
  // The last answer's action of type A for the session; fails if there is none.
  template <typename A>
  A Said(SessionId id) {
    for (const Action& action : said_) {
      if (const A* a = std::get_if<A>(&action); a != nullptr && a->id == id) return *a;
    }
    ADD_FAILURE() << "no such action for session " << id.value;
    return A{};
  }
  template <typename A>
  bool Silent(SessionId id) {
    for (const Action& action : said_) {
      if (const A* a = std::get_if<A>(&action); a != nullptr && a->id == id) return false;
    }
    return true;
  }
  // Makes it run with `need`, which must be possible at once.
  void Run(SessionId id, Bytes need) {
    On(event::Reserve{id, 1, need});
    On(event::Ready{id, need});
    epoch_[id] = Said<action::Grant>(id).epoch;
    On(event::Running{id, epoch_[id], {}});
  }
  void Release(SessionId id) { On(event::Released{id, epoch_[id]}); }
  Handover Record() {
    for (const Action& action : said_) {
      if (const auto* done = std::get_if<action::HandoverDone>(&action)) return done->record;
    }
    ADD_FAILURE() << "no hand-over";
    return {};
  }

  Arbiter arbiter_;
  Instant now_{1000000000};
  std::vector<Action> said_;
  std::map<SessionId, Epoch> epoch_;
};

}  // namespace tandem::core
