#include "softgpu/memory/host_memory.h"

#include <sys/mman.h>

#include <iterator>

#include "softgpu/memory/handle_table.h"
#include "src/base/around.h"

namespace tandem::soft {
namespace {

// Whether the host's kernel knows this advice, which it says before it looks at the range: here one
// of no bytes, so that nothing is done.
bool KnowsAdvice(int advice) {
  return madvise(nullptr, 0, advice) == 0;
}

// Page-locking brings all of it into memory, and so tells whether it is there and may be used so. A
// kernel of the host that does not know how (before 5.14) is asked whether it is there at all.
bool MakeResident(uint64_t address, uint64_t bytes, bool write) {
  const uint64_t page = HostPageBytes();
  const uint64_t begin = address / page * page, end = (address + bytes + page - 1) / page * page;
  void* const first = reinterpret_cast<void*>(begin);
  const int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (KnowsAdvice(advice)) return madvise(first, end - begin, advice) == 0;
  return msync(first, end - begin, MS_ASYNC) == 0;
}

}  // namespace

CUresult HostMemory::Allocate(Owner owner, uint64_t bytes, unsigned int flags, void** pointer) {
  if (bytes > space_->size()) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t size = RoundToPages(bytes);
  const uint64_t address = space_->Reserve(size);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!space_->MapHost(address, size)) {
    space_->Free(address, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  space_->SetReach(address, size, kEveryDevice);
  blocks_[address] = Block{Range{address, bytes}, flags, owner, false, NewHandle()};
  *pointer = reinterpret_cast<void*>(address);
  return CUDA_SUCCESS;
}

void HostMemory::Drop(Blocks::iterator block) {
  const Range range = block->second.range;
  if (block->second.registered) {
    space_->RemoveHost(range.begin);
  } else {
    space_->Unmap(range.begin, RoundToPages(range.size));
    space_->Free(range.begin, RoundToPages(range.size));
  }
  blocks_.erase(block);
}

CUresult HostMemory::Free(void* pointer) {
  const auto found = blocks_.find(AddressOf(pointer));
  if (found == blocks_.end() || found->second.registered) return CUDA_ERROR_INVALID_VALUE;
  Drop(found);
  return CUDA_SUCCESS;
}

CUresult HostMemory::Register(Owner owner, void* pointer, uint64_t bytes, unsigned int flags) {
  const uint64_t address = AddressOf(pointer);
  if (address + bytes < address) return CUDA_ERROR_INVALID_VALUE;
  const auto after = blocks_.lower_bound(address);
  if (after != blocks_.end() && after->first < address + bytes) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  if (after != blocks_.begin() && std::prev(after)->second.range.end() > address) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  if (space_->Contains(address) || !MakeResident(address, bytes, !read_only)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  space_->AddHost(address, bytes, read_only ? Access::kRead : Access::kReadWrite);
  blocks_[address] = Block{Range{address, bytes}, flags, owner, true, NewHandle()};
  return CUDA_SUCCESS;
}

CUresult HostMemory::Unregister(void* pointer) {
  const auto found = blocks_.find(AddressOf(pointer));
  if (found == blocks_.end() || !found->second.registered) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  Drop(found);
  return CUDA_SUCCESS;
}

void HostMemory::FreeAll(Owner owner) {
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    if (block->second.owner == owner) Drop(block);
    block = next;
  }
}

std::optional<HostMemory::Block> HostMemory::Find(uint64_t address) const {
  const auto found =
      FindAround(blocks_, address, [](const Block& block) { return block.range.size; });
  if (found == blocks_.end()) return std::nullopt;
  return found->second;
}

}  // namespace tandem::soft
