// ProbeDevices: what the GPUs of this node are, from the driver.
//
// It makes contexts, which cost memory for as long as the process lives: whoever must not hold any
// calls it in a child process.
#pragma once

#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/result.h"
#include "src/cuda/real_driver.h"

namespace tandem::cuda {

struct DeviceFacts {
  std::string uuid;
  std::string name;
  bool software = false;
  Bytes total;
  Bytes used;         // before we made a context
  Bytes context;      // what one context costs
  Bytes granularity;  // of physical allocations
};

// Opens libcuda.so.1. kNotFound where there is no driver or no GPU.
Result<std::vector<DeviceFacts>> ProbeDevices();

// The same from a driver that is open already.
Result<std::vector<DeviceFacts>> ProbeDevices(const RealDriver& driver);

}  // namespace tandem::cuda
