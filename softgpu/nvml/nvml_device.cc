// libnvidia-ml.so.1 of the software GPU: what a device is, and what goes on there.
#include <algorithm>
#include <cstdio>
#include <ctime>

#include "softgpu/card/identity.h"
#include "softgpu/nvml/library.h"
#include "src/cuda/uuid.h"

namespace tandem::soft::nvml {

nvmlReturn_t FindDevice(nvmlDevice_t device, std::shared_ptr<const Library>* library,
                        const DeviceOption** option) {
  *library = TheLibrary();
  if (*library == nullptr) return NVML_ERROR_UNINITIALIZED;
  *option = (*library)->Find(device);
  return *option == nullptr ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

nvmlReturn_t LookAtDevice(nvmlDevice_t device, DeviceUse* use) {
  std::shared_ptr<const Library> library;
  const DeviceOption* option = nullptr;
  NVML_TRY(FindDevice(device, &library, &option));
  auto seen = LookAt(library->directory, option->name, option->vram, option->source);
  if (!seen.ok()) return NVML_ERROR_UNKNOWN;
  *use = std::move(seen).value();
  return NVML_SUCCESS;
}

namespace {

constexpr unsigned int kAmpere = 7;  // the architecture of compute capability 8.0 to 8.7
static_assert(kComputeMajor == 8 && kComputeMinor == 6);
constexpr unsigned int kPcie = 2;  // a type of bus

nvmlReturn_t Constant(nvmlDevice_t device, unsigned int value, unsigned int* out) {
  NVML_TRY(Check(device, out));
  *out = value;
  return NVML_SUCCESS;
}

// Whether `needed` entries fit into an array of *count; *count is how many there are.
nvmlReturn_t CheckRoom(size_t needed, unsigned int* count, const void* array) {
  if (count == nullptr || (*count > 0 && array == nullptr)) return NVML_ERROR_INVALID_ARGUMENT;
  const bool fits = needed <= *count;
  *count = static_cast<unsigned int>(needed);
  return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

template <class Info>
nvmlReturn_t DescribePlace(nvmlDevice_t device, Info* info) {
  NVML_TRY(Check(device, info));
  const int ordinal = static_cast<int>(IndexOf(device));
  *info = {};
  info->bus = static_cast<unsigned int>(PciBus(ordinal));
  return CopyText(PciBusId(ordinal), info->busId, sizeof(info->busId));
}

void Describe(const DeviceUse::Process& process, nvmlProcessInfo_v1_t* info) {
  *info = {process.pid, process.used.count};
}
void Describe(const DeviceUse::Process& process, nvmlProcessInfo_t* info) {
  *info = {process.pid, process.used.count, kNoInstance, kNoInstance};
}

template <class Info>
nvmlReturn_t GetProcesses(nvmlDevice_t device, unsigned int* count, Info* infos) {
  DeviceUse use;
  NVML_TRY(LookAtDevice(device, &use));
  // A process that only looked at the device, as cuInit does, has no context there.
  std::erase_if(use.processes, [](const auto& process) { return process.used == Bytes(); });
  NVML_TRY(CheckRoom(use.processes.size(), count, infos));
  for (const auto& process : use.processes) Describe(process, infos++);
  return NVML_SUCCESS;
}

template <class Info>
nvmlReturn_t NoProcesses(nvmlDevice_t device, unsigned int* count, Info* infos) {
  NVML_TRY(Check(device));
  return CheckRoom(0, count, infos);
}

}  // namespace
}  // namespace tandem::soft::nvml

using namespace tandem;              // NOLINT: entry points live outside every namespace
using namespace tandem::soft;        // NOLINT
using namespace tandem::soft::nvml;  // NOLINT

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) noexcept {
  NVML_TRY(Check(device));
  return CopyText(kDeviceName, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) noexcept {
  std::shared_ptr<const Library> library;
  const DeviceOption* option = nullptr;
  NVML_TRY(FindDevice(device, &library, &option));
  return CopyText(cuda::FormatUuid(DeviceUuid(option->name)), uuid, length);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) noexcept {
  return Constant(device, static_cast<unsigned int>(IndexOf(device)), index);
}
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minor) noexcept {
  return Constant(device, static_cast<unsigned int>(IndexOf(device)), minor);
}
nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int* brand) noexcept {
  return Constant(device, 0, brand);  // unknown
}
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int* architecture) noexcept {
  return Constant(device, kAmpere, architecture);
}
nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, unsigned int* type) noexcept {
  return Constant(device, kPcie, type);
}

// Every device is a board of its own.
nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int* board) noexcept {
  const int ordinal = static_cast<int>(IndexOf(device));
  return Constant(device, static_cast<unsigned int>(PciBus(ordinal)) << 8, board);
}
nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int* multiple) noexcept {
  return Constant(device, 0, multiple);
}
nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device, nvmlDevice_t other, int* same) noexcept {
  NVML_TRY(Check(device, other, same));
  *same = device == other ? 1 : 0;
  return NVML_SUCCESS;
}

