// Orders about GPUs: which are meant, who may give them, and what becomes of them.
#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/service/records.h"

namespace tandem::service {

// "gpu0", "0" or the uuid of one; "all".
std::vector<Service::Gpu*> Service::FindGpus(const std::string& text) const {
  std::vector<Gpu*> found;
  for (const auto& gpu : gpus_) {
    const std::string number = std::to_string(gpu->info.index);
    if (text == "all" || text == "gpu" + number || text == number || text == gpu->info.uuid) {
      found.push_back(gpu.get());
    }
  }
  return found;
}

// Root, and the daemon's owner.
bool Service::MayRule(const Connection& from) const {
  return from.client.uid == 0 || from.client.uid == config_.uid;
}

void Service::SetPolicy(Connection& from, const wire::Control& m) {
  const auto refuse = [&](wire::RefusalCode code, std::string reason) {
    Refuse(from.id, code, std::move(reason), false);
  };
  const std::vector<Gpu*> gpus = FindGpus(m.target);
  if (gpus.empty()) {
    return refuse(
        wire::RefusalCode::kUnknownTarget,
        "no GPU is called \"" + Printable(m.target) + "\"; there " +
            (gpus_.size() == 1 ? "is gpu0" : "are gpu0 to gpu" + std::to_string(gpus_.size() - 1)) +
            ", and \"all\"");
  }
  if (!MayRule(from)) {
    return refuse(wire::RefusalCode::kNotYours,
                  "only root or the daemon's owner can change the policy");
  }
  if (!core::IsPolicyName(m.value)) {
    std::string names;
    for (const core::PolicyName& policy : core::PolicyNames()) {
      names += (names.empty() ? "" : ", ") + std::string(policy.name);
    }
    return refuse(wire::RefusalCode::kUnknownTarget,
                  "there is no policy called \"" + Printable(m.value) + "\"; there are " + names);
  }
  nlohmann::json changed = nlohmann::json::array();
  for (Gpu* gpu : gpus) {
    const std::string before = gpu->arbiter.config().policy;
    Feed(*gpu, core::event::PolicySet{m.value});
    Note("policy of gpu" + std::to_string(gpu->info.index) + " set to " + m.value + ", before " +
         before + ", by user " + std::to_string(from.client.uid));
    changed.push_back({{"index", gpu->info.index}, {"policy", m.value}, {"before", before}});
  }
  const nlohmann::json answer = {{"gpus", std::move(changed)}};
  out_.push_back(Outgoing{from.id, wire::Answer{JsonText(answer)}, {}, false});
}

}  // namespace tandem::service
