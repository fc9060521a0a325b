// The room that the GPUs of a node have, in units of tandem.dev/gpu-memory, and which node and GPU
// a container goes to.
//
// Pure. Threading: none.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace tandem::kubernetes {

inline constexpr char kRoomLabel[] = "tandem.dev/gpu-memory-free";

// Free units of each GPU, the most first.
using Room = std::vector<int>;
// Units of each container of a pod that asks for some, in their order: each has one GPU.
using Requests = std::vector<int>;

// "10-4-0", a label's value. Labels have at most 63 characters: the fullest GPUs are left out.
std::string LabelOf(Room room);
Result<Room> RoomOf(std::string_view label);

// Of GPUs that have enough.
enum class Placement {
  kBestFit,   // the one with the least room: others stay free for large requests
  kMostRoom,  // for memory that is offered more than once: containers meet only where they must
};

struct Placed {
  Room left;
  int spare = 0;  // on the GPU with the least, of those that containers have been placed on
};
// None: some container has no room on any GPU.
std::optional<Placed> Place(Room room, const Requests& requests, Placement placement);

// 0 to 10 of each node, 10 the best. `spare` of each node, as Place has it.
std::map<std::string, int> Scores(const std::map<std::string, int>& spare, Placement placement);

// Pods that have been bound to nodes whose labels do not show it yet. Without it, two pods that
// come within a second would both go where there is room for one.
class Assumed {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // A label shows a pod that was bound within about two seconds.
  static constexpr auto kForgotten = std::chrono::seconds(30);

  explicit Assumed(Placement placement) : placement_(placement) {}

  void Add(const std::string& node, const Requests& requests, Time now);
  // The room of a node whose label tells `told`, without that of pods it does not show yet.
  Room Without(const std::string& node, const Room& told, Time now);

 private:
  struct Pod {
    Requests requests;
    int units = 0;
    Time bound;
  };
  struct Node {
    std::optional<int> told;  // units, by the last label
    std::vector<Pod> pods;    // the oldest first
  };

  const Placement placement_;
  std::map<std::string, Node> nodes_;
};

}  // namespace tandem::kubernetes
