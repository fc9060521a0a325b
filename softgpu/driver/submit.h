// From a checked call to a task in a stream: shared by the entry points that copy and fill.
//
// Threading: any thread.
#pragma once

#include <memory>
#include <optional>

#include "softgpu/driver/graph.h"
#include "softgpu/engine/work.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

// How a call stands to its stream.
enum class Blocking {
  kNo,   // an ...Async call
  kYes,  // on the default stream, until the host may use what was copied
};

// Puts work into a stream, or, where the stream is being captured, into its graph: then nothing is
// submitted, and there is nothing to wait for.
CUresult SubmitWork(const std::shared_ptr<Context>& context, const std::shared_ptr<Stream>& stream,
                    Work work, std::optional<Dependency>* submitted = nullptr);

// Whether both sides are live memory that may be used so.
CUresult CheckCopy(const Copy& copy, bool to_device, bool from_device);
CUresult CheckFill(const Fill& fill);

// What a launch of the function is: its shape checked, its parameters copied.
struct LaunchShape {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  bool cooperative = false;  // all blocks resident together, so that they may wait for each other
};
CUresult PrepareLaunch(const Function& function, const LaunchShape& shape, void** parameters,
                       void** extra, ptx::Launch* launch);

// Checks both sides against live memory and submits the copy. Where pageable memory is part of it
// the call waits to the end, so that the program may reuse its memory at once. (A driver may return
// as soon as it has read the source. Programs rely on more: ffmpeg uploads a frame in one context
// and reads it by a kernel of another, with nothing in between.)
CUresult SubmitCopy(CUstream stream, Blocking blocking, const CopyWork& work);
CUresult SubmitCopy(CUstream stream, Blocking blocking, const Copy& copy, bool to_device,
                    bool from_device);
// For sides that were checked, in a stream that was found.
CUresult SubmitChecked(const std::shared_ptr<Context>& context,
                       const std::shared_ptr<Stream>& stream, Blocking blocking,
                       const CopyWork& work);

// The copy that a program describes; whether the memory is there is not looked at. REQUIRES:
// Ready(), no extent is zero.
CUresult CopyWorkOf(const CUDA_MEMCPY3D& params, CopyWork* work);

// Not waited for, as the driver does not, unless the program wants it for that memory, or the host
// can read it.
CUresult SubmitFill(CUstream stream, Blocking blocking, const Fill& fill);

}  // namespace tandem::soft
