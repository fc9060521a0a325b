#include "integrations/kubernetes/room.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>

namespace tandem::kubernetes {
namespace {

constexpr size_t kLabelLimit = 63;
constexpr int kBestScore = 10;

int Sum(const std::vector<int>& units) {
  return std::accumulate(units.begin(), units.end(), 0);
}

}  // namespace

std::string LabelOf(Room room) {
  std::sort(room.begin(), room.end(), std::greater<>());
  std::string label;
  for (const int free : room) {
    const std::string next = (label.empty() ? "" : "-") + std::to_string(std::max(free, 0));
    if (label.size() + next.size() > kLabelLimit) break;
    label += next;
  }
  return label;
}

Result<Room> RoomOf(std::string_view label) {
  Room room;
  const char* at = label.data();
  const char* const end = at + label.size();
  while (at != end) {
    int free = 0;
    const auto [stop, error] = std::from_chars(at, end, free);
    const bool last = stop == end;
    if (error != std::errc() || free < 0 || (!last && (*stop != '-' || stop + 1 == end))) {
      return Error{ErrorCode::kInvalid, "'" + std::string(label) + "' is not the room of GPUs"};
    }
    room.push_back(free);
    at = last ? end : stop + 1;
  }
  std::sort(room.begin(), room.end(), std::greater<>());
  return room;
}

std::optional<Placed> Place(Room room, const Requests& requests, Placement placement) {
  std::optional<int> spare;
  for (const int units : requests) {
    // The room is sorted: the last GPU with enough is the best fit.
    const auto full =
        std::find_if(room.begin(), room.end(), [&](int free) { return free < units; });
    if (full == room.begin()) return std::nullopt;
    int& chosen = placement == Placement::kBestFit ? *(full - 1) : room.front();
    chosen -= units;
    spare = std::min(spare.value_or(chosen), chosen);
    std::sort(room.begin(), room.end(), std::greater<>());
  }
  return Placed{std::move(room), spare.value_or(0)};
}

std::map<std::string, int> Scores(const std::map<std::string, int>& spare, Placement placement) {
  int most = 1;
  for (const auto& [node, units] : spare) most = std::max(most, units);
  std::map<std::string, int> scores;
  for (const auto& [node, units] : spare) {
    const int score = kBestScore * units / most;
    scores[node] = placement == Placement::kBestFit ? kBestScore - score : score;
  }
  return scores;
}

void Outstanding::Add(const std::string& node, const Requests& requests, Time now) {
  for (const int units : requests) nodes_[node].containers.push_back({units, now});
}

void Outstanding::Remove(const std::string& node, const Requests& requests) {
  auto& containers = nodes_[node].containers;
  for (const int units : requests) {
    const auto found =
        std::find_if(containers.begin(), containers.end(),
                     [&](const Container& container) { return container.units == units; });
    if (found != containers.end()) containers.erase(found);
  }
}

int Outstanding::Units(const std::string& name, std::string_view allocations, Time now) {
  Node& node = nodes_[name];
  const size_t dash = allocations.find('-');
  int64_t shown = 0;
  if (dash != std::string_view::npos) {
    std::from_chars(allocations.data() + dash + 1, allocations.data() + allocations.size(), shown);
  }
  const std::string start(allocations.substr(0, dash));
  int64_t more = start == node.start ? shown - node.shown : 0;
  node.start = start;
  node.shown = shown;
  // Which ones are shown is not known: the largest of them may still come.
  auto& containers = node.containers;
  std::sort(containers.begin(), containers.end(),
            [](const Container& a, const Container& b) { return a.units < b.units; });
  std::erase_if(containers, [&](const Container& container) {
    return more-- > 0 || now - container.bound > kForgotten;
  });
  int units = 0;
  for (const Container& container : containers) units += container.units;
  return units;
}

std::optional<Placed> PlaceBeside(int outstanding, Room room, const Requests& requests,
                                  Placement placement) {
  if (outstanding == 0) return Place(std::move(room), requests, placement);
  if (room.empty() || room.front() < outstanding + Sum(requests)) return std::nullopt;
  room.front() -= outstanding;
  std::sort(room.begin(), room.end(), std::greater<>());
  return Place(std::move(room), requests, placement);
}

}  // namespace tandem::kubernetes
