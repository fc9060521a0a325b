#include "src/core/host_limits.h"

#include <algorithm>

namespace tandem::core {
namespace {

template <typename Places>
HostPlace Sum(const Places& places) {
  HostPlace sum;
  for (const auto& [id, place] : places) {
    sum.memory += place.memory;
    sum.spilled += place.spilled;
  }
  return sum;
}

// Of both, as much as there is; *lacking and *room are what is left of them.
Bytes TakeFrom(Bytes* room, Bytes* lacking) {
  const Bytes taken = std::min(*room, *lacking);
  *room -= taken;
  *lacking -= taken;
  return taken;
}

}  // namespace

HostPlace HostLimits::Promised() const {
  HostPlace sum;
  for (const auto& [gpu, places] : promised_) {
    const HostPlace of_gpu = Sum(places);
    sum.memory += of_gpu.memory;
    sum.spilled += of_gpu.spilled;
  }
  return sum;
}

Bytes HostLimits::promised() const {
  return Promised().total();
}

Bytes HostLimits::spilled() const {
  return Promised().spilled;
}

HostPlace HostLimits::PlaceOf(int gpu, SessionId id) const {
  const auto places = promised_.find(gpu);
  if (places == promised_.end()) return {};
  const auto place = places->second.find(id);
  return place == places->second.end() ? HostPlace() : place->second;
}

Bytes HostLimits::LeftInMemory() {
  const Bytes promised = Promised().memory;
  if (!memory_.available) return SaturatingSubtract(memory_.limit, promised);
  const Bytes there = memory_.available();
  if (measured_) memory_.limit = std::max(memory_.limit, Measured(there));
  return std::min(SaturatingSubtract(memory_.limit, promised), there);
}

Bytes HostLimits::LeftInFile() const {
  const Bytes left = SaturatingSubtract(file_.limit, spilled());
  return file_.available && left != Bytes() ? std::min(left, file_.available()) : left;
}

// What the sessions have of what they need. What is needed no more leaves the file first.
HostLimits::Places HostLimits::Keep(int gpu, const HostNeeds& needs) const {
  Places kept;
  for (const HostNeed& need : needs) {
    HostPlace place = PlaceOf(gpu, need.id);
    place.memory = std::min(place.memory, need.bytes);
    place.spilled = std::min(place.spilled, need.bytes - place.memory);
    kept.emplace(need.id, place);
  }
  return kept;
}

// Whether there is room for all that they lack. If not, the memory is to hold that, too.
bool HostLimits::Grow(int gpu, const HostNeeds& needs, Places* places) {
  const auto had = promised_.find(gpu);
  const HostPlace before = had == promised_.end() ? HostPlace() : Sum(had->second);
  const HostPlace kept = Sum(*places);
  Bytes memory = LeftInMemory() + (before.memory - kept.memory);
  Bytes file = LeftInFile() + (before.spilled - kept.spilled);
  bool fits = true;
  for (const bool memory_only : {true, false}) {
    for (const HostNeed& need : needs) {
      if (need.memory_only != memory_only) continue;
      HostPlace& place = places->at(need.id);
      Bytes lacking = need.bytes - place.total();
      place.memory += TakeFrom(&memory, &lacking);
      if (!memory_only) place.spilled += TakeFrom(&file, &lacking);
      place.memory += lacking;
      fits = fits && lacking == Bytes();
    }
  }
  return fits;
}

bool HostLimits::Fits(int gpu, const HostNeeds& needs) {
  if (!Grows(gpu, needs)) return true;
  Places places = Keep(gpu, needs);
  return Grow(gpu, needs, &places);
}

void HostLimits::Promise(int gpu, const HostNeeds& needs) {
  Places places = Keep(gpu, needs);
  if (file_.limit == Bytes()) {
    for (const HostNeed& need : needs) places.at(need.id).memory = need.bytes;
  } else if (Grows(gpu, needs)) {
    Grow(gpu, needs, &places);
  }
  promised_[gpu] = std::move(places);
}

bool HostLimits::Grows(int gpu, const HostNeeds& needs) const {
  return std::any_of(needs.begin(), needs.end(), [&](const HostNeed& need) {
    return need.bytes > PlaceOf(gpu, need.id).total();
  });
}

}  // namespace tandem::core
