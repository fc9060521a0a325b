#include "src/cuda/probe.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

#include "src/cuda/uuid.h"

namespace tandem::cuda {
namespace {

constexpr Bytes kSmallestContext = MiB(1);
constexpr Bytes kGranularity = MiB(2);  // where the driver does not say

Status Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return {};
  const char* name = ErrorName(result);
  return Error{ErrorCode::kFailed,
               std::string(what) + " failed: " + (name != nullptr ? name : std::to_string(result))};
}

Bytes Granularity(const RealDriver& driver, CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  size_t granularity = 0;
  if (driver.cuMemGetAllocationGranularity == nullptr ||
      driver.cuMemGetAllocationGranularity(&granularity, &properties,
                                           CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
      granularity == 0) {
    return kGranularity;
  }
  return Bytes(granularity);
}

// The first context lets us ask how much is free; what the second one takes is what one costs. On a
// full card there is room for one or none: then the rest is not known.
Status MeasureContext(const RealDriver& driver, CUdevice device, DeviceFacts& facts) {
  std::array<CUcontext, 2> contexts{};
  std::array<Bytes, 2> free{};
  Status status;
  size_t made = 0;
  while (made < contexts.size() && status.ok()) {
    const CUresult result = driver.cuCtxCreate_v2(&contexts[made], 0, device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) break;
    status = Check(result, "cuCtxCreate");
    if (!status.ok()) break;
    size_t left = 0, total = 0;
    status = Check(driver.cuMemGetInfo_v2(&left, &total), "cuMemGetInfo");
    free[made++] = Bytes(left);
  }
  if (made == contexts.size()) {
    facts.context = std::max(SaturatingSubtract(free[0], free[1]), kSmallestContext);
  }
  facts.used = SaturatingSubtract(facts.total, free[0] + facts.context);
  facts.granularity = Granularity(driver, device);
  while (made > 0) driver.cuCtxDestroy_v2(contexts[--made]);
  return status;
}

Result<DeviceFacts> Probe(const RealDriver& driver, int ordinal) {
  DeviceFacts facts;
  CUdevice device = 0;
  TRY(Check(driver.cuDeviceGet(&device, ordinal), "cuDeviceGet"));
  std::array<char, 256> name{};
  TRY(Check(driver.cuDeviceGetName(name.data(), name.size() - 1, device), "cuDeviceGetName"));
  facts.name = name.data();
  facts.software = facts.name.find("Software GPU") != std::string::npos;
  CUuuid uuid{};
  const auto get_uuid =
      driver.cuDeviceGetUuid_v2 != nullptr ? driver.cuDeviceGetUuid_v2 : driver.cuDeviceGetUuid;
  TRY(Check(get_uuid(&uuid, device), "cuDeviceGetUuid"));
  facts.uuid = FormatUuid(uuid);
  size_t total = 0;
  TRY(Check(driver.cuDeviceTotalMem_v2(&total, device), "cuDeviceTotalMem"));
  facts.total = Bytes(total);
  TRY(MeasureContext(driver, device, facts));
  return facts;
}

}  // namespace

Result<Probed> ProbeDevices(const RealDriver& driver) {
  const bool usable = driver.cuInit != nullptr && driver.cuDeviceGetCount != nullptr &&
                      driver.cuDeviceGet != nullptr && driver.cuDeviceGetName != nullptr &&
                      (driver.cuDeviceGetUuid_v2 != nullptr || driver.cuDeviceGetUuid != nullptr) &&
                      driver.cuDeviceTotalMem_v2 != nullptr && driver.cuCtxCreate_v2 != nullptr &&
                      driver.cuCtxDestroy_v2 != nullptr && driver.cuMemGetInfo_v2 != nullptr;
  if (!usable) return Error{ErrorCode::kFailed, "libcuda.so.1 lacks functions Tandem needs"};
  TRY(Check(driver.cuInit(0), "cuInit"));
  int count = 0;
  TRY(Check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount"));
  if (count <= 0) return Error{ErrorCode::kNotFound, "the driver sees no GPU"};
  Probed probed;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Result<DeviceFacts> facts = Probe(driver, ordinal);
    if (facts.ok()) {
      probed.devices.push_back(*std::move(facts));
    } else {
      probed.unusable.push_back("GPU " + std::to_string(ordinal) + ": " + facts.error().message);
    }
  }
  if (probed.devices.empty()) return Error{ErrorCode::kFailed, probed.unusable.front()};
  return probed;
}

Result<Probed> ProbeDevices() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return Error{ErrorCode::kNotFound, why != nullptr ? why : "no libcuda.so.1"};
  }
  return ProbeDevices(LoadRealDriver(library, &dlsym));
}

}  // namespace tandem::cuda
