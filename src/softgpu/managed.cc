#include "src/softgpu/managed.h"

#include <unistd.h>

#include <iterator>

namespace tandem::soft {
namespace {

// What is said of both; what differs is not said.
void KeepCommon(ManagedAdvice& common, const ManagedAdvice& other) {
  common.read_mostly = common.read_mostly && other.read_mostly;
  if (common.preferred != other.preferred) common.preferred = CU_DEVICE_INVALID;
  if (common.prefetched != other.prefetched) common.prefetched = CU_DEVICE_INVALID;
  std::erase_if(common.accessed_by,
                [&](CUdevice device) { return !other.accessed_by.contains(device); });
}

void Apply(ManagedAdvice& part, CUmem_advise advice, CUdevice device) {
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      part.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
      return;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      part.preferred = device;
      return;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      part.preferred = CU_DEVICE_INVALID;
      return;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
      part.accessed_by.insert(device);
      return;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      part.accessed_by.erase(device);
      return;
  }
}

}  // namespace

void ManagedMemory::Add(uint64_t number) {
  MutexLock lock(mutex_);
  blocks_[number] = {{0, {}}};
}

bool ManagedMemory::Has(uint64_t number) {
  MutexLock lock(mutex_);
  return blocks_.contains(number);
}

ManagedAdvice ManagedMemory::AdviceFor(uint64_t number, Range range) {
  MutexLock lock(mutex_);
  const auto found = blocks_.find(number);
  if (found == blocks_.end()) return {};
  const Parts& parts = found->second;
  auto part = std::prev(parts.upper_bound(range.begin));
  ManagedAdvice common = part->second;
  while (++part != parts.end() && part->first < range.end()) KeepCommon(common, part->second);
  return common;
}

// The part that begins there; it takes over what was said of the one around it.
ManagedMemory::Parts::iterator ManagedMemory::SplitAt(Parts& parts, uint64_t offset) {
  const auto around = std::prev(parts.upper_bound(offset));
  return parts.try_emplace(offset, around->second).first;
}

template <typename Change>
void ManagedMemory::ChangeParts(uint64_t number, Range range, Change change) {
  MutexLock lock(mutex_);
  const auto found = blocks_.find(number);
  if (found == blocks_.end()) return;
  Parts& parts = found->second;
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  auto part = SplitAt(parts, range.begin / page * page);
  const auto end = SplitAt(parts, (range.end() + page - 1) / page * page);
  for (; part != end; ++part) change(part->second);
  // Neighbours that are alike become one.
  for (part = std::next(parts.begin()); part != parts.end();) {
    part = part->second == std::prev(part)->second ? parts.erase(part) : std::next(part);
  }
}

void ManagedMemory::Advise(uint64_t number, Range range, CUmem_advise advice, CUdevice device) {
  ChangeParts(number, range, [&](ManagedAdvice& part) { Apply(part, advice, device); });
}

void ManagedMemory::NotePrefetch(uint64_t number, Range range, CUdevice device) {
  ChangeParts(number, range, [&](ManagedAdvice& part) { part.prefetched = device; });
}

}  // namespace tandem::soft
