// Moves the calling process to another GPU, by the driver's checkpoints. Contexts, modules, streams
// and handles stay what they are: the driver takes them from one GPU and puts them onto the other.
//
// The two GPUs change places, so that the program finds its new one where it had the old one.
#pragma once

#include <string>

#include "src/base/result.h"
#include "src/cuda/real_driver.h"

namespace tandem::shim {

// Moves what the process has on `device` to the GPU with that uuid, as FormatUuid prints it. Calls
// of the driver wait meanwhile. An error, in words for who gave the order: it has not moved.
// REQUIRES: none of the process's work is under way.
Status MoveToGpu(const cuda::RealDriver& real, CUdevice device, const std::string& uuid);

}  // namespace tandem::shim
