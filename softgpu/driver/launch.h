// Launch: from the arguments of a launch to a task in a stream; for every call that runs kernels.
//
// Threading: any thread.
#pragma once

#include <memory>
#include <vector>

#include "softgpu/driver/driver.h"
#include "softgpu/driver/submit.h"

namespace tandem::soft {

// The function of a handle. A kernel of a library stands for its function in `context`, or, where
// that is null, in the current one.
CUresult FindFunction(CUfunction handle, std::shared_ptr<Function>* function,
                      std::shared_ptr<Context> context = nullptr);

// A kernel's attributes, with this dynamic shared memory allowed to it.
CUresult AttributeOf(const ptx::Kernel& kernel, uint32_t max_dynamic_shared,
                     CUfunction_attribute attribute, int* value);

// PrepareLaunch for parameters that lie in a buffer already; a short one is filled up with zeros.
CUresult PrepareLaunch(const Function& function, const LaunchShape& shape,
                       const std::vector<uint8_t>& parameters, ptx::Launch* launch);

// Makes a prepared launch a cooperative one, if its blocks fit together.
CUresult MakeCooperative(const Function& function, ptx::Launch* launch);

// Where a launch goes: the stream, its context, and the function, which is of that context.
struct LaunchPlace {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  KernelWork work;  // but for the launch itself
};
CUresult FindPlace(CUfunction function, CUstream stream, LaunchPlace* place);

}  // namespace tandem::soft
