// FormatUuid: the one way Tandem writes a GPU's uuid: "GPU-" and the 16 bytes in hexadecimal,
// grouped 4-2-2-2-6, as the driver's own tools print it.
#pragma once

#include <string>

#include "src/cuda/real_driver.h"

namespace tandem::cuda {

std::string FormatUuid(const CUuuid& uuid);

// Of a device; of zeros where the driver does not tell it.
CUuuid UuidOf(const RealDriver& real, CUdevice device);

}  // namespace tandem::cuda
