#include "src/core/wish_queue.h"

namespace tandem::core {

void WishQueue::Add(const Wish& wish, bool parked) {
  by_session_[{wish.id, wish.kind}] = Place{wish, parked};
  if (!parked) Enter(wish);
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

void WishQueue::Rerank(const std::function<int64_t(const Wish&)>& rank) {
  for (auto& [key, place] : by_session_) {
    if (!place.parked) Leave(place.wish);
    place.wish.rank = rank(place.wish);
    if (!place.parked) Enter(place.wish);
  }
}

const Wish* WishQueue::FindActive(SessionId id, Wish::Kind kind) const {
  const auto at = by_session_.find({id, kind});
  return at == by_session_.end() || at->second.parked ? nullptr : &at->second.wish;
}

void WishQueue::Enter(const Wish& wish) {
  active_.insert(wish);
  if (wish.kind == Wish::Kind::kGrowth) growing_.insert(wish);
  if (wish.lasting()) ++lasting_;
}

void WishQueue::Leave(const Wish& wish) {
  active_.erase(wish);
  growing_.erase(wish);
  if (wish.lasting()) --lasting_;
}

}  // namespace tandem::core
