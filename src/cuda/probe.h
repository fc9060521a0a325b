// ProbeDevices: what the GPUs of this node are, from the driver.
//
// It makes contexts, which cost memory for as long as the process lives: a process that must not
// hold any calls it in a child process.
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
  Bytes used;         // before we made a context; all of it where not even one fits
  Bytes context;      // what one context costs; zero where there is no room to find out
  Bytes granularity;  // of physical allocations
};

struct Probed {
  std::vector<DeviceFacts> devices;   // at least one
  std::vector<std::string> unusable;  // of the others, which one and why
};

// Opens libcuda.so.1. kNotFound where there is no driver or no GPU.
Result<Probed> ProbeDevices();

// The same from a driver that is open already.
Result<Probed> ProbeDevices(const RealDriver& driver);

}  // namespace tandem::cuda
