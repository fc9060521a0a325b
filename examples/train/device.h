// Device: one CUDA context on a GPU, reached through the driver API like any other CUDA
// program does it. libcuda.so.1 is opened at run time, so building needs no CUDA.
//
// Threading: one thread.
// Errors: the driver's name and text of the error, with the call that had it.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/result.h"
#include "src/cuda/real_driver.h"

namespace train {

using tandem::Bytes;
using tandem::Error;
using tandem::Result;
using tandem::Status;

class Device {
 public:
  // Opens the GPU with this ordinal and loads the kernels in `ptx`.
  static Result<std::unique_ptr<Device>> Open(int ordinal, const char* ptx);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();  // gives back the context and all memory

  const std::string& name() const { return name_; }

  Result<CUdeviceptr> Allocate(Bytes size);
  Result<CUfunction> FindKernel(const char* name);

  // Runs `kernel` with at least `threads` threads, in blocks of kBlock. `parameters` point to the
  // arguments, which are read before this returns.
  static constexpr unsigned kBlock = 256;
  Status Launch(CUfunction kernel, unsigned threads, std::initializer_list<const void*> parameters);

  Status Clear(CUdeviceptr to, Bytes size);
  // These wait for everything before them.
  Status CopyIn(CUdeviceptr to, const void* from, Bytes size);
  Status CopyOut(void* to, CUdeviceptr from, Bytes size);

 private:
  explicit Device(tandem::cuda::RealDriver driver) : driver_(driver) {}
  Status Start(int ordinal, const char* ptx);

  tandem::cuda::RealDriver driver_;
  std::string name_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUstream stream_ = nullptr;
};

}  // namespace train
