#include "device.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

namespace train {
namespace {

using tandem::ErrorCode;

Error DriverError(const std::string& call, CUresult error) {
  const char* name = tandem::cuda::ErrorName(error);
  const char* text = tandem::cuda::ErrorText(error);
  const std::string code = "CUDA error " + std::to_string(error);
  return Error{ErrorCode::kFailed, call + ": " + (name != nullptr ? name : code) +
                                       (text != nullptr ? std::string(": ") + text : "")};
}

// Calls `function` of the driver; `call` says which it is.
template <typename... P, typename... A>
Status Call(const std::string& call, CUresult (*function)(P...), A... arguments) {
  if (function == nullptr) return Error{ErrorCode::kFailed, "libcuda.so.1 has no " + call};
  const CUresult error = function(arguments...);
  if (error != CUDA_SUCCESS) return DriverError(call, error);
  return {};
}

}  // namespace

Result<std::unique_ptr<Device>> Device::Open(int ordinal, const char* ptx) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    return Error{ErrorCode::kFailed, "no CUDA driver here: " + std::string(dlerror()) +
                                         "; `tandem run` brings a software GPU along"};
  }
  std::unique_ptr<Device> device(new Device(tandem::cuda::LoadRealDriver(
      library, [](void* handle, const char* symbol) { return dlsym(handle, symbol); })));
  TRY(device->Start(ordinal, ptx));
  return device;
}

Status Device::Start(int ordinal, const char* ptx) {
  TRY(Call("cuInit", driver_.cuInit, 0U));
  CUdevice device = 0;
  TRY(Call("cuDeviceGet(" + std::to_string(ordinal) + ")", driver_.cuDeviceGet, &device, ordinal));
  std::array<char, 128> name{};
  TRY(Call("cuDeviceGetName", driver_.cuDeviceGetName, name.data(), static_cast<int>(name.size()),
           device));
  name_ = name.data();
  TRY(Call("cuCtxCreate", driver_.cuCtxCreate_v2, &context_, 0U, device));
  TRY(Call("cuModuleLoadData", driver_.cuModuleLoadData, &module_, ptx));
  return Call("cuStreamCreate", driver_.cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
}

Device::~Device() {
  // Takes the stream, the module and all memory along.
  if (context_ != nullptr) driver_.cuCtxDestroy_v2(context_);
}

Result<CUdeviceptr> Device::Allocate(Bytes size) {
  CUdeviceptr pointer = 0;
  TRY(Call("cuMemAlloc(" + tandem::FormatBytes(size) + ")", driver_.cuMemAlloc_v2, &pointer,
           size.count));
  return pointer;
}

Result<CUfunction> Device::FindKernel(const char* name) {
  CUfunction kernel = nullptr;
  TRY(Call(std::string("cuModuleGetFunction(") + name + ")", driver_.cuModuleGetFunction, &kernel,
           module_, name));
  return kernel;
}

Status Device::Launch(CUfunction kernel, unsigned threads,
                      std::initializer_list<const void*> parameters) {
  std::vector<void*> pointers;
  for (const void* parameter : parameters) pointers.push_back(const_cast<void*>(parameter));
  const unsigned blocks = (threads + kBlock - 1) / kBlock;
  return Call("cuLaunchKernel", driver_.cuLaunchKernel, kernel, blocks, 1U, 1U, kBlock, 1U, 1U, 0U,
              stream_, pointers.data(), static_cast<void**>(nullptr));
}

Status Device::Clear(CUdeviceptr to, Bytes size) {
  return Call("cuMemsetD8Async", driver_.cuMemsetD8Async, to, static_cast<unsigned char>(0),
              size.count, stream_);
}

Status Device::CopyIn(CUdeviceptr to, const void* from, Bytes size) {
  TRY(Call("cuMemcpyHtoDAsync", driver_.cuMemcpyHtoDAsync_v2, to, from, size.count, stream_));
  return Call("cuStreamSynchronize", driver_.cuStreamSynchronize, stream_);
}

Status Device::CopyOut(void* to, CUdeviceptr from, Bytes size) {
  TRY(Call("cuMemcpyDtoHAsync", driver_.cuMemcpyDtoHAsync_v2, to, from, size.count, stream_));
  return Call("cuStreamSynchronize", driver_.cuStreamSynchronize, stream_);
}

}  // namespace train
