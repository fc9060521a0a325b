// libnvidia-ml.so.1 of the software GPU: events. There are sets of them, and nothing to put in: no
// device reports any, so all sets are the same and a wait for one ends by its timeout.
#include <ctime>

#include "softgpu/nvml/library.h"

namespace tandem::soft::nvml {
namespace {

nvmlEventSet_t TheEmptySet() {
  static char set = 0;
  return reinterpret_cast<nvmlEventSet_t>(&set);
}

nvmlReturn_t CheckSet(nvmlEventSet_t set) {
  NVML_TRY(Check());
  return set == TheEmptySet() ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t Wait(nvmlEventSet_t set, void* data, unsigned int timeout_ms) {
  NVML_TRY(CheckSet(set));
  NVML_TRY(Check(data));
  timespec left = {static_cast<time_t>(timeout_ms / 1000),
                   static_cast<long>(timeout_ms % 1000) * 1'000'000};
  while (nanosleep(&left, &left) != 0) {
  }
  return NVML_ERROR_TIMEOUT;
}

}  // namespace
}  // namespace tandem::soft::nvml

using namespace tandem::soft::nvml;  // NOLINT: entry points live outside every namespace

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) noexcept {
  NVML_TRY(Check());
  NVML_TRY(Check(static_cast<const void*>(set)));
  *set = TheEmptySet();
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) noexcept {
  return CheckSet(set);
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, void* data, unsigned int timeout_ms) noexcept {
  return Wait(set, data, timeout_ms);
}
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, void* data, unsigned int timeout_ms) noexcept {
  return Wait(set, data, timeout_ms);
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
                                              unsigned long long* types) noexcept {
  NVML_TRY(Check(device, types));
  *types = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set) noexcept {
  NVML_TRY(Check(device));
  NVML_TRY(CheckSet(set));
  return types == 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}
