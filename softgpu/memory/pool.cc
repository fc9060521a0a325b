#include "softgpu/memory/pool.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "softgpu/memory/handle_table.h"
#include "src/base/around.h"

namespace tandem::soft {

uint64_t Pool::Allocate(const std::shared_ptr<Stream>& stream, uint64_t bytes,
                        std::vector<Dependency>* after) {
  if (bytes > device->shared().total().count) return 0;
  const uint64_t size = RoundToBlock(bytes);
  if (settings.opportunistic) Harvest();
  uint64_t address = TakeFree(size);
  if (address == 0) address = TakeRetired(stream, size, false, after);
  if (address == 0 && Grow(size)) address = TakeFree(size);
  if (address == 0 && settings.internal_dependencies) {
    address = TakeRetired(stream, size, true, after);
  }
  if (address == 0) return 0;
  NoteBlock(address, bytes);
  return address;
}

void Pool::NoteBlock(uint64_t address, uint64_t bytes) {
  blocks_[address] = Block{{address, bytes}, NewHandle()};
  used_ += RoundToBlock(bytes);
  used_high_ = std::max(used_high_, used_);
}

void Pool::NoteReserved(uint64_t bytes) {
  reserved_ += bytes;
  reserved_high_ = std::max(reserved_high_, reserved_);
}

uint64_t Pool::TakeFree(uint64_t size) {
  for (auto& [address, slab] : slabs_) {
    if (const auto taken = slab.free.Take(size, kBlockAlignment)) {
      slab.busy += size;
      return *taken;
    }
  }
  return 0;
}

// From what `stream` itself has freed, or, with `follow_events`, waits for already; `any`: from
// anything, at the price of a new dependency.
uint64_t Pool::TakeRetired(const std::shared_ptr<Stream>& stream, uint64_t size, bool any,
                           std::vector<Dependency>* after) {
  for (auto retired = retired_.begin(); retired != retired_.end(); ++retired) {
    if (retired->range.size < size) continue;
    const bool ordered = retired->freed.stream == stream ||
                         (settings.follow_events && scheduler_->Follows(stream, retired->freed));
    if (!ordered && !any) continue;
    if (!ordered) after->push_back(retired->freed);
    const uint64_t address = retired->range.begin;
    retired->range.begin += size;
    retired->range.size -= size;
    if (retired->range.size == 0) retired_.erase(retired);
    return address;
  }
  return 0;
}

bool Pool::Grow(uint64_t size) {
  const uint64_t bytes = RoundToPages(size);
  if (max_bytes_ != 0 && reserved_ + bytes > max_bytes_) return false;
  const uint64_t address = heap().Allocate(id, bytes);
  if (address == 0) return false;
  slabs_.emplace(address, Slab{bytes, 0, RangeAllocator(address, bytes)});
  NoteReserved(bytes);
  return true;
}

Pool::Slab& Pool::SlabOf(uint64_t address) {
  return LastAt(slabs_, address)->second;
}

std::optional<Pool::Block> Pool::Find(uint64_t address) const {
  const auto found =
      FindAround(blocks_, address, [](const Block& block) { return block.range.size; });
  if (found == blocks_.end()) return std::nullopt;
  return found->second;
}

Range Pool::Detach(uint64_t address) {
  const auto block = blocks_.find(address);
  if (block == blocks_.end()) std::abort();
  const Range range{address, RoundToBlock(block->second.range.size)};
  blocks_.erase(block);
  used_ -= range.size;
  detached_ += 1;
  return range;
}

void Pool::Retire(Range range, Dependency freed) {
  detached_ -= 1;
  retired_.push_back({range, std::move(freed)});
}

void Pool::Release(Range range) {
  detached_ -= 1;
  Give(range);
}

void Pool::Give(Range range) {
  if (imported()) return DropImport(range.begin);
  Slab& slab = SlabOf(range.begin);
  if (!slab.free.Give(range.begin, range.size)) std::abort();
  slab.busy -= range.size;
}

void Pool::Harvest() {
  std::erase_if(retired_, [this](const Retired& retired) {
    if (!scheduler_->Done({retired.freed})) return false;
    Give(retired.range);
    return true;
  });
}

void Pool::Trim(uint64_t keep) {
  if (apart()) return;
  for (auto slab = slabs_.begin(); slab != slabs_.end() && reserved_ > keep;) {
    const auto next = std::next(slab);
    if (slab->second.busy == 0 && reserved_ - slab->second.size >= keep) {
      reserved_ -= slab->second.size;
      if (!device->heap().Free(slab->first)) std::abort();
      slabs_.erase(slab);
    }
    slab = next;
  }
}

Pool* Pools::Create(DeviceVram* device, uint64_t max_bytes) {
  const uint64_t id = NewHandle();
  return (pools_[id] = std::make_unique<Pool>(id, device, max_bytes, scheduler_)).get();
}

CUresult Pools::Destroy(Pool* pool) {
  if (DefaultOf(pool->device) == pool) return CUDA_ERROR_INVALID_VALUE;
  if (CurrentOf(pool->device) == pool) current_.erase(pool->device);
  pool->doomed = true;
  DropDoomed();
  return CUDA_SUCCESS;
}

bool Pools::shares() const {
  return std::any_of(pools_.begin(), pools_.end(),
                     [](const auto& entry) { return entry.second->apart(); });
}

Pool* Pools::Find(CUmemoryPool handle) {
  const auto found = pools_.find(reinterpret_cast<uint64_t>(handle));
  return found == pools_.end() || found->second->doomed ? nullptr : found->second.get();
}

Pool* Pools::OfOwner(uint64_t owner) {
  const auto found = pools_.find(owner);
  return found == pools_.end() ? nullptr : found->second.get();
}

const Pool* Pools::Around(uint64_t address) const {
  for (const auto& [id, pool] : pools_) {
    if (pool->apart() && pool->Find(address)) return pool.get();
  }
  return nullptr;
}

Pool* Pools::DefaultOf(DeviceVram* device) {
  uint64_t& id = default_[device];
  if (id == 0) id = Create(device, 0)->id;
  return pools_.at(id).get();
}

Pool* Pools::CurrentOf(DeviceVram* device) {
  const auto current = current_.find(device);
  return current == current_.end() ? DefaultOf(device) : pools_.at(current->second).get();
}

void Pools::OnSynchronised() {
  for (const auto& [id, pool] : pools_) {
    if (pool->reserved() == 0) continue;
    pool->Harvest();
    pool->Trim(pool->settings.release_threshold);
  }
  DropDoomed();
}

void Pools::ReleaseUnused(const DeviceVram* device) {
  for (const auto& [id, pool] : pools_) {
    if (pool->device != device) continue;
    pool->Harvest();
    pool->Trim(0);
  }
}

void Pools::DropDoomed() {
  std::erase_if(pools_, [](const auto& entry) {
    Pool& pool = *entry.second;
    if (!pool.doomed) return false;
    pool.Harvest();
    if (!pool.empty()) return false;
    pool.Close();
    pool.device->space()->TakeAll(pool.id);
    return true;
  });
}

}  // namespace tandem::soft
