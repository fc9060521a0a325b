// How a software device is called: the same in the driver and in the monitoring library.
//
// Threading: pure functions.
#pragma once

#include <string>

#include "src/cuda/driver_types.h"

namespace tandem::soft {

inline constexpr const char* kDeviceName = "Tandem Software GPU";
inline constexpr int kDriverVersion = 13000;  // of CUDA, the newest
inline constexpr int kComputeMajor = 8;
inline constexpr int kComputeMinor = 6;

// From the device's name in TANDEM_SOFT_DEVICES.
CUuuid DeviceUuid(const std::string& name);
// The number of the device's bus; its domain, slot and function are 0.
int PciBus(int ordinal);
std::string PciBusId(int ordinal);  // "0000:01:00.0"

}  // namespace tandem::soft
