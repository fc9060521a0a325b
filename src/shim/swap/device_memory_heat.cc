// How much the program uses each extent, as far as its launches name it, and which chunks had
// better change places.
#include <algorithm>
#include <iterator>

#include "src/shim/swap/device_memory.h"

namespace tandem::shim {
namespace {

// Named at each step an extent comes close to 256 within two dozen of them; unnamed it loses half
// of its heat in six. One that is named at every fourth step or less often stays below what it
// takes to push out another like it: programs that walk through all they have would move it all the
// time.
constexpr uint32_t kNamed = 32;
constexpr uint32_t kDecay = 8;
constexpr uint32_t kWarm = 64;  // to be worth moving at all

bool MayPushOut(const Extent& cold, const Extent& warm) {
  return cold.heat >= 2 * warm.heat + kWarm;
}

bool ByHeat(const DeviceMemory::Place& a, const DeviceMemory::Place& b) {
  return a.extent->heat > b.extent->heat;
}

}  // namespace

bool DeviceMemory::NoteNamedByLaunch(CUdeviceptr pointer) {
  MutexLock lock(mutex_);
  Extent* const extent = ExtentAround(pointer);
  if (extent != nullptr) extent->named = true;
  return extent != nullptr;
}

void DeviceMemory::Age() {
  MutexLock lock(mutex_);
  for (const auto& [address, extent] : extents_) {
    extent->heat += (extent->named ? kNamed : 0) - extent->heat / kDecay;
    extent->named = false;
  }
}

DeviceMemory::Exchange DeviceMemory::PlanExchange(uint64_t room, size_t count) const {
  std::vector<Place> places = Mapped();
  MutexLock lock(mutex_);
  std::erase_if(places, [](const Place& place) {
    return place.extent->pinned || place.extent->lost ||
           place.chunk->state == Chunk::State::kArriving;
  });
  std::stable_sort(places.begin(), places.end(), ByHeat);
  std::vector<Place> cold, here;
  std::partition_copy(places.begin(), places.end(), std::back_inserter(cold),
                      std::back_inserter(here),
                      [](const Place& place) { return place.chunk->state == Chunk::State::kCold; });
  Exchange plan;
  for (const Place& place : cold) {
    if (plan.in.size() == count) break;
    // A chunk that needs no eviction comes, however cold it is.
    const bool worth = place.extent->heat >= kWarm || place.chunk->bytes <= room;
    if (!worth) continue;  // there may be room for a smaller one
    uint64_t left = room;
    std::vector<Place> out;
    while (left < place.chunk->bytes && here.size() > out.size() &&
           plan.out.size() + out.size() < count) {
      const Place& coldest = here[here.size() - 1 - out.size()];
      if (!MayPushOut(*place.extent, *coldest.extent)) break;
      left += coldest.chunk->bytes;
      out.push_back(coldest);
    }
    if (left < place.chunk->bytes) continue;
    room = left - place.chunk->bytes;
    here.resize(here.size() - out.size());
    plan.out.insert(plan.out.end(), out.begin(), out.end());
    plan.in.push_back(place);
  }
  return plan;
}

std::vector<DeviceMemory::Place> DeviceMemory::Hottest(uint64_t most, size_t count) const {
  std::vector<Place> places = Mapped();
  MutexLock lock(mutex_);
  std::erase_if(places, [](const Place& place) {
    return place.chunk->state != Chunk::State::kCold || place.extent->pinned || place.extent->lost;
  });
  std::stable_sort(places.begin(), places.end(), ByHeat);
  std::vector<Place> hottest;
  for (const Place& place : places) {
    if (hottest.size() == count) break;
    if (place.chunk->bytes > most) continue;
    most -= place.chunk->bytes;
    hottest.push_back(place);
  }
  return hottest;
}

}  // namespace tandem::shim
