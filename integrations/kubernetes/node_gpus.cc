#include "integrations/kubernetes/node_gpus.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

namespace tandem::kubernetes {
namespace {

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

Result<std::map<int, Bytes>> SharedOf(const std::string& text) {
  const nlohmann::json answer = nlohmann::json::parse(text, nullptr, false);
  if (!answer.is_object() || !answer.contains("gpus")) {
    return Error{ErrorCode::kInvalid, "`tandem lease list --json` says something else"};
  }
  std::map<int, Bytes> shared;
  for (const nlohmann::json& gpu : answer["gpus"]) {
    shared[gpu.value("index", 0)] = Bytes(gpu.value("budget_bytes", uint64_t{0}));
  }
  return shared;
}

}  // namespace

NodeGpus::NodeGpus(const NodeOptions& options, Bytes unit)
    : options_(options),
      unit_(unit),
      command_{options.tandem.empty() ? integrations::OwnTandem() : options.tandem,
               OwnEnvironment()} {}

Result<bool> NodeGpus::Refresh() {
  const Result<std::string> answer = integrations::Output(command_, {"lease", "list", "--json"});
  const Result<std::map<int, Bytes>> shared =
      answer.ok() ? SharedOf(*answer) : Result<std::map<int, Bytes>>(answer.error());
  if (!shared.ok()) {
    if (std::exchange(healthy_, false)) return true;
    return shared.error();
  }
  const Counts before = memory();
  shared_ = *shared;
  bool changed = !std::exchange(healthy_, true) || memory() != before;
  if (!changed) return false;
  Bytes largest;
  for (const auto& [gpu, bytes] : shared_) largest = std::max(largest, bytes);
  TRY(WriteSpecification(largest));
  return true;
}

Counts NodeGpus::memory() const {
  Counts counts;
  for (const auto& [gpu, bytes] : shared_) {
    const uint64_t units = bytes.count / unit_.count;
    counts[gpu] = static_cast<int>(static_cast<double>(units) * options_.oversubscribe);
  }
  return counts;
}

Counts NodeGpus::shares(int of_each) const {
  Counts counts;
  for (const auto& [gpu, bytes] : shared_) counts[gpu] = of_each;
  return counts;
}

std::map<int, GpuMemory> NodeGpus::offered() const {
  std::map<int, GpuMemory> offered;
  for (const auto& [gpu, units] : memory()) {
    offered[gpu] = {shared_.at(gpu), Bytes(static_cast<uint64_t>(units) * unit_.count)};
  }
  return offered;
}

Status NodeGpus::WriteDevice(const Allocated& device) const {
  const std::filesystem::path all = options_.specification;
  const std::string file = all.stem().string() + "-" + device.cdi + all.extension().string();
  std::vector<std::string> words = {"cdi",
                                    "generate",
                                    "--kind",
                                    options_.kind,
                                    "--output",
                                    all.parent_path() / file,
                                    "--name",
                                    device.cdi,
                                    "--gpu",
                                    std::to_string(device.gpu),
                                    "--compute-share",
                                    std::to_string(device.share) + "%"};
  if (device.memory != Bytes()) {
    words.insert(words.end(), {"--memory", std::to_string(device.memory.count) + "B"});
  }
  TRY(integrations::Output(command_, words));
  return {};
}

Status NodeGpus::WriteSpecification(Bytes largest) {
  std::vector<std::string> words = {"cdi",         "generate", "--kind",
                                    options_.kind, "--output", options_.specification};
  for (Bytes size = unit_; size <= largest; size += unit_) {
    words.insert(words.end(), {"--size", std::to_string(size.count) + "B"});
  }
  TRY(integrations::Output(command_, words));
  return {};
}

}  // namespace tandem::kubernetes
