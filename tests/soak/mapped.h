// Memory of a soak_worker that it makes and maps by itself (cuMemCreate, cuMemMap), as allocators
// do that grow in place.
#pragma once

#include <cstdint>

#include "src/cuda/real_driver.h"

namespace soak {

// Of the device, for this one to use. An error is of whichever call gave it, and leaves nothing.
CUresult AllocateMapped(const tandem::cuda::RealDriver& driver, CUdevice device, uint64_t bytes,
                        CUdeviceptr* address);
// REQUIRES: no work uses it any more; `bytes` as it was allocated.
CUresult FreeMapped(const tandem::cuda::RealDriver& driver, CUdeviceptr address, uint64_t bytes);

}  // namespace soak
