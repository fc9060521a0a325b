// Roster: the sessions of one GPU, with the sums and sets that the arbiter needs over all of them.
// Both are kept as sessions change, so that no event costs more the more sessions there are, but
// for O(log sessions) of each that it changes.
//
// Code that changes a session gets it by Touch, within the event. The roster counts the session's
// part anew at the next question.
//
// Threading: none. Pure.
// Invariant: each answer equals a new count over all sessions (Recounted, which is for tests, makes
// that count).
#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/core/session.h"
#include "src/core/types.h"

namespace tandem::core {

class Roster {
 public:
  using Ids = std::set<SessionId>;
  using ByTime = std::set<std::pair<Instant, SessionId>>;
  struct Counted {
    Sums sums;
    std::map<Bytes, uint32_t> asked, must_hold;  // → how many
    Ids holders;                                 // stuck ones included
    Ids keeping_memory;                          // on the card, while they wait for a lease
    Ids wanting_contexts, wanting_fixed, cut_needs, yielding, uncleared;
    ByTime expected;
    Ids wait_for_promise;
    ByTime blocking;
    ByTime unused;
    ByTime cold;  // the longest unused first
    bool operator==(const Counted&) const = default;
  };

  Roster() = default;
  Roster(Roster&&) = default;
  Roster& operator=(Roster&&) = default;

  const std::map<SessionId, Session>& all() const { return sessions_; }
  const Session& at(SessionId id) const { return *by_id_.at(id.value); }
  bool Has(SessionId id) const { return by_id_.count(id.value) != 0; }

  Session& Add(SessionId id);
  void Remove(SessionId id);
  // To be changed until the end of the event. REQUIRES: there is such a session.
  Session& Touch(SessionId id);
  // Null where there is none.
  Session* Find(SessionId id);
  void EndEvent();
  // A session was changed that had been taken before, and something counted since.
  void Changed() { dirty_ = true; }
  // Those that the event has changed so far, in no order.
  const std::vector<Session*>& touched() const { return touched_; }
  // Those of them that are still there, once the event has ended; until the next one ends.
  const std::vector<SessionId>& changed() const { return changed_; }

  const Counted& counted() const;
  const Sums& sums() const { return counted().sums; }
  // The most that a session must hold.
  Bytes LargestHeld() const;

  Counted Recounted() const;

 private:
  void Count(Session& session) const;

  std::map<SessionId, Session> sessions_;
  std::unordered_map<uint64_t, Session*> by_id_;  // the same
  mutable std::vector<Session*> touched_;
  std::vector<SessionId> changed_;
  mutable Counted counted_;
  mutable bool dirty_ = false;
  mutable uint32_t asked_ = 0;  // how often, in builds that check
};

// As they are now: while they are gone through, the roster's own may change.
inline std::vector<SessionId> Listed(const Roster::Ids& ids) {
  return {ids.begin(), ids.end()};
}

}  // namespace tandem::core
