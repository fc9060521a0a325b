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

void Assumed::Add(const std::string& node, const Requests& requests, Time now) {
  nodes_[node].pods.push_back({requests, Sum(requests), now});
}

Room Assumed::Without(const std::string& node, const Room& told, Time now) {
  auto& [last, pods] = nodes_[node];
  // Units that have gone since the last label are those of the pods that were bound first.
  int gone = last.value_or(Sum(told)) - Sum(told);
  last = Sum(told);
  while (!pods.empty() && (pods.front().units <= gone || now - pods.front().bound > kForgotten)) {
    gone -= std::min(gone, pods.front().units);
    pods.erase(pods.begin());
  }
  Room room = told;
  for (const Pod& pod : pods) {
    if (std::optional<Placed> placed = Place(room, pod.requests, placement_))
      room = std::move(placed->left);
  }
  return room;
}

}  // namespace tandem::kubernetes
