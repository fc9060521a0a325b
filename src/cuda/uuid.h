// FormatUuid: the one way Tandem writes a GPU's uuid: "GPU-" and the 16 bytes in hexadecimal,
// grouped 4-2-2-2-6, as the driver's own tools print it.
#pragma once

#include <string>

#include "src/cuda/driver_types.h"

namespace tandem::cuda {

std::string FormatUuid(const CUuuid& uuid);

}  // namespace tandem::cuda
