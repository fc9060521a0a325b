#include "src/softgpu/managed.h"

namespace tandem::soft {

void ManagedMemory::Add(uint64_t number) {
  MutexLock lock(mutex_);
  blocks_[number] = {};
}

bool ManagedMemory::Has(uint64_t number) {
  MutexLock lock(mutex_);
  return blocks_.contains(number);
}

ManagedAdvice ManagedMemory::AdviceFor(uint64_t number) {
  MutexLock lock(mutex_);
  const auto found = blocks_.find(number);
  return found == blocks_.end() ? ManagedAdvice() : found->second;
}

void ManagedMemory::Advise(uint64_t number, CUmem_advise advice, CUdevice device) {
  MutexLock lock(mutex_);
  const auto found = blocks_.find(number);
  if (found == blocks_.end()) return;
  ManagedAdvice& block = found->second;
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      block.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
      return;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      block.preferred = device;
      return;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      block.preferred = CU_DEVICE_INVALID;
      return;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
      block.accessed_by.insert(device);
      return;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      block.accessed_by.erase(device);
      return;
  }
}

void ManagedMemory::NotePrefetch(uint64_t number, CUdevice device) {
  MutexLock lock(mutex_);
  const auto found = blocks_.find(number);
  if (found != blocks_.end()) found->second.prefetched = device;
}

}  // namespace tandem::soft
