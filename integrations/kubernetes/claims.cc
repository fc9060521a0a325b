#include "integrations/kubernetes/claims.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "integrations/kubernetes/devices.h"
#include "integrations/kubernetes/fields.h"

namespace tandem::kubernetes {
namespace {

using nlohmann::json;

constexpr std::string_view kDevice = "gpu";
constexpr uint64_t kWholeTime = 100;  // per cent

std::string Quantity(Bytes bytes) {
  return std::to_string(bytes.count / MiB(1).count) + "Mi";
}

std::optional<double> FactorOf(std::string_view suffix) {
  static const std::map<std::string_view, double> factors = {
      {"", 1},        {"k", 1e3},     {"M", 1e6},     {"G", 1e9},    {"T", 1e12},
      {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40}};
  const auto found = factors.find(suffix);
  return found == factors.end() ? std::nullopt : std::optional(found->second);
}

Result<int> NumberOf(const std::string& device) {
  int gpu = 0;
  const char* const end = device.data() + device.size();
  if (!device.starts_with(kDevice)) return Wrong("there is no device '" + device + "'");
  const auto [stop, error] = std::from_chars(device.data() + kDevice.size(), end, gpu);
  if (error != std::errc() || stop != end || gpu < 0) {
    return Wrong("there is no device '" + device + "'");
  }
  return gpu;
}

// None where the text is no quantity.
std::optional<uint64_t> WholeOfQuantity(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const std::optional<double> factor = FactorOf({stop, static_cast<size_t>(end - stop)});
  if (error != std::errc() || !factor.has_value() || !(number >= 0) || number * *factor > 0x1p60) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(std::ceil(number * *factor));
}

// The memory, in whole units. `text`: not empty.
Result<Bytes> MemoryOf(const std::string& text, Bytes unit) {
  ASSIGN_OR_RETURN(const Bytes bytes, BytesOfQuantity(text));
  const uint64_t units = (bytes.count + unit.count - 1) / unit.count;
  if (units == 0 || units > 1'000'000) return Wrong("'" + text + "' is no memory of a GPU");
  return Bytes(units * unit.count);
}

Result<int> ShareOf(const std::string& text) {
  const std::optional<uint64_t> share = WholeOfQuantity(text);
  if (share.has_value() && *share <= kWholeTime) return static_cast<int>(*share);
  return Wrong("'" + text + "' is no share of a GPU's time: 0 to 100 per cent");
}

std::string CdiName(const Allocated& allocated, Bytes unit) {
  std::string name = std::to_string(allocated.gpu);
  if (allocated.memory != Bytes()) {
    const auto units = static_cast<int>(allocated.memory.count / unit.count);
    name = MemoryDevice({allocated.gpu, units}, unit);
  }
  return allocated.share == 0 ? name : name + "-share" + std::to_string(allocated.share);
}

Result<Allocated> AllocatedOf(const json& result, Bytes unit) {
  Allocated allocated;
  allocated.request = TextOf(result, "request");
  allocated.pool = TextOf(result, "pool");
  allocated.device = TextOf(result, "device");
  ASSIGN_OR_RETURN(allocated.gpu, NumberOf(allocated.device));
  const json consumed = result.value("consumedCapacity", json::object());
  if (const std::string memory = TextOf(consumed, kMemoryCapacity); !memory.empty()) {
    ASSIGN_OR_RETURN(allocated.memory, MemoryOf(memory, unit));
  }
  if (const std::string share = TextOf(consumed, kShareCapacity); !share.empty()) {
    ASSIGN_OR_RETURN(allocated.share, ShareOf(share));
  }
  allocated.cdi = CdiName(allocated, unit);
  return allocated;
}

// A capacity whose claims get `least` to `largest`, or `usual` where they do not say.
json CapacityOf(const std::string& value, const std::string& usual, const std::string& least,
                const std::string& largest, const std::string& step) {
  const json range = {{"min", least}, {"max", largest}, {"step", step}};
  return {{"value", value}, {"requestPolicy", {{"default", usual}, {"validRange", range}}}};
}

}  // namespace

json SliceOf(const std::string& node, const std::map<int, GpuMemory>& gpus, Bytes unit,
             int64_t generation) {
  const std::string whole = std::to_string(kWholeTime);
  json devices = json::array();
  for (const auto& [gpu, memory] : gpus) {
    const Bytes largest(memory.largest.count / unit.count * unit.count);
    if (largest.count == 0) continue;
    devices.push_back(
        {{"name", std::string(kDevice) + std::to_string(gpu)},
         {"allowMultipleAllocations", true},
         {"attributes",
          {{"index", {{"int", gpu}}}, {"largestMemory", {{"string", Quantity(largest)}}}}},
         {"capacity",
          {{kMemoryCapacity, CapacityOf(Quantity(memory.offered), Quantity(largest), Quantity(unit),
                                        Quantity(largest), Quantity(unit))},
           {kShareCapacity, CapacityOf(whole, "0", "0", whole, "1")}}}});
  }
  return {{"apiVersion", "resource.k8s.io/v1"},
          {"kind", "ResourceSlice"},
          {"metadata", {{"name", "tandem-" + node}}},
          {"spec",
           {{"driver", kDriver},
            {"nodeName", node},
            {"pool", {{"name", node}, {"generation", generation}, {"resourceSliceCount", 1}}},
            {"devices", std::move(devices)}}}};
}

Result<Bytes> BytesOfQuantity(const std::string& text) {
  const std::optional<uint64_t> bytes = WholeOfQuantity(text);
  if (!bytes.has_value()) return Wrong("'" + text + "' is no quantity of memory");
  return Bytes(*bytes);
}

Result<std::vector<Allocated>> DevicesOf(const json& claim, Bytes unit) {
  const auto results = json::json_pointer("/status/allocation/devices/results");
  std::vector<Allocated> devices;
  if (claim.is_object() && claim.contains(results) && claim[results].is_array()) {
    for (const json& result : claim[results]) {
      if (TextOf(result, "driver") != kDriver) continue;
      ASSIGN_OR_RETURN(Allocated allocated, AllocatedOf(result, unit));
      devices.push_back(std::move(allocated));
    }
  }
  if (devices.empty()) return Wrong("the claim has no device of tandem.dev allocated to it");
  return devices;
}

}  // namespace tandem::kubernetes
