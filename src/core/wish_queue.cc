#include "src/core/wish_queue.h"

#include <algorithm>

#include "src/core/check.h"

namespace tandem::core {

void WishQueue::Add(const Wish& wish, bool parked) {
  Place& place = by_session_[{wish.id, wish.kind}];
  place = Place{wish, parked};
  if (!parked) Enter(place.wish);
}

void WishQueue::Remove(SessionId id, Wish::Kind kind) {
  const auto at = by_session_.find({id, kind});
  if (at == by_session_.end()) return;
  if (!at->second.parked) Leave(at->second.wish);
  by_session_.erase(at);
}

void WishQueue::Park(SessionId id, bool parked, Instant since) {
  for (auto at = by_session_.lower_bound({id, Wish::Kind::kLease});
       at != by_session_.end() && at->first.first == id; ++at) {
    Place& place = at->second;
    if (!place.parked) Leave(place.wish);
    place.wish.since = since;
    place.parked = parked;
    if (!parked) Enter(place.wish);
  }
}

void WishQueue::Rerank(const std::function<void()>& change,
                       const std::function<void(Wish*)>& place_anew) {
  for (const auto& [key, place] : by_session_) {
    if (!place.parked) Leave(place.wish);
  }
  groups_.clear();
  change();
  for (auto& [key, place] : by_session_) {
    place.wish.rank = 0;
    place.wish.group = kNoGroup;
    place_anew(&place.wish);
    if (!place.parked) Enter(place.wish);
  }
}

void WishQueue::RerankOf(SessionId id, const std::function<void(Wish*)>& place_anew) {
  for (auto at = by_session_.lower_bound({id, Wish::Kind::kLease});
       at != by_session_.end() && at->first.first == id; ++at) {
    Place& place = at->second;
    if (!place.parked) Leave(place.wish);
    place.wish.rank = 0;
    place.wish.group = kNoGroup;
    place_anew(&place.wish);
    if (!place.parked) Enter(place.wish);
  }
}

void WishQueue::RankGroup(GroupId group, GroupId parent, int64_t rank) {
  std::unique_ptr<Group>& made = groups_[group];
  if (made == nullptr) {
    made = std::make_unique<Group>();
    made->parent = &At(parent);
  } else if (made->entry.rank == rank) {
    return;
  }
  Line& line = made->parent->line;
  if (!made->line.empty()) line.erase(made->entry);
  made->entry = Entry{rank, group, nullptr, made.get()};
  if (!made->line.empty()) line.insert(made->entry);
}

void WishQueue::RemoveGroup(GroupId group) {
  const auto at = groups_.find(group);
  if (at == groups_.end()) return;
  TANDEM_CHECK(at->second->line.empty());
  groups_.erase(at);
}

const Wish* WishQueue::FindActive(SessionId id, Wish::Kind kind) const {
  const auto at = by_session_.find({id, kind});
  return at == by_session_.end() || at->second.parked ? nullptr : &at->second.wish;
}

const Wish* WishQueue::First() const {
  const Wish* first = nullptr;
  Visit([&](const Wish& wish) {
    first = &wish;
    return true;
  });
  return first;
}

std::vector<const Wish*> WishQueue::Behind(const Wish& first,
                                           std::vector<const Wish*> wishes) const {
  if (wishes.empty()) return wishes;
  const Position ahead = PositionOf(first);
  std::vector<std::pair<Position, const Wish*>> later;
  for (const Wish* const wish : wishes) {
    Position position = PositionOf(*wish);
    if (ahead < position) later.emplace_back(std::move(position), wish);
  }
  std::sort(later.begin(), later.end());
  wishes.clear();
  for (const auto& [position, wish] : later) wishes.push_back(wish);
  return wishes;
}

WishQueue::Position WishQueue::PositionOf(const Wish& wish) const {
  Position position = {{wish.rank, wish.ticket}};
  for (const Group* group = &At(wish.group); group->parent != nullptr; group = group->parent) {
    position.emplace_back(group->entry.rank, group->entry.ticket);
  }
  std::reverse(position.begin(), position.end());
  return position;
}

// REQUIRES: it stays where it is until it leaves.
void WishQueue::Enter(const Wish& wish) {
  Group* group = &At(wish.group);
  Entry entry{wish.rank, wish.ticket, &wish, nullptr};
  for (;;) {
    const bool was_empty = group->line.empty();
    group->line.insert(entry);
    if (!was_empty || group->parent == nullptr) break;
    entry = group->entry;
    group = group->parent;
  }
  ++active_;
  if (wish.kind == Wish::Kind::kGrowth) growing_.insert(wish);
  if (wish.lasting()) ++lasting_;
}

void WishQueue::Leave(const Wish& wish) {
  Group* group = &At(wish.group);
  Entry entry{wish.rank, wish.ticket, &wish, nullptr};
  for (;;) {
    group->line.erase(entry);
    if (!group->line.empty() || group->parent == nullptr) break;
    entry = group->entry;
    group = group->parent;
  }
  --active_;
  if (wish.kind == Wish::Kind::kGrowth) growing_.erase(wish);
  if (wish.lasting()) --lasting_;
}

}  // namespace tandem::core
