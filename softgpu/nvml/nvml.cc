// libnvidia-ml.so.1 of the software GPU: initialisation, the system, which devices there are.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "softgpu/card/identity.h"
#include "softgpu/nvml/library.h"
#include "src/base/mutex.h"
#include "src/cuda/uuid.h"

namespace tandem::soft::nvml {
namespace {

struct ErrorText {
  nvmlReturn_t result;
  const char* text;
};
constexpr ErrorText kErrorTexts[] = {
    {NVML_SUCCESS, "Success"},
    {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
    {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
    {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
    {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
    {NVML_ERROR_ALREADY_INITIALIZED, "Already Initialized"},
    {NVML_ERROR_NOT_FOUND, "Not Found"},
    {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
    {NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power"},
    {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
    {NVML_ERROR_TIMEOUT, "Timeout"},
    {NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue"},
    {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
    {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
    {NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM"},
    {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
    {NVML_ERROR_RESET_REQUIRED, "GPU requires reset"},
    {NVML_ERROR_OPERATING_SYSTEM, "Blocked by the operating system"},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
    {NVML_ERROR_IN_USE, "In use"},
    {NVML_ERROR_MEMORY, "Insufficient Memory"},
    {NVML_ERROR_NO_DATA, "No data"},
    {NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, "Not possible for a vGPU with ECC"},
    {NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient Resources"},
    {NVML_ERROR_FREQ_NOT_SUPPORTED, "Frequency Not Supported"},
    {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument Version Mismatch"},
    {NVML_ERROR_DEPRECATED, "Deprecated"},
    {NVML_ERROR_NOT_READY, "Not Ready"},
    {NVML_ERROR_GPU_NOT_FOUND, "GPU Not Found"},
    {NVML_ERROR_INVALID_STATE, "Invalid State"},
};

struct State {
  Mutex mutex;
  int initialised GUARDED_BY(mutex) = 0;
  std::shared_ptr<const Library> library GUARDED_BY(mutex);
};

// Never destroyed: threads of the program may be running while it exits.
State& TheState() {
  static auto* state = new State();
  return *state;
}

Result<std::shared_ptr<const Library>> Load() {
  auto library = std::make_shared<Library>();
  ASSIGN_OR_RETURN(library->options, ParseOptions(secure_getenv));
  const Users users = library->options.shared ? Users::kAll : Users::kThis;
  ASSIGN_OR_RETURN(library->directory, SharedDirectory(library->options.directory, users));
  return std::shared_ptr<const Library>(std::move(library));
}

nvmlReturn_t Initialise() {
  State& state = TheState();
  MutexLock lock(state.mutex);
  if (state.initialised == 0) {
    auto library = Load();
    if (!library.ok()) {
      std::fprintf(stderr, "tandem software GPU: %s\n", library.error().message.c_str());
      return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    state.library = std::move(library).value();
  }
  ++state.initialised;
  return NVML_SUCCESS;
}

nvmlReturn_t GetCount(unsigned int* count) {
  const auto library = TheLibrary();
  if (library == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = static_cast<unsigned int>(library->options.devices.size());
  return NVML_SUCCESS;
}

// Of things that there are none of.
nvmlReturn_t CountNone(unsigned int* count) {
  NVML_TRY(Check());
  NVML_TRY(Check(count));
  *count = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t GetByIndex(unsigned int index, nvmlDevice_t* device) {
  const auto library = TheLibrary();
  if (library == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (device == nullptr || index >= library->options.devices.size()) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  *device = HandleOf(index);
  return NVML_SUCCESS;
}

struct PciPlace {
  unsigned int domain = 0, bus = 0, device = 0, function = 0;
  bool operator==(const PciPlace&) const = default;
};

// The domain or the function may be left out; all numbers are hexadecimal.
std::optional<PciPlace> ParsePciPlace(const char* id) {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  int end = 0;  // of what was read
  const auto all = [&](int wanted, int read) { return read == wanted && id[end] == '\0'; };
  if (all(4, std::sscanf(id, "%x:%x:%x.%x%n", &a, &b, &c, &d, &end))) return PciPlace{a, b, c, d};
  if (all(3, std::sscanf(id, "%x:%x:%x%n", &a, &b, &c, &end))) return PciPlace{a, b, c, 0};
  if (all(3, std::sscanf(id, "%x:%x.%x%n", &b, &c, &d, &end))) return PciPlace{0, b, c, d};
  return std::nullopt;
}

nvmlReturn_t GetByPciBusId(const char* id, nvmlDevice_t* device) {
  const auto library = TheLibrary();
  if (library == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (id == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const auto place = ParsePciPlace(id);
  if (!place) return NVML_ERROR_INVALID_ARGUMENT;
  for (size_t i = 0; i < library->options.devices.size(); ++i) {
    const PciPlace own = {.bus = static_cast<unsigned int>(PciBus(static_cast<int>(i)))};
    if (*place != own) continue;
    *device = HandleOf(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

}  // namespace

std::shared_ptr<const Library> TheLibrary() {
  State& state = TheState();
  MutexLock lock(state.mutex);
  return state.library;
}

nvmlReturn_t Check() {
  return TheLibrary() == nullptr ? NVML_ERROR_UNINITIALIZED : NVML_SUCCESS;
}
nvmlReturn_t Check(nvmlDevice_t device) {
  const auto library = TheLibrary();
  if (library == nullptr) return NVML_ERROR_UNINITIALIZED;
  return library->Find(device) == nullptr ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}
nvmlReturn_t Check(const void* pointer) {
  return pointer == nullptr ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

nvmlDevice_t HandleOf(size_t index) {
  return reinterpret_cast<nvmlDevice_t>(index + 1);
}
size_t IndexOf(nvmlDevice_t device) {
  return reinterpret_cast<size_t>(device) - 1;
}

const DeviceOption* Library::Find(nvmlDevice_t device) const {
  const size_t index = IndexOf(device);
  return index < options.devices.size() ? &options.devices[index] : nullptr;
}

nvmlReturn_t CopyText(const std::string& text, char* to, unsigned int length) {
  if (to == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (text.size() >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return NVML_SUCCESS;
}

}  // namespace tandem::soft::nvml

using namespace tandem;              // NOLINT: entry points live outside every namespace
using namespace tandem::soft::nvml;  // NOLINT

nvmlReturn_t nvmlInit() noexcept {
  return Initialise();
}
nvmlReturn_t nvmlInit_v2() noexcept {
  return Initialise();
}
nvmlReturn_t nvmlInitWithFlags(unsigned int) noexcept {
  return Initialise();
}

nvmlReturn_t nvmlShutdown() noexcept {
  State& state = TheState();
  MutexLock lock(state.mutex);
  if (state.initialised == 0) return NVML_ERROR_UNINITIALIZED;
  if (--state.initialised == 0) state.library = nullptr;
  return NVML_SUCCESS;
}

const char* nvmlErrorString(nvmlReturn_t result) noexcept {
  for (const ErrorText& row : kErrorTexts) {
    if (row.result == result) return row.text;
  }
  return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) noexcept {
  if (TheLibrary() == nullptr) return NVML_ERROR_UNINITIALIZED;
  return CopyText("580.0", version, length);
}
nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int length) noexcept {
  return CopyText("13.580.0", version, length);
}

// Also before nvmlInit.
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) noexcept {
  if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *version = soft::DriverVersion(secure_getenv);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) noexcept {
  return nvmlSystemGetCudaDriverVersion(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char* name, unsigned int length) noexcept {
  if (TheLibrary() == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::string program;
  if (!std::getline(file, program, '\0')) return NVML_ERROR_NOT_FOUND;
  return CopyText(program.substr(0, length - 1), name, length);
}

// The version is that of no branch.
nvmlReturn_t nvmlSystemGetDriverBranch(void* branch, unsigned int length) noexcept {
  NVML_TRY(Check());
  NVML_TRY(Check(branch));
  return NVML_ERROR_NOT_SUPPORTED;
}

// Neither host interface cards nor units that would hold them.
nvmlReturn_t nvmlSystemGetHicVersion(unsigned int* count, void* entries) noexcept {
  return CountNone(count);
}
nvmlReturn_t nvmlUnitGetCount(unsigned int* count) noexcept {
  return CountNone(count);
}
nvmlReturn_t nvmlUnitGetHandleByIndex(unsigned int index, void** unit) noexcept {
  NVML_TRY(Check());
  return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int* count) noexcept {
  return CountNone(count);
}
nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned int index, void* info) noexcept {
  NVML_TRY(Check());
  return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int* count) noexcept {
  return GetCount(count);
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) noexcept {
  return GetCount(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) noexcept {
  return GetByIndex(index, device);
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) noexcept {
  return GetByIndex(index, device);
}

// No device has a serial number.
nvmlReturn_t nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) noexcept {
  NVML_TRY(Check());
  if (serial == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) noexcept {
  const auto library = TheLibrary();
  if (library == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (uuid == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (size_t i = 0; i < library->options.devices.size(); ++i) {
    const CUuuid own = soft::DeviceUuid(library->options.devices[i].name);
    if (cuda::FormatUuid(own) != uuid) continue;
    *device = HandleOf(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* device) noexcept {
  return GetByPciBusId(id, device);
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) noexcept {
  return GetByPciBusId(id, device);
}
