// WishQueue: what the sessions of one GPU wait for, in the order in which they shall be served.
//
// Wishes stand in a tree of groups, as tenants do: of the wishes and groups directly in one group
// the one of the lowest rank comes first, with all that is in it before the next one. A policy
// that knows no groups has all of them in the root.
//
// Threading: none. Pure. Adding, taking out, looking up and ranking a group anew cost O(log wishes)
// for each level of groups.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/core/types.h"
#include "src/core/wish.h"

namespace tandem::core {

class WishQueue {
 public:
  struct Earlier {
    bool operator()(const Wish& a, const Wish& b) const {
      return std::tie(a.rank, a.ticket) < std::tie(b.rank, b.ticket);
    }
  };
  using Ordered = std::set<Wish, Earlier>;

  WishQueue() = default;
  WishQueue(const WishQueue&) = delete;
  WishQueue& operator=(const WishQueue&) = delete;

  // REQUIRES: the session has none of that kind. `parked`: it is not to be served for now.
  void Add(const Wish& wish, bool parked);
  // Nothing where there is none.
  void Remove(SessionId id, Wish::Kind kind);
  // The session's wishes are parked, or not any more, and begin to wait at `since`.
  void Park(SessionId id, bool parked, Instant since);
  // Those who wait are in other groups, or ranked otherwise, from now on. `change` comes when there
  // is no group any more, then `place_anew` for each wish.
  void Rerank(const std::function<void()>& change, const std::function<void(Wish*)>& place_anew);
  // The same for the session's wishes alone.
  void RerankOf(SessionId id, const std::function<void(Wish*)>& place_anew);
  // Makes the group, or ranks it anew. REQUIRES: its parent is there and stays what it is.
  void RankGroup(GroupId group, GroupId parent, int64_t rank);
  // REQUIRES: it is empty.
  void RemoveGroup(GroupId group);

  bool Has(SessionId id, Wish::Kind kind) const { return by_session_.count({id, kind}) != 0; }
  // Null where there is none, or it is parked.
  const Wish* FindActive(SessionId id, Wish::Kind kind) const;
  size_t size() const { return by_session_.size(); }

  // Of those that are not parked: how many; the first to be served, null where there is none; and
  // all of them, in order or in reverse, until `visit` returns true. Whether it did.
  size_t active() const { return active_; }
  const Wish* First() const;
  template <typename F>
  bool Visit(F visit) const {
    return VisitIn(root_.line.begin(), root_.line.end(), visit);
  }
  template <typename F>
  bool VisitLastFirst(F visit) const {
    return VisitLastFirstIn(root_, visit);
  }
  // Of these wishes, those behind `first`, in order. REQUIRES: none is parked.
  std::vector<const Wish*> Behind(const Wish& first, std::vector<const Wish*> wishes) const;
  // Of these, who wants more than it has under its lease.
  const Ordered& growing() const { return growing_; }
  // Of these, how many would keep something for as long as it exists.
  size_t lasting() const { return lasting_; }

 private:
  struct Group;
  // One of a group's: a wish or another group.
  struct Entry {
    int64_t rank;
    uint64_t ticket;
    const Wish* wish;  // null: `group`
    Group* group;
    bool operator<(const Entry& other) const {
      return std::tie(rank, ticket) < std::tie(other.rank, other.ticket);
    }
  };
  using Line = std::set<Entry>;
  struct Group {
    Group* parent = nullptr;
    Entry entry = {};  // in its parent's line, where there is something in its own
    Line line;
  };
  struct Place {
    Wish wish;
    bool parked = false;
  };
  using Places = std::map<std::pair<SessionId, Wish::Kind>, Place>;

  template <typename F>
  static bool VisitIn(Line::const_iterator begin, Line::const_iterator end, F& visit) {
    for (auto entry = begin; entry != end;) {
      const Entry& here = *entry++;
      const bool ends = here.wish != nullptr
                            ? visit(*here.wish)
                            : VisitIn(here.group->line.begin(), here.group->line.end(), visit);
      if (ends) return true;
    }
    return false;
  }
  template <typename F>
  static bool VisitLastFirstIn(const Group& group, F& visit) {
    for (auto entry = group.line.rbegin(); entry != group.line.rend(); ++entry) {
      const bool ends =
          entry->wish != nullptr ? visit(*entry->wish) : VisitLastFirstIn(*entry->group, visit);
      if (ends) return true;
    }
    return false;
  }
  // Rank and ticket in the line of each group from the root on: the earlier wish has the lesser.
  using Position = std::vector<std::pair<int64_t, uint64_t>>;
  Position PositionOf(const Wish& wish) const;
  const Group& At(GroupId group) const { return group == kNoGroup ? root_ : *groups_.at(group); }
  Group& At(GroupId group) { return group == kNoGroup ? root_ : *groups_.at(group); }
  void Enter(const Wish& wish);
  void Leave(const Wish& wish);

  Places by_session_;
  Group root_;
  std::unordered_map<GroupId, std::unique_ptr<Group>> groups_;
  Ordered growing_;
  size_t active_ = 0;
  size_t lasting_ = 0;
};

}  // namespace tandem::core
