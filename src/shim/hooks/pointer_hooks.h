// What the program has said of its memory by cuPointerSetAttribute.
//
// Threading: any thread.
#pragma once

#include "src/cuda/driver_types.h"

namespace tandem::shim {

// Whether calls that copy or fill that memory are to return when it is done, also where the driver
// would let them return before (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS).
bool IsSynchronous(CUdeviceptr pointer);

}  // namespace tandem::shim
