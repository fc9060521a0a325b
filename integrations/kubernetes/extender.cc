#include "integrations/kubernetes/extender.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

namespace tandem::kubernetes {
namespace {

using nlohmann::json;

const json kNone;

bool SameName(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

const json& Field(const json& object, std::string_view name) {
  if (!object.is_object()) return kNone;
  for (const auto& [key, value] : object.items()) {
    if (SameName(key, name)) return value;
  }
  return kNone;
}

std::string TextIn(const json& object, std::string_view name) {
  const json& value = Field(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}

std::string NameOf(const json& object) {
  return TextIn(Field(object, "metadata"), "name");
}

// A quantity of an extended resource is a whole number. Suffixes such as "2k" are not read.
int UnitsOf(const json& container) {
  const json& limits = Field(Field(container, "resources"), "limits");
  const json& value = Field(limits, kMemoryResource);
  if (value.is_number_integer()) return value.get<int>();
  if (!value.is_string()) return 0;
  const auto& text = value.get_ref<const std::string&>();
  int units = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), units);
  return error == std::errc() && stop == text.data() + text.size() ? units : 0;
}

Requests UnitsOfEach(const json& containers) {
  Requests requests;
  if (!containers.is_array()) return requests;
  for (const json& container : containers) {
    if (const int units = UnitsOf(container); units > 0) requests.push_back(units);
  }
  return requests;
}

Error NotTheInterface(const char* what) {
  return {ErrorCode::kInvalid, std::string("the request has no ") + what +
                                   ": set nodeCacheCapable to false, and use extender/v1"};
}

Error NoRoom(const std::string& why) {
  return {ErrorCode::kFailed, why};
}

std::string Words(const Requests& requests) {
  std::string words;
  for (const int units : requests) words += (words.empty() ? "" : ", ") + std::to_string(units);
  return words;
}

// The nodes of a filter's or prioritize's arguments.
Result<const json*> NodesOf(const json& arguments) {
  const json& items = Field(Field(arguments, "nodes"), "items");
  if (!items.is_array()) return NotTheInterface("nodes");
  return &items;
}

}  // namespace

PodRequests RequestsOf(const json& pod) {
  const json& spec = Field(pod, "spec");
  return {UnitsOfEach(Field(spec, "containers")), UnitsOfEach(Field(spec, "initContainers"))};
}

Result<Placed> Extender::PlaceOn(const json& node, const PodRequests& requests, Time now) {
  const std::string label = TextIn(Field(Field(node, "metadata"), "labels"), kRoomLabel);
  if (label.empty()) {
    std::string missing = "the node has no label ";
    missing.append(kRoomLabel).append("; is tandem-device-plugin running there with --node?");
    return NoRoom(missing);
  }
  const Result<Room> told = RoomOf(label);
  if (!told.ok()) return told.error();
  const std::string allocations =
      TextIn(Field(Field(node, "metadata"), "labels"), kAllocationsLabel);
  const int outstanding = outstanding_.Units(NameOf(node), allocations, now);
  // The kubelet gives what init containers had to the containers after them.
  for (const int units : requests.init_containers) {
    if (!PlaceBeside(outstanding, *told, {units}, placement_).has_value()) {
      return NoRoom("no GPU has " + std::to_string(units) + " of " + kMemoryResource +
                    " free for the init container");
    }
  }
  std::optional<Placed> placed = PlaceBeside(outstanding, *told, requests.containers, placement_);
  if (!placed.has_value() && outstanding > 0) {
    return NoRoom("pods that were bound a moment ago come first");
  }
  if (!placed.has_value()) {
    return NoRoom("no GPU has " + Words(requests.containers) + " of " + kMemoryResource + " free");
  }
  return std::move(*placed);
}

Result<json> Extender::Filter(const json& arguments, Time now) {
  const json& pod = Field(arguments, "pod");
  if (!pod.is_object()) return NotTheInterface("pod");
  ASSIGN_OR_RETURN(const json* const nodes, NodesOf(arguments));
  const PodRequests requests = RequestsOf(pod);
  const std::string uid = TextIn(Field(pod, "metadata"), "uid");
  std::unique_lock lock(mutex_);
  decided_.wait_for(lock, patience_, [this] { return undecided_.empty(); });
  undecided_.clear();
  std::erase_if(asked_, [&](const auto& entry) {
    return now - entry.second.when > std::chrono::minutes(10);
  });
  asked_[uid] = {requests.containers, now};
  json fits = json::array(), failed = json::object();
  for (const json& node : *nodes) {
    const Result<Placed> placed = PlaceOn(node, requests, now);
    if (placed.ok()) {
      fits.push_back(node);
    } else {
      failed[NameOf(node)] = "tandem: " + placed.error().message;
    }
  }
  if (!fits.empty()) undecided_.insert(uid);
  return json{{"nodes", {{"items", std::move(fits)}}}, {"failedNodes", std::move(failed)}};
}

Result<json> Extender::Prioritize(const json& arguments, Time now) {
  ASSIGN_OR_RETURN(const json* const nodes, NodesOf(arguments));
  const PodRequests requests = RequestsOf(Field(arguments, "pod"));
  std::map<std::string, int> spare;
  {
    const std::lock_guard lock(mutex_);
    for (const json& node : *nodes) {
      if (Result<Placed> placed = PlaceOn(node, requests, now); placed.ok()) {
        spare[NameOf(node)] = placed->spare;
      }
    }
  }
  json scores = json::array();
  for (const auto& [node, score] : Scores(spare, placement_))
    scores.push_back({{"host", node}, {"score", score}});
  return scores;
}

Result<json> Extender::Bind(const json& arguments, Time now) {
  const Binding binding{TextIn(arguments, "podName"), TextIn(arguments, "podNamespace"),
                        TextIn(arguments, "podUID"), TextIn(arguments, "node")};
  if (binding.pod.empty() || binding.node.empty()) return NotTheInterface("podName or node");
  Requests requests;
  {
    const std::lock_guard lock(mutex_);
    if (const auto asked = asked_.find(binding.uid); asked != asked_.end()) {
      requests = asked->second.requests;
      asked_.erase(asked);
    }
    outstanding_.Add(binding.node, requests, now);
    undecided_.erase(binding.uid);
  }
  decided_.notify_all();
  const Status bound = bind_(binding);
  if (bound.ok()) return json{{"error", ""}};
  const std::lock_guard lock(mutex_);
  outstanding_.Remove(binding.node, requests);
  return json{{"error", "tandem: " + bound.error().message}};
}

}  // namespace tandem::kubernetes
