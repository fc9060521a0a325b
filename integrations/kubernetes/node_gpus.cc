#include "integrations/kubernetes/node_gpus.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/json.h"

namespace tandem::kubernetes {
namespace {

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

Result<std::map<int, NodeGpu>> GpusOf(const std::string& text) {
  const nlohmann::json answer = ParseJson(text);
  if (!answer.is_object() || !answer.contains("gpus")) {
    return Error{ErrorCode::kInvalid, "`tandem lease list --json` says something else"};
  }
  std::map<int, NodeGpu> gpus;
  for (const nlohmann::json& gpu : answer["gpus"]) {
    gpus[gpu.value("index", 0)] = {Bytes(gpu.value("budget_bytes", uint64_t{0})),
                                   gpu.value("healthy", true)};
  }
  return gpus;
}

}  // namespace

NodeGpus::NodeGpus(const NodeOptions& options, Bytes unit)
    : options_(options),
      unit_(unit),
      command_{options.tandem.empty() ? integrations::OwnTandem() : options.tandem,
               OwnEnvironment()} {}

Result<bool> NodeGpus::Refresh() {
  const Result<std::string> answer = integrations::Output(command_, {"lease", "list", "--json"});
  Result<std::map<int, NodeGpu>> gpus =
      answer.ok() ? GpusOf(*answer) : Result<std::map<int, NodeGpu>>(answer.error());
  if (!gpus.ok()) {
    if (std::exchange(daemon_answers_, false)) return true;
    return gpus.error();
  }
  const Counts before = memory();
  const std::map<int, NodeGpu> old = std::exchange(gpus_, *std::move(gpus));
  const bool back = !std::exchange(daemon_answers_, true);
  const auto is_healthy = [](const auto& mine, const auto& theirs) {
    return mine.second.healthy == theirs.second.healthy;
  };
  const bool same = memory() == before &&
                    std::equal(gpus_.begin(), gpus_.end(), old.begin(), old.end(), is_healthy);
  if (same && !back) return false;
  Bytes largest;
  for (const auto& [index, gpu] : gpus_) largest = std::max(largest, gpu.shared);
  TRY(WriteSpecification(largest));
  return true;
}

std::set<int> NodeGpus::unhealthy() const {
  std::set<int> unhealthy;
  for (const auto& [index, gpu] : gpus_) {
    if (!daemon_answers_ || !gpu.healthy) unhealthy.insert(index);
  }
  return unhealthy;
}

Counts NodeGpus::memory() const {
  Counts counts;
  for (const auto& [index, gpu] : gpus_) {
    const uint64_t units = gpu.shared.count / unit_.count;
    counts[index] = static_cast<int>(static_cast<double>(units) * options_.oversubscribe);
  }
  return counts;
}

Counts NodeGpus::usable() const {
  Counts counts = memory();
  for (const int gpu : unhealthy()) counts[gpu] = 0;
  return counts;
}

Counts NodeGpus::shares(int of_each) const {
  Counts counts;
  for (const auto& [index, gpu] : gpus_) counts[index] = of_each;
  return counts;
}

std::map<int, GpuMemory> NodeGpus::offered() const {
  const std::set<int> without = unhealthy();
  std::map<int, GpuMemory> offered;
  for (const auto& [index, units] : memory()) {
    if (without.count(index) != 0) continue;
    offered[index] = {gpus_.at(index).shared, Bytes(static_cast<uint64_t>(units) * unit_.count)};
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
