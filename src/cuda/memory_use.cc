#include "src/cuda/memory_use.h"

#include <algorithm>
#include <vector>

#include "src/cuda/nvml.h"

namespace tandem::cuda {
namespace {

constexpr unsigned long long kUntold = ~0ull;  // NVML_VALUE_NOT_AVAILABLE
constexpr unsigned int kMostProcesses = 4096;

std::map<int, Bytes> ProcessesOn(const Nvml& nvml, nvmlDevice_t device) {
  std::vector<nvmlProcessInfo_t> infos(kMostProcesses);
  unsigned int count = kMostProcesses;
  std::map<int, Bytes> used;
  if (nvml.processes(device, &count, infos.data()) != NVML_SUCCESS) return used;
  for (unsigned int i = 0; i < count; ++i) {
    if (infos[i].usedGpuMemory == kUntold) continue;
    used[static_cast<int>(infos[i].pid)] += Bytes(infos[i].usedGpuMemory);
  }
  return used;
}

// The processes are looked at before and after: what they have is in between.
bool ReadDevice(const Nvml& nvml, nvmlDevice_t device, MemoryUse* use) {
  const std::map<int, Bytes> before = ProcessesOn(nvml, device);
  nvmlMemory_t memory{};
  if (nvml.memory(device, &memory) != NVML_SUCCESS) return false;
  use->free = Bytes(memory.free);
  for (const auto& [pid, bytes] : before) use->processes[pid] = {Bytes(), bytes};
  for (const auto& [pid, bytes] : ProcessesOn(nvml, device)) {
    MemoryUse::Range& range = use->processes[pid];  // a new one had nothing before
    const Bytes earlier = range.most;
    range = {std::min(earlier, bytes), std::max(earlier, bytes)};
  }
  return true;
}

}  // namespace

Result<std::map<std::string, MemoryUse>> ReadMemoryUse() {
  const Nvml* const nvml = TheNvml();
  if (nvml == nullptr) return Error{ErrorCode::kNotFound, "no working libnvidia-ml.so.1"};
  std::map<std::string, MemoryUse> uses;
  const auto read = [&](const std::string& uuid, nvmlDevice_t device) {
    MemoryUse use;
    if (ReadDevice(*nvml, device, &use)) uses[uuid] = std::move(use);
  };
  if (!ForEachDevice(*nvml, read)) return Error{ErrorCode::kFailed, "nvmlDeviceGetCount"};
  return uses;
}

}  // namespace tandem::cuda
