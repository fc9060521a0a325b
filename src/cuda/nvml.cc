#include "src/cuda/nvml.h"

#include <dlfcn.h>

#include <array>
#include <initializer_list>

namespace tandem::cuda {
namespace {

constexpr unsigned int kUuidRoom = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE

template <typename Function>
bool Load(void* library, std::initializer_list<const char*> names, Function** function) {
  for (const char* name : names) {
    *function = reinterpret_cast<Function*>(dlsym(library, name));
    if (*function != nullptr) return true;
  }
  return false;
}

}  // namespace

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
    if (!whole || nvml.init() != NVML_SUCCESS) return nullptr;
    Load(library, {"nvmlDeviceGetMigMode"}, &nvml.mig_mode);
    Load(library, {"nvmlDeviceGetComputeMode"}, &nvml.compute_mode);
    return &nvml;
  }();
  return loaded;
}

bool ForEachDevice(const Nvml& nvml,
                   const std::function<void(const std::string& uuid, nvmlDevice_t device)>& look) {
  unsigned int count = 0;
  if (nvml.count(&count) != NVML_SUCCESS) return false;
  for (unsigned int i = 0; i < count; ++i) {
    nvmlDevice_t device = nullptr;
    std::array<char, kUuidRoom> uuid{};
    const bool found = nvml.device(i, &device) == NVML_SUCCESS &&
                       nvml.uuid(device, uuid.data(), kUuidRoom) == NVML_SUCCESS;
    if (found) look(uuid.data(), device);
  }
  return true;
}

}  // namespace tandem::cuda
