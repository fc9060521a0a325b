// Nvml: the functions of NVIDIA's management library that Tandem asks. A process whose driver hangs
// hangs with them: ask in a child process.
//
// Threading: any thread.
#pragma once

#include <functional>
#include <string>

#include "src/cuda/nvml_types.h"

namespace tandem::cuda {

struct Nvml {
  nvmlReturn_t (*init)() = nullptr;
  nvmlReturn_t (*count)(unsigned int*) = nullptr;
  nvmlReturn_t (*device)(unsigned int, nvmlDevice_t*) = nullptr;
  nvmlReturn_t (*uuid)(nvmlDevice_t, char*, unsigned int) = nullptr;
  nvmlReturn_t (*memory)(nvmlDevice_t, nvmlMemory_t*) = nullptr;
  nvmlReturn_t (*processes)(nvmlDevice_t, unsigned int*, nvmlProcessInfo_t*) = nullptr;
  // Null in an old library.
  nvmlReturn_t (*mig_mode)(nvmlDevice_t, unsigned int* now, unsigned int* pending) = nullptr;
  nvmlReturn_t (*compute_mode)(nvmlDevice_t, int*) = nullptr;
};

// Opened and started once for the life of the process; null where that fails.
const Nvml* TheNvml();

// Calls `look` for each card, with its uuid as FormatUuid prints it. False where NVML does not say
// how many cards there are.
bool ForEachDevice(const Nvml& nvml,
                   const std::function<void(const std::string& uuid, nvmlDevice_t device)>& look);

}  // namespace tandem::cuda
