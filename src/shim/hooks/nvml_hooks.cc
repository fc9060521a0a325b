// NVML as a program of a run sees it: the memory of its GPU is the run's limit, and the processes
// there are the run's. Everything else, and every error, is the library's own.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "src/base/mutex.h"
#include "src/cuda/nvml_types.h"
#include "src/shim/hooks/hook_table.h"
#include "src/shim/link/run_daemon.h"
#include "src/shim/link/run_view.h"
#include "src/shim/os/true_symbols.h"
#include "src/shim/program/process.h"

// Declarations of what is exported.
extern "C" {
#define NVML_MEMORY(symbol, type) \
  __attribute__((visibility("default"))) nvmlReturn_t symbol(nvmlDevice_t, type*) noexcept;
#define NVML_PROCESSES(symbol, type)                                                      \
  __attribute__((visibility("default"))) nvmlReturn_t symbol(nvmlDevice_t, unsigned int*, \
                                                             type*) noexcept;
#include "src/shim/hooks/nvml_hooked.def"
#undef NVML_PROCESSES
#undef NVML_MEMORY
}

namespace tandem::shim {
namespace {

constexpr unsigned int kUuidRoom = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE
constexpr unsigned int kMostProcesses = 4096;

struct Hook {
  const char* symbol;
  void* function;
};

const Hook kHooks[] = {
#define NVML_MEMORY(symbol, type) {#symbol, reinterpret_cast<void*>(&::symbol)},
#define NVML_PROCESSES(symbol, type) NVML_MEMORY(symbol, type)
#include "src/shim/hooks/nvml_hooked.def"
#undef NVML_PROCESSES
#undef NVML_MEMORY
};

// Null where the program has not loaded the library.
void* RealFunction(const char* symbol) {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) {
    dlerror();  // ours, not the program's
    return nullptr;
  }
  void* const function = TrueDlsym()(library, symbol);
  dlclose(library);
  return function;
}

// Of the same type as the hook.
template <typename Function>
Function RealFor(const char* symbol, Function) {
  return reinterpret_cast<Function>(RealFunction(symbol));
}

// As the daemon says; while none answers, as it was said last.
std::optional<RunView> LastView(uint64_t run, const std::string& device_uuid) {
  static auto* const mutex = new Mutex;  // never destroyed: threads outlive static destructors
  static auto* const last = new std::map<std::string, RunView>;
  const std::optional<RunView> view = LookAtRun(run, device_uuid);
  MutexLock lock(*mutex);
  if (view.has_value()) (*last)[device_uuid] = *view;
  const auto known = last->find(device_uuid);
  return known == last->end() ? std::nullopt : std::optional(known->second);
}

// Nothing where the program belongs to no run, or no daemon says what the run is shown there.
std::optional<RunView> ViewOf(nvmlDevice_t device) {
  const uint64_t run = OwnRun();
  if (run == 0) return std::nullopt;
  using GetUuid = nvmlReturn_t (*)(nvmlDevice_t, char*, unsigned int);
  const auto get = reinterpret_cast<GetUuid>(RealFunction("nvmlDeviceGetUUID"));
  char uuid[kUuidRoom] = {};
  if (get == nullptr || get(device, uuid, sizeof(uuid)) != NVML_SUCCESS) return std::nullopt;
  return LastView(run, uuid);
}

void Show(const RunView& view, nvmlMemory_t* memory) {
  *memory = {view.limit.count, SaturatingSubtract(view.limit, view.used).count, view.used.count};
}

void Show(const RunView& view, nvmlMemory_v2_t* memory) {
  *memory = {memory->version, view.limit.count, 0, SaturatingSubtract(view.limit, view.used).count,
             view.used.count};
}

template <typename Memory, typename Function>
nvmlReturn_t GetMemory(const char* symbol, Function hook, nvmlDevice_t device, Memory* memory) {
  const Function real = RealFor(symbol, hook);
  if (real == nullptr) return NVML_ERROR_UNINITIALIZED;
  const nvmlReturn_t result = real(device, memory);
  if (result != NVML_SUCCESS) return result;
  if (const std::optional<RunView> view = ViewOf(device)) Show(*view, memory);
  return NVML_SUCCESS;
}

// All that the library lists; `room` is what the program has for it.
template <typename Process, typename Function>
nvmlReturn_t GetProcesses(const char* symbol, Function hook, nvmlDevice_t device,
                          unsigned int* room, Process* processes) {
  const Function real = RealFor(symbol, hook);
  if (real == nullptr) return NVML_ERROR_UNINITIALIZED;
  std::optional<RunView> view;
  if (room != nullptr) view = ViewOf(device);
  if (!view.has_value()) return real(device, room, processes);
  std::vector<Process> all(kMostProcesses);
  unsigned int count = kMostProcesses;
  const nvmlReturn_t result = real(device, &count, all.data());
  if (result != NVML_SUCCESS) return result;
  all.resize(count);
  std::erase_if(all, [&](const Process& each) { return view->processes.count(each.pid) == 0; });
  for (Process& each : all) each.usedGpuMemory = view->processes.at(each.pid);
  const auto own = static_cast<unsigned int>(all.size());
  const bool fits = own == 0 || (processes != nullptr && own <= *room);
  *room = own;
  if (!fits) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::copy(all.begin(), all.end(), processes);
  return NVML_SUCCESS;
}

}  // namespace

void* SubstituteNvml(void* found, const char* name) {
  const auto hook = std::find_if(std::begin(kHooks), std::end(kHooks), [name](const Hook& each) {
    return std::strcmp(each.symbol, name) == 0;
  });
  return hook != std::end(kHooks) && RealFunction(name) == found ? hook->function : found;
}

}  // namespace tandem::shim

#define NVML_MEMORY(symbol, type)                                       \
  nvmlReturn_t symbol(nvmlDevice_t device, type* memory) noexcept {     \
    return tandem::shim::GetMemory(#symbol, &::symbol, device, memory); \
  }
#define NVML_PROCESSES(symbol, type)                                                        \
  nvmlReturn_t symbol(nvmlDevice_t device, unsigned int* count, type* processes) noexcept { \
    return tandem::shim::GetProcesses(#symbol, &::symbol, device, count, processes);        \
  }
extern "C" {
#include "src/shim/hooks/nvml_hooked.def"
}
