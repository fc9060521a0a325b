// Entry points: devices.
#include <strings.h>
#include <algorithm>
#include <cstring>
#include <string>

#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

// Cut to `length` with its NUL, as the driver does.
CUresult CopyText(const std::string& text, char* to, int length) {
  if (to == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t count = std::min(text.size(), static_cast<size_t>(length) - 1);
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
  return CUDA_SUCCESS;
}

CUresult GetUuid(CUuuid* uuid, CUdevice ordinal) {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *uuid = device->uuid();
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuDeviceGet(CUdevice* device, int ordinal) noexcept {
  CU_TRY(Ready());
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* found = nullptr;
  CU_TRY(FindDevice(ordinal, &found));
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) noexcept {
  CU_TRY(Ready());
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(TheDriver().devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  return CopyText(kDeviceName, name, length);
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) noexcept {
  return GetUuid(uuid, device);
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) noexcept {
  return GetUuid(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = device->shared().total().count;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  constexpr auto kLast = CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED;
  if (value == nullptr || attribute < CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK ||
      attribute > kLast) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // What a device of this age has not heard of, it has not got.
  if (!device->Attribute(attribute, value)) *value = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = kComputeMajor;
  *minor = kComputeMinor;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  return CopyText(device->pci_bus_id(), id, length);
}

CUresult cuDeviceGetByPCIBusId(CUdevice* ordinal, const char* id) noexcept {
  CU_TRY(Ready());
  if (ordinal == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& device : TheDriver().devices) {
    const std::string full = device->pci_bus_id();
    // The function or the domain may be left out, not both.
    const std::string no_function = full.substr(0, 10), no_domain = full.substr(5);
    for (const std::string& form : {full, no_function, no_domain}) {
      if (strcasecmp(form.c_str(), id) != 0) continue;
      *ordinal = device->ordinal();
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}