// What cuDeviceGetP2PAttribute says: devices reach one another by everything but links of their
// own.
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other,
                                    unsigned int capability, unsigned int* status) noexcept {
  constexpr unsigned int kLinks = 2, kCapabilities = 5;  // read, write, links, atomics, bus
  constexpr unsigned int kOk = 0, kStatusNotSupported = 5;
  NVML_TRY(Check(device, other, status));
  if (device == other || capability >= kCapabilities) return NVML_ERROR_INVALID_ARGUMENT;
  *status = capability == kLinks ? kStatusNotSupported : kOk;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int* mode) noexcept {
  return Constant(device, 0, mode);  // off: if no process is left, the next one's device is new
}
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int* mode) noexcept {
  return Constant(device, 0, mode);  // several contexts at a time
}
nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int* mode) noexcept {
  return Constant(device, 0, mode);  // none
}
nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int* is) noexcept {
  return Constant(device, 0, is);
}
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int* count) noexcept {
  return Constant(device, 0, count);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v1_t* info) noexcept {
  return DescribePlace(device, info);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t* info) noexcept {
  return DescribePlace(device, info);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* info) noexcept {
  NVML_TRY(Check(device, info));
  const int ordinal = static_cast<int>(IndexOf(device));
  *info = {};
  info->bus = static_cast<unsigned int>(PciBus(ordinal));
  NVML_TRY(CopyText("0000" + PciBusId(ordinal), info->busId, sizeof(info->busId)));
  return CopyText(PciBusId(ordinal), info->busIdLegacy, sizeof(info->busIdLegacy));
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major,
                                                int* minor) noexcept {
  NVML_TRY(Check(device, major, minor));
  *major = kComputeMajor;
  *minor = kComputeMinor;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) noexcept {
  DeviceUse use;
  NVML_TRY(LookAtDevice(device, &use));
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *memory = {use.total.count, SaturatingSubtract(use.total, use.used).count, use.used.count};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) noexcept {
  DeviceUse use;
  NVML_TRY(LookAtDevice(device, &use));
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (memory->version != kMemoryV2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  *memory = {kMemoryV2, use.total.count, 0, SaturatingSubtract(use.total, use.used).count,
             use.used.count};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device,
                                           nvmlUtilization_t* utilization) noexcept {
  DeviceUse use;
  NVML_TRY(LookAtDevice(device, &use));
  if (utilization == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned int percent = 0;
  for (const auto& process : use.processes) percent += process.busy_percent;
  // The memory's utilisation is not counted.
  *utilization = {std::min(percent, 100u), 0};
  return NVML_SUCCESS;
}

// Each field has a result of its own.
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count,
                                      nvmlFieldValue_t* values) noexcept {
  NVML_TRY(Check(device, values));
  for (int i = 0; i < count; ++i) values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

// There is one sample of each process that computed in the last second, as of now.
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t* samples,
                                             unsigned int* count,
                                             unsigned long long since) noexcept {
  DeviceUse use;
  NVML_TRY(LookAtDevice(device, &use));
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  const auto now_us = static_cast<unsigned long long>(wall.tv_sec) * 1'000'000 +
                      static_cast<unsigned long long>(wall.tv_nsec) / 1000;
  std::erase_if(use.processes, [](const auto& process) { return process.busy_percent == 0; });
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (use.processes.empty() || since >= now_us) return NVML_ERROR_NOT_FOUND;
  if (samples == nullptr) {
    *count = static_cast<unsigned int>(use.processes.size());
    return NVML_ERROR_INSUFFICIENT_SIZE;
  }
  NVML_TRY(CheckRoom(use.processes.size(), count, samples));
  for (const auto& process : use.processes) {
    *samples++ = {process.pid, now_us, process.busy_percent, 0, 0, 0};
  }
  return NVML_SUCCESS;
}

#define NVML_PROCESSES(symbol, Info, Get)                                                   \
  nvmlReturn_t symbol(nvmlDevice_t device, unsigned int* count, Info* processes) noexcept { \
    return Get(device, count, processes);                                                   \
  }
NVML_PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, GetProcesses)
NVML_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t, GetProcesses)
NVML_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, GetProcesses)
NVML_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, NoProcesses)
NVML_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t, NoProcesses)
NVML_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, NoProcesses)
NVML_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, NoProcesses)
NVML_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t, NoProcesses)
NVML_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, NoProcesses)
#undef NVML_PROCESSES

#define NVML(symbol, parameters)
#define NVML_WITHOUT(symbol, parameters, arguments) \
  nvmlReturn_t symbol parameters noexcept {         \
    NVML_TRY(Check arguments);                      \
    return NVML_ERROR_NOT_SUPPORTED;                \
  }
#include "softgpu/nvml/nvml_api.def"
#undef NVML_WITHOUT
#undef NVML
