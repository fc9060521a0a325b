// WishQueue: what the sessions of one GPU wait for, in the order in which they shall be served.
//
// Threading: none. Pure. Adding, taking out and looking up cost O(log wishes).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "src/core/policy.h"
#include "src/core/types.h"

namespace tandem::core {

class WishQueue {
 public:
  struct Earlier {
    bool operator()(const Wish& a, const Wish& b) const {
      return std::tie(a.rank, a.ticket) < std::tie(b.rank, b.ticket);
    }
  };
  using Ordered = std::set<Wish, Earlier>;

  // REQUIRES: the session has none of that kind. `parked`: it is not to be served for now.
  void Add(const Wish& wish, bool parked);
  // Nothing where there is none.
  void Remove(SessionId id, Wish::Kind kind);
  // The session's wishes are parked, or not any more, and begin to wait at `since`.
  void Park(SessionId id, bool parked, Instant since);

  // As `rank` has it now.
  void Rerank(const std::function<int64_t(const Wish&)>& rank);

  bool Has(SessionId id, Wish::Kind kind) const { return by_session_.count({id, kind}) != 0; }
  // Null where there is none, or it is parked.
  const Wish* FindActive(SessionId id, Wish::Kind kind) const;
  size_t size() const { return by_session_.size(); }

  // Those that are not parked, who shall be served first comes first.
  const Ordered& active() const { return active_; }
  // Of these, who wants more than it has under its lease.
  const Ordered& growing() const { return growing_; }
  // Of these, how many would keep something for as long as it exists.
  size_t lasting() const { return lasting_; }

 private:
  struct Place {
    Wish wish;
    bool parked = false;
  };
  using Places = std::map<std::pair<SessionId, Wish::Kind>, Place>;

  void Enter(const Wish& wish);
  void Leave(const Wish& wish);

  Places by_session_;
  Ordered active_;
  Ordered growing_;
  size_t lasting_ = 0;
};

}  // namespace tandem::core
