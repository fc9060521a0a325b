#include "integrations/kubernetes/annotations.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "integrations/kubernetes/extender.h"
#include "integrations/kubernetes/fields.h"

namespace tandem::kubernetes {
namespace {

using nlohmann::json;

constexpr char kMemory[] = "gpu-memory";  // MiB
constexpr char kFraction[] = "gpu-fraction";
constexpr char kContainer[] = "gpu-fraction-container-name";
constexpr char kDevices[] = "gpu-fraction-num-devices";
constexpr char kKai[] = "kai-scheduler";

const json& At(const json& object, const char* name) {
  static const json none = json::object();
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

std::optional<double> Number(const std::string& text) {
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<Bytes> Asked(const std::string& memory, const std::string& fraction,
                    const AnnotationRules& rules) {
  if (!memory.empty() && !fraction.empty()) {
    return Wrong("give one of the annotations gpu-memory and gpu-fraction");
  }
  if (!memory.empty()) {
    const std::optional<double> mib = Number(memory);
    if (!mib.has_value() || !(*mib >= 1) || *mib > 1e9) {
      return Wrong("the annotation gpu-memory is '" + memory + "'; give MiB, such as \"4096\"");
    }
    return MiB(static_cast<uint64_t>(std::ceil(*mib)));
  }
  const std::optional<double> part = Number(fraction);
  if (!part.has_value() || !(*part > 0) || *part > 1) {
    return Wrong("the annotation gpu-fraction is '" + fraction +
                 "'; give a part of a GPU, such as \"0.5\"");
  }
  if (rules.gpu.count == 0) {
    return Wrong("gpu-fraction is not set up here; use the annotation gpu-memory, in MiB");
  }
  return Bytes(static_cast<uint64_t>(std::ceil(*part * static_cast<double>(rules.gpu.count))));
}

// Adds the objects that lead to `limits`, where they are missing.
json PatchOfContainer(const json& container, size_t index, uint64_t units) {
  const std::string path = "/spec/containers/" + std::to_string(index) + "/resources";
  const json limits = {{kMemoryResource, std::to_string(units)}};
  if (!container.contains("resources") || !container["resources"].is_object()) {
    return {{"op", "add"}, {"path", path}, {"value", {{"limits", limits}}}};
  }
  if (!At(container, "resources").contains("limits")) {
    return {{"op", "add"}, {"path", path + "/limits"}, {"value", limits}};
  }
  // In a pointer (RFC 6901), "/" in a name is "~1".
  return {{"op", "add"},
          {"path", path + "/limits/tandem.dev~1gpu-memory"},
          {"value", std::to_string(units)}};
}

}  // namespace

Result<json> PatchOf(const json& pod, const AnnotationRules& rules) {
  const json& annotations = At(At(pod, "metadata"), "annotations");
  const std::string memory = TextOf(annotations, kMemory);
  const std::string fraction = TextOf(annotations, kFraction);
  const PodRequests own = RequestsOf(pod);
  if ((memory.empty() && fraction.empty()) || !own.containers.empty()) return json::array();
  if (const std::string devices = TextOf(annotations, kDevices);
      !devices.empty() && devices != "1") {
    return Wrong("a container has memory of one GPU, and gpu-fraction-num-devices is " + devices);
  }
  ASSIGN_OR_RETURN(const Bytes asked, Asked(memory, fraction, rules));
  const uint64_t units = (asked.count + rules.unit.count - 1) / rules.unit.count;

  const json& containers = At(At(pod, "spec"), "containers");
  if (!containers.is_array() || containers.empty()) return Wrong("the pod has no container");
  const std::string name = TextOf(annotations, kContainer);
  size_t index = 0;
  while (!name.empty() && index < containers.size() && TextOf(containers[index], "name") != name) {
    ++index;
  }
  if (index == containers.size()) {
    return Wrong("gpu-fraction-container-name is '" + name + "', and no container has that name");
  }
  json patch = json::array({PatchOfContainer(containers[index], index, units)});
  if (TextOf(At(pod, "spec"), "schedulerName") == kKai) {
    patch.push_back(
        {{"op", "replace"}, {"path", "/spec/schedulerName"}, {"value", rules.scheduler}});
  }
  return patch;
}

Result<json> AnswerTo(const json& review, const AnnotationRules& rules) {
  const json& request = At(review, "request");
  const std::string uid = TextOf(request, "uid");
  if (uid.empty()) return Wrong("the request is no AdmissionReview of admission.k8s.io/v1");
  json response = {{"uid", uid}, {"allowed", true}};
  const Result<json> patch = PatchOf(At(request, "object"), rules);
  if (!patch.ok()) {
    response["allowed"] = false;
    response["status"] = {{"message", patch.error().message}};
  } else if (!patch->empty()) {
    response["patchType"] = "JSONPatch";
    response["patch"] = *patch;
  }
  return json{{"apiVersion", "admission.k8s.io/v1"},
              {"kind", "AdmissionReview"},
              {"response", std::move(response)}};
}

}  // namespace tandem::kubernetes
