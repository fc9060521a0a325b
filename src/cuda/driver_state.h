// Whether NVIDIA's driver works on this machine, for a process that must not load it itself.
//
// Threading: one thread; AskDriver forks.
#pragma once

#include <string>

#include "src/base/time.h"

namespace tandem::cuda {

struct DriverState {
  enum class Kind {
    kNone,    // no driver, or no GPU; the software GPU's library and CUDA's stub are no driver
    kWorks,   // the driver has a GPU
    kBroken,  // there is a driver, and its cuInit fails
  };
  Kind kind = Kind::kNone;
  std::string why;  // of kBroken: "cuInit failed: CUDA_ERROR_…"
};

// Loads `library` in a child process and calls its cuInit. A child that gives no answer within
// `patience` is killed, and the driver counts as broken.
DriverState AskDriver(const std::string& library = "libcuda.so.1", Duration patience = Seconds(10));

}  // namespace tandem::cuda
