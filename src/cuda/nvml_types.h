// The ABI of NVIDIA's management library, as far as libnvidia-ml.so.1 here has it: declarations of
// our own.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

enum nvmlReturn_t {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_ALREADY_INITIALIZED = 5,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_INSUFFICIENT_POWER = 8,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_TIMEOUT = 10,
  NVML_ERROR_IRQ_ISSUE = 11,
  NVML_ERROR_LIBRARY_NOT_FOUND = 12,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_CORRUPTED_INFOROM = 14,
  NVML_ERROR_GPU_IS_LOST = 15,
  NVML_ERROR_RESET_REQUIRED = 16,
  NVML_ERROR_OPERATING_SYSTEM = 17,
  NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
  NVML_ERROR_IN_USE = 19,
  NVML_ERROR_MEMORY = 20,
  NVML_ERROR_NO_DATA = 21,
  NVML_ERROR_VGPU_ECC_NOT_SUPPORTED = 22,
  NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
  NVML_ERROR_FREQ_NOT_SUPPORTED = 24,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_DEPRECATED = 26,
  NVML_ERROR_NOT_READY = 27,
  NVML_ERROR_GPU_NOT_FOUND = 28,
  NVML_ERROR_INVALID_STATE = 29,
  NVML_ERROR_UNKNOWN = 999,
};

using nvmlDevice_t = struct nvmlDevice_st*;
using nvmlEventSet_t = struct nvmlEventSet_st*;

struct nvmlPciInfo_v1_t {
  char busId[16];
  unsigned int domain, bus, device;
  unsigned int pciDeviceId;
};
static_assert(sizeof(nvmlPciInfo_v1_t) == 32);

struct nvmlPciInfo_v2_t {
  char busId[16];
  unsigned int domain, bus, device;
  unsigned int pciDeviceId, pciSubSystemId;
  unsigned int reserved[4];
};
static_assert(sizeof(nvmlPciInfo_v2_t) == 52);

struct nvmlPciInfo_t {
  char busIdLegacy[16];
  unsigned int domain, bus, device;
  unsigned int pciDeviceId, pciSubSystemId;
  char busId[32];
};
static_assert(sizeof(nvmlPciInfo_t) == 68);

struct nvmlMemory_t {
  unsigned long long total, free, used;
};
static_assert(sizeof(nvmlMemory_t) == 24);

struct nvmlMemory_v2_t {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
static_assert(sizeof(nvmlMemory_v2_t) == 40);
inline constexpr unsigned int kMemoryV2 = sizeof(nvmlMemory_v2_t) | 2 << 24;

struct nvmlUtilization_t {
  unsigned int gpu, memory;  // percent
};

struct nvmlProcessInfo_v1_t {
  unsigned int pid;
  unsigned long long usedGpuMemory;
};
static_assert(sizeof(nvmlProcessInfo_v1_t) == 16);

struct nvmlProcessInfo_t {  // of the versions 2 and 3
  unsigned int pid;
  unsigned long long usedGpuMemory;
  unsigned int gpuInstanceId, computeInstanceId;
};
static_assert(sizeof(nvmlProcessInfo_t) == 24);
inline constexpr unsigned int kNoInstance = ~0u;

struct nvmlFieldValue_t {
  unsigned int fieldId, scopeId;
  long long timestamp, latencyUsec;
  unsigned int valueType;
  nvmlReturn_t nvmlReturn;
  unsigned long long value;
};
static_assert(sizeof(nvmlFieldValue_t) == 40);

struct nvmlProcessUtilizationSample_t {
  unsigned int pid;
  unsigned long long timeStamp;  // µs of the wall clock
  unsigned int smUtil, memUtil, encUtil, decUtil;
};
static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32);

}  // extern "C"
