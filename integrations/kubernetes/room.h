// The room that the GPUs of a node have, in units of tandem.dev/gpu-memory, and which node and GPU
// a container goes to.
//
// Pure. Threading: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace tandem::kubernetes {

inline constexpr char kRoomLabel[] = "tandem.dev/gpu-memory-free";
// "1795766923-17": when the plugin started, and to how many containers it has given devices since.
inline constexpr char kAllocationsLabel[] = "tandem.dev/gpu-memory-allocations";

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

// Containers of pods that have been bound to nodes whose labels do not show them yet. Without them,
// two pods that come within a second would both go where there is room for one.
class Outstanding {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // A label shows a container two or three seconds after its pod was bound.
  static constexpr auto kForgotten = std::chrono::seconds(30);

  void Add(const std::string& node, const Requests& requests, Time now);
  void Remove(const std::string& node, const Requests& requests);
  // Their units. `allocations`: the value of the node's label kAllocationsLabel.
  int Units(const std::string& node, std::string_view allocations, Time now);

 private:
  struct Container {
    int units = 0;
    Time bound;
  };
  struct Node {
    std::string start;  // of the plugin, as the label has it
    int64_t shown = 0;  // containers, since then
    std::vector<Container> containers;
  };

  std::map<std::string, Node> nodes_;
};

// As Place, where containers with `outstanding` units are bound and not shown yet. The kubelet
// takes pods in any order, so that it is not known which GPUs those will have: the pod waits,
// unless one GPU has room for all.
std::optional<Placed> PlaceBeside(int outstanding, Room room, const Requests& requests,
                                  Placement placement);

}  // namespace tandem::kubernetes
