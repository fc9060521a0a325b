#include "src/core/host_limits.h"

#include <algorithm>

namespace tandem::core {
namespace {

// Of both, as much as there is; *lacking and *room are what is left of them.
Bytes TakeFrom(Bytes* room, Bytes* lacking) {
  const Bytes taken = std::min(*room, *lacking);
  *room -= taken;
  *lacking -= taken;
  return taken;
}

}  // namespace

HostPlace HostLimits::PlaceOf(int gpu, SessionId id) const {
  const auto place = places_.find({gpu, id});
  return place == places_.end() ? HostPlace() : place->second;
}

void HostLimits::Put(int gpu, SessionId id, std::string_view user, const HostPlace& place) {
  const HostPlace before = PlaceOf(gpu, id);
  if (before.total() != place.total() || before.memory != place.memory) {
    const auto theirs = of_user_.try_emplace(std::string(user)).first;
    theirs->second = theirs->second.Less(before).More(place);
    if (theirs->second.total() == Bytes()) of_user_.erase(theirs);
  }
  promised_ = promised_.Less(before).More(place);
  if (place.total() == Bytes()) {
    places_.erase({gpu, id});
  } else {
    places_[{gpu, id}] = place;
  }
}

Bytes HostLimits::LeftInMemory() {
  if (!memory_.available) return SaturatingSubtract(memory_.limit, promised_.memory);
  const Bytes there = memory_.available();
  if (measured_) memory_.limit = std::max(memory_.limit, Measured(there));
  return std::min(SaturatingSubtract(memory_.limit, promised_.memory), there);
}

Bytes HostLimits::LeftInFile() const {
  const Bytes left = SaturatingSubtract(file_.limit, promised_.spilled);
  return file_.available && left != Bytes() ? std::min(left, file_.available()) : left;
}

// What the sessions have of what they need. What is needed no more leaves the file first.
HostLimits::Places HostLimits::Keep(int gpu, const HostNeeds& needs) const {
  Places kept;
  for (const HostNeed& need : needs) {
    HostPlace place = PlaceOf(gpu, need.id);
    place.memory = std::min(place.memory, need.bytes);
    place.spilled = std::min(place.spilled, need.bytes - place.memory);
    kept[{gpu, need.id}] = place;
  }
  return kept;
}

// Whether there is room for all that they lack. If not, the memory is to hold that, too.
bool HostLimits::Grow(int gpu, const HostNeeds& needs, Places* places) {
  Bytes memory = LeftInMemory();
  Bytes file = LeftInFile();
  for (const auto& [name, kept] : *places) {
    const HostPlace before = PlaceOf(gpu, name.second);
    memory += before.memory - kept.memory;
    file += before.spilled - kept.spilled;
  }
  bool fits = true;
  for (const bool memory_only : {true, false}) {
    for (const HostNeed& need : needs) {
      if (need.memory_only != memory_only) continue;
      HostPlace& place = places->at({gpu, need.id});
      Bytes lacking = need.bytes - place.total();
      place.memory += TakeFrom(&memory, &lacking);
      if (!memory_only) place.spilled += TakeFrom(&file, &lacking);
      place.memory += lacking;
      fits = fits && lacking == Bytes();
    }
  }
  return fits;
}

bool HostLimits::Fits(int gpu, const HostNeeds& needs, std::string_view user) {
  if (!Grows(gpu, needs)) return true;
  Places places = Keep(gpu, needs);
  return Grow(gpu, needs, &places) && (!shared_ || KeepsToItsShare(gpu, needs, places, user));
}

bool HostLimits::KeepsToItsShare(int gpu, const HostNeeds& needs, const Places& places,
                                 std::string_view user) {
  const auto theirs = of_user_.find(user);
  const HostPlace had = theirs != of_user_.end() ? theirs->second : HostPlace();
  HostPlace has = had, before, all;
  bool more_memory = false;  // and a file would not do
  for (const HostNeed& need : needs) {
    const HostPlace was = PlaceOf(gpu, need.id), is = places.at({gpu, need.id});
    before = before.More(was);
    all = all.More(is);
    if (need.user != user) continue;
    has = has.Less(was).More(is);
    more_memory = more_memory || (need.memory_only && is.memory > was.memory);
  }
  const Bytes memory = LeftInMemory() + before.memory;
  const Bytes left_memory = SaturatingSubtract(memory, all.memory);
  if (more_memory && has.memory.count / kMostOfLeft > left_memory.count) return false;
  const Bytes left = SaturatingSubtract(memory + LeftInFile() + before.spilled, all.total());
  return has.total() <= had.total() || has.total().count / kMostOfLeft <= left.count;
}

bool HostLimits::MayClaim(Bytes more, std::string_view user) const {
  const auto theirs = of_user_.find(user);
  const Bytes had = theirs != of_user_.end() ? theirs->second.total() : Bytes();
  return !shared_ || had + more <= Bytes(limit().count / (kMostOfLeft + 1) * kMostOfLeft);
}

void HostLimits::Promise(int gpu, const HostNeeds& needs) {
  Places places = Keep(gpu, needs);
  if (file_.limit == Bytes()) {
    for (const HostNeed& need : needs) places.at({gpu, need.id}).memory = need.bytes;
  } else if (Grows(gpu, needs)) {
    Grow(gpu, needs, &places);
  }
  for (const HostNeed& need : needs) Put(gpu, need.id, need.user, places.at({gpu, need.id}));
}

void HostLimits::Forget(int gpu, SessionId id, std::string_view user) {
  Put(gpu, id, user, HostPlace());
}

bool HostLimits::Grows(int gpu, const HostNeeds& needs) const {
  return std::any_of(needs.begin(), needs.end(), [&](const HostNeed& need) {
    return need.bytes > PlaceOf(gpu, need.id).total();
  });
}

}  // namespace tandem::core
