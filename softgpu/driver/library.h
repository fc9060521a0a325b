// Library: code that is loaded once and becomes a module in each context that asks for it, and
// LibraryKernel: one kernel of it, which stands for a function in every context.
//
// Threading: any thread; members say what guards them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "softgpu/ptx/program.h"
#include "src/base/mutex.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

struct Context;

struct Library {
  std::shared_ptr<const ptx::Program> program;

  Mutex mutex;
  std::map<uint64_t, CUmodule> modules GUARDED_BY(mutex);  // by context; a context's end leaves one
  std::map<std::string, CUkernel, std::less<>> kernels GUARDED_BY(mutex);
};

struct LibraryKernel {
  CUlibrary library_handle = nullptr;
  std::shared_ptr<Library> library;
  const ptx::Kernel* kernel = nullptr;  // in the library's program

  Mutex mutex;
  // What was set for all of its functions on a device that have no setting of their own.
  std::map<CUdevice, uint32_t> max_dynamic_shared GUARDED_BY(mutex);
};

// Puts a program into a context: its variables into VRAM, and a handle on it.
CUresult PlaceModule(const std::shared_ptr<Context>& context,
                     std::shared_ptr<const ptx::Program> program, bool of_library,
                     CUmodule* handle);
// The one handle of a module's kernel.
CUresult FunctionOf(CUmodule module, const char* name, CUfunction* handle);
// Ends a module and its functions, after all work of its context.
CUresult DropModule(CUmodule handle);

// The library's module in a context.
CUresult ModuleOf(Library& library, const std::shared_ptr<Context>& context, CUmodule* handle);
// The most dynamic shared memory of a block: what a function begins with, and whether it may be so.
uint32_t DefaultDynamicShared(const ptx::Kernel& kernel);
bool MayHaveDynamicShared(const ptx::Kernel& kernel, int bytes);
void SetDynamicShared(LibraryKernel& kernel, CUdevice device, uint32_t bytes);

// The kernel's function in a context.
CUresult FunctionOf(LibraryKernel& kernel, const std::shared_ptr<Context>& context,
                    CUfunction* handle);

}  // namespace tandem::soft
