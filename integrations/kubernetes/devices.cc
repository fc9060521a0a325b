#include "integrations/kubernetes/devices.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace tandem::kubernetes {
namespace {

constexpr std::string_view kPrefix = "gpu";

std::optional<int> GpuOf(std::string_view id) {
  if (!id.starts_with(kPrefix)) return std::nullopt;
  const char* const begin = id.data() + kPrefix.size();
  const char* const end = id.data() + id.size();
  int gpu = 0;
  const auto [stop, error] = std::from_chars(begin, end, gpu);
  if (error != std::errc() || gpu < 0 || stop == end || *stop != '-') return std::nullopt;
  return gpu;
}

std::map<int, std::vector<std::string>> ByGpu(const std::vector<std::string>& ids) {
  std::map<int, std::vector<std::string>> found;
  for (const std::string& id : ids) {
    if (const std::optional<int> gpu = GpuOf(id)) found[*gpu].push_back(id);
  }
  return found;
}

}  // namespace

std::vector<std::string> DeviceIds(const Counts& counts) {
  std::vector<std::string> ids;
  for (const auto& [gpu, count] : counts) {
    for (int i = 0; i < count; ++i) {
      ids.push_back(std::string(kPrefix) + std::to_string(gpu) + "-" + std::to_string(i));
    }
  }
  return ids;
}

bool IsOf(std::string_view id, const std::set<int>& gpus) {
  const std::optional<int> gpu = GpuOf(id);
  return gpu.has_value() && gpus.count(*gpu) != 0;
}

Result<Grant> GrantOf(const std::vector<std::string>& ids) {
  const auto by_gpu = ByGpu(ids);
  size_t known = 0;
  std::string parts;
  for (const auto& [gpu, of_gpu] : by_gpu) {
    known += of_gpu.size();
    parts += (parts.empty() ? "" : ", ") + std::to_string(of_gpu.size()) + " on gpu" +
             std::to_string(gpu);
  }
  if (ids.empty() || known != ids.size()) {
    return Error{ErrorCode::kInvalid, "tandem: these devices are not this plugin's"};
  }
  if (by_gpu.size() > 1) {
    return Error{ErrorCode::kInvalid,
                 "tandem: no GPU of this node has room for the container: it would have " + parts};
  }
  const auto& [gpu, of_gpu] = *by_gpu.begin();
  return Grant{gpu, static_cast<int>(of_gpu.size())};
}

std::vector<std::string> Prefer(const std::vector<std::string>& available,
                                const std::vector<std::string>& required, int size,
                                Placement placement) {
  const auto by_gpu = ByGpu(available);
  const auto of_required = ByGpu(required);
  const auto wanted = static_cast<size_t>(std::max(size, 0));
  const bool tight = placement == Placement::kBestFit;
  const std::vector<std::string>* best = nullptr;
  for (const auto& [gpu, ids] : by_gpu) {
    if (!of_required.empty() && of_required.count(gpu) == 0) continue;
    const bool fits = ids.size() >= wanted;
    const bool best_fits = best != nullptr && best->size() >= wanted;
    const bool least = best != nullptr && ids.size() < best->size();
    const bool most = best != nullptr && ids.size() > best->size();
    const bool better = best == nullptr || (fits && !best_fits) ||
                        (fits && best_fits && (tight ? least : most)) ||
                        (!fits && !best_fits && most);
    if (better) best = &ids;
  }
  std::vector<std::string> chosen = required;
  const auto add = [&](const std::vector<std::string>& ids) {
    for (const std::string& id : ids) {
      if (chosen.size() >= wanted) return;
      if (std::find(chosen.begin(), chosen.end(), id) == chosen.end()) chosen.push_back(id);
    }
  };
  if (best != nullptr) add(*best);
  add(available);
  return chosen;
}

std::vector<int> FreeOf(const Counts& counts, const std::vector<std::string>& used) {
  const auto by_gpu = ByGpu(used);
  std::vector<int> free;
  for (const auto& [gpu, count] : counts) {
    const auto found = by_gpu.find(gpu);
    const size_t taken = found == by_gpu.end() ? 0 : found->second.size();
    free.push_back(std::max(count - static_cast<int>(taken), 0));
  }
  return free;
}

std::string MemoryDevice(const Grant& grant, Bytes unit) {
  const uint64_t bytes = unit.count * static_cast<uint64_t>(grant.devices);
  const bool whole = bytes % GiB(1).count == 0;
  return std::to_string(grant.gpu) + "-" + std::to_string(bytes / (whole ? GiB(1) : MiB(1)).count) +
         (whole ? "g" : "m");
}

}  // namespace tandem::kubernetes
