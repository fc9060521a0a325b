// Launch: from the arguments of a launch to a task in a stream; for every call that runs kernels.
//
// Threading: any thread.
#pragma once

#include <memory>
#include <vector>

#include "src/softgpu/driver.h"
#include "src/softgpu/ptx/execute.h"

namespace tandem::soft {

struct LaunchShape {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  bool cooperative = false;  // all blocks resident together, so that they may wait for each other
};

// The function of a handle. A kernel of a library stands for its function in the current context.
CUresult FindFunction(CUfunction handle, std::shared_ptr<Function>* function);

// Checks the shape and reads the parameters, given as pointers or as one buffer.
CUresult MakeLaunch(const Function& function, const LaunchShape& shape, void** parameters,
                    void** extra, ptx::Launch* launch);
// The same for parameters that lie in a buffer already; a short one is filled up with zeros.
CUresult MakeLaunch(const Function& function, const LaunchShape& shape,
                    const std::vector<uint8_t>& parameters, ptx::Launch* launch);

// The task that runs it in `context`, and keeps the module's code until it has.
Task TaskOf(const std::shared_ptr<Context>& context, const Function& function, ptx::Launch launch);

// All of it: the current context, the function, the stream, and off it goes.
CUresult SubmitLaunch(CUfunction function, const LaunchShape& shape, CUstream stream,
                      void** parameters, void** extra);

}  // namespace tandem::soft
