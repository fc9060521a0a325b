// Pool, the part that reaches other processes.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "softgpu/memory/handle_table.h"
#include "softgpu/memory/pool.h"

namespace tandem::soft {
namespace {

constexpr uint64_t kPoolMagic = 0x5254'5050'4d44'4e54;  // "TNDMPPTR"

// Where a block lies in the file of its pool.
struct Place {
  uint64_t magic = kPoolMagic;
  uint64_t inode = 0;  // of the file
  uint64_t offset = 0;
  uint64_t size = 0;  // as asked for
};
static_assert(sizeof(Place) <= sizeof(CUmemPoolPtrExportData));

}  // namespace

bool Pool::MakeShareable() {
  auto store =
      PhysicalStore::Create(&device->shared(), device->uuid(), ShareableMemory::Use::kPool);
  if (!store.ok()) return false;
  PhysicalStore* const memory = store.value().get();
  own_ = std::make_unique<OwnMemory>(
      OwnMemory{std::move(store).value(), Heap(device->space(), memory, device->ordinal())});
  return true;
}

CUresult Pool::Export(int* fd) const {
  if (own_ == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int duplicate = own_->store->memory().Duplicate();
  if (duplicate < 0) return CUDA_ERROR_OUT_OF_MEMORY;  // the one documented for such
  *fd = duplicate;
  return CUDA_SUCCESS;
}

CUresult Pool::ExportPointer(uint64_t address, CUmemPoolPtrExportData* data) const {
  const auto block = Find(address);
  if (own_ == nullptr || !block) return CUDA_ERROR_INVALID_VALUE;
  const auto slab = own_->heap.BackingOf(address);
  if (!slab || slab->pieces->size() != 1) std::abort();  // invariant 3
  Place place;
  place.inode = own_->store->memory().file().inode();
  place.offset = slab->pieces->front().begin + (block->range.begin - slab->begin);
  place.size = block->range.size;
  *data = {};
  std::memcpy(data, &place, sizeof(place));
  return CUDA_SUCCESS;
}

CUresult Pool::ImportPointer(const CUmemPoolPtrExportData& data, uint64_t* address) {
  Place place;
  std::memcpy(static_cast<void*>(&place), &data, sizeof(place));
  const ShareableMemory& memory = *imported_;
  if (place.magic != kPoolMagic || place.inode != memory.file().inode() || place.size == 0 ||
      place.offset % kBlockAlignment != 0 || place.offset >= memory.size() ||
      place.size > memory.size() - place.offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  AddressSpace& space = *device->space();
  const uint64_t first = place.offset / kPageBytes * kPageBytes;
  const uint64_t bytes = RoundToPages(place.offset + place.size) - first;
  const uint64_t mapped = space.Reserve(bytes);
  if (mapped == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!space.Map(mapped, memory.window() + first, bytes)) {
    space.Free(mapped, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  space.SetReach(mapped, bytes, ReachOf(device->ordinal(), id));
  *address = mapped + (place.offset - first);
  imports_[*address] = {mapped, bytes};
  NoteReserved(bytes);
  NoteBlock(*address, place.size);
  return CUDA_SUCCESS;
}

void Pool::DropImport(uint64_t address) {
  const auto import = imports_.find(address);
  if (import == imports_.end()) std::abort();
  const Range pages = import->second;
  AddressSpace& space = *device->space();
  space.Unmap(pages.begin, pages.size);
  space.Free(pages.begin, pages.size);
  reserved_ -= pages.size;
  imports_.erase(import);
}

}  // namespace tandem::soft
