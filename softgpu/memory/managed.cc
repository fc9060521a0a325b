#include "softgpu/memory/managed.h"

#include <iterator>

#include "softgpu/card/address_space.h"
#include "src/base/around.h"

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

ManagedAdvice ManagedBlock::AdviceFor(Range range) {
  MutexLock lock(mutex_);
  auto part = LastAt(parts_, range.begin);
  ManagedAdvice common = part->second;
  while (++part != parts_.end() && part->first < range.end()) KeepCommon(common, part->second);
  return common;
}

// The part that begins there; it takes over what was said of the one around it.
ManagedBlock::Parts::iterator ManagedBlock::SplitAt(uint64_t offset) {
  const auto around = LastAt(parts_, offset);
  return parts_.try_emplace(offset, around->second).first;
}

template <typename Change>
void ManagedBlock::ChangeParts(Range range, Change change) {
  MutexLock lock(mutex_);
  const uint64_t page = HostPageBytes();
  const auto first = SplitAt(range.begin / page * page);
  const auto end = SplitAt((range.end() + page - 1) / page * page);
  for (auto part = first; part != end; ++part) change(part->second);
  // Neighbours that are alike become one; only what changed, and what is beside it, can be.
  const auto beyond = std::next(end);
  for (auto part = first == parts_.begin() ? std::next(first) : first; part != beyond;) {
    part = part->second == std::prev(part)->second ? parts_.erase(part) : std::next(part);
  }
}

void ManagedBlock::Advise(Range range, CUmem_advise advice, CUdevice device) {
  ChangeParts(range, [&](ManagedAdvice& part) { Apply(part, advice, device); });
}

void ManagedBlock::NotePrefetch(Range range, CUdevice device) {
  ChangeParts(range, [&](ManagedAdvice& part) { part.prefetched = device; });
}

}  // namespace tandem::soft
