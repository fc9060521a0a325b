#include "src/cuda/memory_use.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <vector>

#include "src/cuda/nvml_types.h"

namespace tandem::cuda {
namespace {

constexpr unsigned int kUuidRoom = 96;         // NVML_DEVICE_UUID_V2_BUFFER_SIZE
constexpr unsigned long long kUntold = ~0ull;  // NVML_VALUE_NOT_AVAILABLE
constexpr unsigned int kMostProcesses = 4096;

struct Nvml {
  nvmlReturn_t (*init)() = nullptr;
  nvmlReturn_t (*count)(unsigned int*) = nullptr;
  nvmlReturn_t (*device)(unsigned int, nvmlDevice_t*) = nullptr;
  nvmlReturn_t (*uuid)(nvmlDevice_t, char*, unsigned int) = nullptr;
  nvmlReturn_t (*memory)(nvmlDevice_t, nvmlMemory_t*) = nullptr;
  nvmlReturn_t (*processes)(nvmlDevice_t, unsigned int*, nvmlProcessInfo_t*) = nullptr;
};

template <typename Function>
bool Load(void* library, std::initializer_list<const char*> names, Function** function) {
  for (const char* name : names) {
    *function = reinterpret_cast<Function*>(dlsym(library, name));
    if (*function != nullptr) return true;
  }
  return false;
}

// Opened and started once for the life of the process; null where that fails.
const Nvml* TheNvml() {
  static const Nvml* const loaded = []() -> const Nvml* {
    static Nvml nvml;
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    const bool whole =
        library != nullptr && Load(library, {"nvmlInit_v2"}, &nvml.init) &&
        Load(library, {"nvmlDeviceGetCount_v2"}, &nvml.count) &&
        Load(library, {"nvmlDeviceGetHandleByIndex_v2"}, &nvml.device) &&
        Load(library, {"nvmlDeviceGetUUID"}, &nvml.uuid) &&
        Load(library, {"nvmlDeviceGetMemoryInfo"}, &nvml.memory) &&
        Load(library,
             {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"},
             &nvml.processes);
    return whole && nvml.init() == NVML_SUCCESS ? &nvml : nullptr;
  }();
  return loaded;
}

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
  unsigned int count = 0;
  if (nvml->count(&count) != NVML_SUCCESS) return Error{ErrorCode::kFailed, "nvmlDeviceGetCount"};
  for (unsigned int i = 0; i < count; ++i) {
    nvmlDevice_t device = nullptr;
    std::array<char, kUuidRoom> uuid{};
    MemoryUse use;
    const bool read = nvml->device(i, &device) == NVML_SUCCESS &&
                      nvml->uuid(device, uuid.data(), kUuidRoom) == NVML_SUCCESS &&
                      ReadDevice(*nvml, device, &use);
    if (read) uses[uuid.data()] = std::move(use);
  }
  return uses;
}

}  // namespace tandem::cuda
