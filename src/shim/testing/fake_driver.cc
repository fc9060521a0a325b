#include "src/shim/testing/fake_driver.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "src/base/around.h"
#include "src/shim/driver/address_regions.h"
#include "src/shim/swap/fingerprint.h"

namespace tandem::shim {
namespace {

thread_local std::vector<CUcontext> pushed;

void* At(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

bool Inaccessible(CUdeviceptr address, size_t bytes) {
  return mmap(At(address), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

// As clean_check.h has it.
struct FingerprintInput {
  uint64_t address, units, blocks, unused;
};
constexpr size_t kFingerprintInputs = 8;

void TakeFingerprint(CUdeviceptr batch, const FingerprintKey& key, size_t chunk) {
  const auto* const inputs = static_cast<const FingerprintInput*>(At(batch));
  auto* const sums =
      static_cast<FingerprintSums*>(At(batch + kFingerprintInputs * sizeof(FingerprintInput)));
  const auto* const words = static_cast<const uint32_t*>(At(inputs[chunk].address));
  for (uint64_t block = 0; block < inputs[chunk].blocks; ++block) {
    sums[chunk * kFingerprintBlocks + block] =
        SumsOfBlock(key, words, inputs[chunk].units * kFingerprintUnit, block);
  }
}

}  // namespace

FakeDriver* FakeDriver::current = nullptr;

FakeDriver::FakeDriver(uint64_t card_bytes) : card_bytes_(card_bytes) {
  current = this;
  FillMemory();
  FillMappings();
  FillAccess();
  FillSharing();
  FillWork();
  FillContexts();
}

CUcontext FakeDriver::Current() {
  if (!pushed.empty()) return pushed.back();
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return std::strcmp(name, "tandem") == 0 ? nullptr : current->context();
}

FakeDriver::~FakeDriver() {
  for (const auto& [address, bytes] : reservations_) munmap(At(address), bytes);
  for (const auto& [handle, physical] : physical_) close(physical.fd);
  current = nullptr;
}

void FakeDriver::Drop(CUmemGenericAllocationHandle handle) {
  const auto found = physical_.find(handle);
  if (found->second.mappings != 0 || !found->second.released) return;
  close(found->second.fd);
  if (!found->second.imported) {
    (found->second.of_host ? host_used_ : used_) -= found->second.bytes;
  }
  physical_.erase(found);
}

void FakeDriver::FillMemory() {
  table_.cuMemAddressReserve = [](CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                                  unsigned long long) -> CUresult {
    MutexLock lock(current->mutex_);
    void* const begin = mmap(nullptr, bytes + alignment, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    current->reservations_.emplace(reinterpret_cast<uint64_t>(begin), bytes + alignment);
    *address = (reinterpret_cast<uint64_t>(begin) + alignment - 1) / alignment * alignment;
    return CUDA_SUCCESS;
  };
  table_.cuMemCreate = [](CUmemGenericAllocationHandle* handle, size_t bytes,
                          const CUmemAllocationProp* properties, unsigned long long) -> CUresult {
    MutexLock lock(current->mutex_);
    const bool of_host = properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    if (Due(&current->fail_create_)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!of_host && current->used_ + bytes > current->card_bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
    if (of_host && current->host_used_ + bytes > current->host_limit_) {
      ++current->host_refusals_;
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const int fd = memfd_create("fake", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    (of_host ? current->host_used_ : current->used_) += bytes;
    *handle = current->next_++;
    current->physical_.emplace(*handle, Physical{.fd = fd, .bytes = bytes, .of_host = of_host});
    return CUDA_SUCCESS;
  };
  table_.cuMemGetAllocationGranularity = [](size_t* bytes, const CUmemAllocationProp*,
                                            CUmemAllocationGranularity_flags) {
    *bytes = kGranule;
    return CUDA_SUCCESS;
  };
  table_.cuMemRelease = [](CUmemGenericAllocationHandle handle) -> CUresult {
    MutexLock lock(current->mutex_);
    const auto found = current->physical_.find(handle);
    if (found == current->physical_.end()) return CUDA_ERROR_INVALID_VALUE;
    found->second.released = true;
    current->Drop(handle);
    return CUDA_SUCCESS;
  };
}

void FakeDriver::FillMappings() {
  table_.cuMemMap = [](CUdeviceptr address, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long) -> CUresult {
    MutexLock lock(current->mutex_);
    if (Due(&current->fail_map_)) {
      current->fail_map_ = current->fail_maps_more_-- > 0 ? 1 : 0;
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const auto found = current->physical_.find(handle);
    if (found == current->physical_.end() || offset != 0 || found->second.bytes != bytes ||
        current->mappings_.count(address) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    ++found->second.mappings;
    current->mappings_[address] = handle;
    return CUDA_SUCCESS;
  };
}

void FakeDriver::FillAccess() {
  table_.cuMemSetAccess = [](CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                             size_t count) -> CUresult {
    MutexLock lock(current->mutex_);
    for (const CUmemAccessDesc& each : std::span(access, count)) {
      if (current->refused_users_.count(each.location.id) != 0) return CUDA_ERROR_INVALID_DEVICE;
    }
    for (const CUdeviceptr end = address + bytes; address < end;) {
      const auto mapping = current->mappings_.find(address);
      if (mapping == current->mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
      const Physical& physical = current->physical_.at(mapping->second);
      if (mmap(At(address), physical.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
               physical.fd, 0) == MAP_FAILED) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      std::set<CUdevice>& users = current->users_[address];
      for (const CUmemAccessDesc& each : std::span(access, count)) {
        users.erase(each.location.id);
        if (each.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) users.insert(each.location.id);
      }
      address += physical.bytes;
    }
    return CUDA_SUCCESS;
  };
  table_.cuMemUnmap = [](CUdeviceptr address, size_t bytes) -> CUresult {
    MutexLock lock(current->mutex_);
    const auto mapping = current->mappings_.find(address);
    if (mapping == current->mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
    const CUmemGenericAllocationHandle handle = mapping->second;
    if (current->physical_.at(handle).bytes != bytes || !Inaccessible(address, bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    current->mappings_.erase(mapping);
    current->users_.erase(address);
    --current->physical_.at(handle).mappings;
    current->Drop(handle);
    return CUDA_SUCCESS;
  };
  table_.cuPointerGetAttribute = [](void* data, CUpointer_attribute attribute,
                                    CUdeviceptr pointer) -> CUresult {
    MutexLock lock(current->mutex_);
    if (attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) return CUDA_ERROR_NOT_SUPPORTED;
    const auto size = [&](const auto& handle) { return current->physical_.at(handle).bytes; };
    const auto found = FindAround(current->mappings_, pointer, size);
    if (found == current->mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
    const Physical& physical = current->physical_.at(found->second);
    const unsigned int type = physical.of_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    std::memcpy(data, &type, sizeof(type));
    return CUDA_SUCCESS;
  };
  table_.cuMemHostRegister_v2 = [](void* begin, size_t bytes, unsigned int) {
    MutexLock lock(current->mutex_);
    current->registered_[begin] = bytes;
    return CUDA_SUCCESS;
  };
  table_.cuMemHostUnregister = [](void* begin) {
    MutexLock lock(current->mutex_);
    current->registered_.erase(begin);
    return CUDA_SUCCESS;
  };
}

void FakeDriver::FillSharing() {
  table_.cuMemAddressFree = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };  // at the end
  table_.cuMemExportToShareableHandle = [](void* fd, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType,
                                           unsigned long long) -> CUresult {
    MutexLock lock(current->mutex_);
    const auto found = current->physical_.find(handle);
    if (found == current->physical_.end()) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<int*>(fd) = dup(found->second.fd);
    return CUDA_SUCCESS;
  };
  table_.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* handle, void* fd,
                                             CUmemAllocationHandleType) -> CUresult {
    MutexLock lock(current->mutex_);
    const int own = dup(static_cast<int>(reinterpret_cast<intptr_t>(fd)));
    const off_t bytes = lseek(own, 0, SEEK_END);
    if (bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
    *handle = current->next_++;
    current->physical_.emplace(
        *handle, Physical{.fd = own, .bytes = static_cast<uint64_t>(bytes), .imported = true});
    return CUDA_SUCCESS;
  };
  table_.cuMemcpyDtoDAsync_v2 = [](CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
    std::function<void()> during;
    {
      MutexLock lock(current->mutex_);
      during = current->during_move_;
    }
    if (during) during();
    return current->Copy(At(to), At(from), bytes);
  };
}

CUresult FakeDriver::Health() const {
  if (destroyed_.count(Current()) != 0) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const bool broken = broken_.count(Current()) != 0;
  return broken ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

CUresult FakeDriver::Copy(void* to, const void* from, size_t bytes) {
  {
    MutexLock lock(mutex_);
    if (Due(&fail_copy_)) return copy_error_;
    if (const CUresult health = Health(); health != CUDA_SUCCESS) return health;
    ++copies_;
    if (hold_copies_) {
      held_copies_.push_back({to, from, bytes});
      return CUDA_SUCCESS;
    }
  }
  std::memcpy(to, from, bytes);
  return CUDA_SUCCESS;
}

void FakeDriver::PerformCopies(size_t until) {
  for (; performed_ < until && !held_copies_.empty(); ++performed_) {
    const HeldCopy& copy = held_copies_.front();
    std::memcpy(copy.to, copy.from, copy.bytes);
    held_copies_.pop_front();
  }
}

void FakeDriver::FillWork() {
  table_.cuMemcpyDtoHAsync_v2 = [](void* to, CUdeviceptr from, size_t bytes, CUstream) {
    return current->Copy(to, At(from), bytes);
  };
  table_.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr to, const void* from, size_t bytes, CUstream) {
    return current->Copy(At(to), from, bytes);
  };
  const auto make_stream = [](CUstream* stream, unsigned int) {
    MutexLock lock(current->mutex_);
    *stream = reinterpret_cast<CUstream>(0x1000 + current->next_++);
    return CUDA_SUCCESS;
  };
  table_.cuStreamCreate = make_stream;
  table_.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
  table_.cuStreamSynchronize = [](CUstream) {
    MutexLock lock(current->mutex_);
    current->PerformCopies(SIZE_MAX);
    return CUDA_SUCCESS;
  };
  table_.cuStreamQuery = [](CUstream) {
    MutexLock lock(current->mutex_);
    return current->held_copies_.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  table_.cuStreamGetCtx = [](CUstream, CUcontext* context) {
    *context = current->context();
    return CUDA_SUCCESS;
  };
  table_.cuEventCreate = [](CUevent* event, unsigned int) {
    MutexLock lock(current->mutex_);
    if (const CUresult health = current->Health(); health != CUDA_SUCCESS) return health;
    *event = reinterpret_cast<CUevent>(0x1000 + current->next_++);
    ++current->events_;
    return CUDA_SUCCESS;
  };
  table_.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
  table_.cuEventRecord = [](CUevent event, CUstream stream) {
    MutexLock lock(current->mutex_);
    current->copies_before_[event] = current->performed_ + current->held_copies_.size();
    if (stream == nullptr) ++current->legacy_records_;
    if (current->capturing_) ++current->captured_records_;
    return current->Health();
  };
  table_.cuStreamWaitEvent = [](CUstream, CUevent, unsigned int) {
    MutexLock lock(current->mutex_);
    ++current->waits_;
    return CUDA_SUCCESS;
  };
  table_.cuEventSynchronize = [](CUevent event) {
    MutexLock lock(current->mutex_);
    current->PerformCopies(current->copies_before_[event]);
    return CUDA_SUCCESS;
  };
  table_.cuEventQuery = [](CUevent event) {
    MutexLock lock(current->mutex_);
    ++current->queries_;
    const bool held = current->hold_events_ || current->performed_ < current->copies_before_[event];
    return held ? CUDA_ERROR_NOT_READY : current->Health();
  };
  table_.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    {
      MutexLock lock(current->mutex_);
      *status =
          current->capturing_ ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    }
    std::this_thread::yield();  // much may happen until the answer is looked at
    return CUDA_SUCCESS;
  };
}

void FakeDriver::RunKernels(float milliseconds) {
  kernel_ms_ = milliseconds;
  table_.cuModuleLoadData = [](CUmodule*, const void*) { return CUDA_SUCCESS; };
  table_.cuModuleGetFunction = [](CUfunction*, CUmodule, const char*) { return CUDA_SUCCESS; };
  table_.cuModuleUnload = [](CUmodule) { return CUDA_SUCCESS; };
  table_.cuMemHostAlloc = [](void** pointer, size_t bytes, unsigned int) {
    *pointer = ::operator new(bytes);
    return CUDA_SUCCESS;
  };
  table_.cuMemFreeHost = [](void* pointer) {
    ::operator delete(pointer);
    return CUDA_SUCCESS;
  };
  table_.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* there, void* pointer, unsigned int) {
    *there = reinterpret_cast<CUdeviceptr>(pointer);
    return CUDA_SUCCESS;
  };
  table_.cuEventElapsedTime = [](float* took, CUevent, CUevent) {
    *took = current->kernel_ms_;
    return CUDA_SUCCESS;
  };
  table_.cuLaunchKernel = [](CUfunction, unsigned int, unsigned int chunks, unsigned int,
                             unsigned int, unsigned int, unsigned int, unsigned int, CUstream,
                             void** parameters, void**) -> CUresult {
    MutexLock lock(current->mutex_);
    if (const CUresult health = current->Health(); health != CUDA_SUCCESS) return health;
    ++current->launches_;
    for (unsigned int chunk = 0; chunk < chunks; ++chunk) {
      TakeFingerprint(*static_cast<const CUdeviceptr*>(parameters[0]),
                      *static_cast<const FingerprintKey*>(parameters[1]), chunk);
    }
    return CUDA_SUCCESS;
  };
}

void FakeDriver::FillContexts() {
  table_.cuCtxPushCurrent_v2 = [](CUcontext context) {
    MutexLock lock(current->mutex_);
    current->pushed_destroyed_ += static_cast<int>(current->destroyed_.count(context));
    pushed.push_back(context);
    return CUDA_SUCCESS;
  };
  table_.cuCtxPopCurrent_v2 = [](CUcontext* context) {
    *context = pushed.back();
    pushed.pop_back();
    return CUDA_SUCCESS;
  };
  table_.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    *value = 1;
    return CUDA_SUCCESS;
  };
  table_.cuDeviceGet = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  // It tells the device of a destroyed context, too.
  table_.cuCtxGetDevice = [](CUdevice* device) -> CUresult {
    MutexLock lock(current->mutex_);
    const auto placed = current->devices_.find(Current());
    *device = placed == current->devices_.end() ? 0 : placed->second;
    return CUDA_SUCCESS;
  };
  table_.cuCtxGetCurrent = [](CUcontext* context) {
    *context = Current();
    return CUDA_SUCCESS;
  };
  table_.cuCtxSynchronize = []() {
    MutexLock lock(current->mutex_);
    ++current->context_waits_;
    return current->Health();
  };
}

}  // namespace tandem::shim
