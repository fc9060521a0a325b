// From a checked call to a task in a stream: shared by the entry points that copy and fill.
//
// Threading: any thread.
#pragma once

#include "src/cuda/driver_types.h"
#include "src/softgpu/work.h"

namespace tandem::soft {

// How a call stands to its stream.
enum class Blocking {
  kNo,   // an ...Async call
  kYes,  // on the default stream, until the host may use what was copied
};

// Checks both sides against live memory and submits the copy. Copies from pageable memory are
// staged if small; otherwise, as to pageable memory, the call waits.
CUresult SubmitCopy(CUstream stream, Blocking blocking, const Copy& copy, bool to_device,
                    bool from_device);

// Not waited for, as the driver does not.
CUresult SubmitFill(CUstream stream, const Fill& fill);

}  // namespace tandem::soft
