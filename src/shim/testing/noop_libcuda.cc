// A libcuda.so.1 that does nothing, at once: one device whose memory is addresses without backing,
// and work that is done before it begins. So the extra cost of a call under Tandem is Tandem's own.
// It has what a program on the driver API needs to launch and to allocate, and what
// libtandem.so needs to share it.
#include <atomic>
#include <cstring>

#include "src/cuda/driver_api.h"

namespace {

constexpr size_t kGranule = 2 << 20;
constexpr size_t kCard = size_t{64} << 30;
constexpr CUdeviceptr kFirstAddress = CUdeviceptr{1} << 44;

char context_object, object;
std::atomic<CUdeviceptr> next_address{kFirstAddress};
std::atomic<CUmemGenericAllocationHandle> next_handle{1};
thread_local CUcontext current = nullptr;

CUcontext TheContext() {
  return reinterpret_cast<CUcontext>(&context_object);
}

// As far from each other as allocations of a driver are.
CUdeviceptr TakeAddresses(size_t bytes, size_t alignment) {
  const size_t granules = (bytes + alignment + kGranule - 1) / kGranule;
  const CUdeviceptr address = next_address.fetch_add(granules * kGranule);
  return alignment == 0 ? address : (address + alignment - 1) / alignment * alignment;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned int) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) noexcept {
  *version = 13000;
  return CUDA_SUCCESS;
}

// ---- The device and its context

CUresult cuDeviceGetCount(int* count) noexcept {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) noexcept {
  if (ordinal != 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) noexcept {
  std::strncpy(name, "nothing", static_cast<size_t>(length));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) noexcept {
  std::memset(uuid, 0, sizeof(*uuid));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) noexcept {
  *value = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) noexcept {
  *bytes = kCard;
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) noexcept {
  *free = *total = kCard;
  return CUDA_SUCCESS;
}
CUresult cuCtxCreate_v2(CUcontext* context, unsigned int, CUdevice) noexcept {
  *context = current = TheContext();
  return CUDA_SUCCESS;
}
CUresult cuCtxDestroy_v2(CUcontext) noexcept {
  current = nullptr;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) noexcept {
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) noexcept {
  *context = current;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) noexcept {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) noexcept {
  *context = current;
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() noexcept {
  return CUDA_SUCCESS;
}

// ---- Streams, events, work

CUresult cuStreamCreate(CUstream* stream, unsigned int) noexcept {
  *stream = reinterpret_cast<CUstream>(&object);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream, CUcontext* context) noexcept {
  *context = TheContext();
  return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) noexcept {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned int) noexcept {
  *event = reinterpret_cast<CUevent>(&object);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent, CUstream) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                        unsigned int, unsigned int, unsigned int, CUstream, void**,
                        void**) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, size_t, CUstream) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, size_t, CUstream) noexcept {
  return CUDA_SUCCESS;
}

// ---- Memory

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) noexcept {
  *pointer = TakeAddresses(bytes, 0);
  return CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) noexcept {
  *granularity = kGranule;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long) noexcept {
  *address = TakeAddresses(bytes, alignment);
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr, size_t) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                     unsigned long long) noexcept {
  *handle = next_handle.fetch_add(1);
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                  unsigned long long) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr, size_t) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuMemHostRegister_v2(void*, size_t, unsigned int) noexcept {
  return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void*) noexcept {
  return CUDA_SUCCESS;
}

}  // extern "C"
