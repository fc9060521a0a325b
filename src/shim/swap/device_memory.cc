#include "src/shim/swap/device_memory.h"

#include <algorithm>
#include <limits>

#include "src/base/around.h"

namespace tandem::shim {
namespace {

// The order in which chunks leave: first those that need no copying, then those that turned out to
// need none, then unknown ones, so that they become known, and last modified ones.
int Reluctance(const Chunk& chunk) {
  if (!chunk.exposed) return 0;
  if (chunk.modified != 0) return 3;
  return chunk.host != nullptr && chunk.print.has_value() ? 1 : 2;
}

}  // namespace

uint64_t DeviceMemory::ExtentBytes(uint64_t bytes) {
  if (bytes < kLargeBlock) return kGranule;
  if (bytes > std::numeric_limits<uint64_t>::max() / 2) return 0;
  return RoundToGranules(bytes);
}

Block DeviceMemory::AddBlock(uint64_t bytes, const BlockMemory& memory) {
  const Block block{memory.address(), bytes, memory.extent->context, next_id_++};
  blocks_.emplace(block.address, Entry{block, memory});
  return block;
}

std::optional<Block> DeviceMemory::AllocateFromPage(uint64_t bytes, CUcontext context, bool* backed,
                                                    Slots slots) {
  if (bytes >= kLargeBlock) return std::nullopt;
  MutexLock lock(mutex_);
  const std::optional<BlockMemory> slot = pages_.Take(bytes, context, slots);
  if (!slot.has_value()) return std::nullopt;
  if (backed != nullptr) *backed = missing_ == 0;
  ++slot->extent->live;
  return AddBlock(bytes, *slot);
}

CUresult DeviceMemory::AddExtent(std::unique_ptr<Extent> extent, uint64_t chunk_bytes,
                                 Extent** added) {
  if (const CUresult result = regions_.Take(extent->bytes, &extent->address);
      result != CUDA_SUCCESS) {
    return result;
  }
  for (uint64_t offset = 0; offset < extent->bytes; offset += chunk_bytes) {
    Chunk chunk;
    chunk.address = extent->address + offset;
    chunk.bytes = std::min(chunk_bytes, extent->bytes - offset);
    extent->chunks.push_back(chunk);
  }
  need_ += extent->bytes;
  missing_ += extent->bytes;
  *added = extent.get();
  extents_.emplace(extent->address, std::move(extent));
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::AllocateExtent(uint64_t bytes, CUcontext context, Block* block) {
  auto extent = std::make_unique<Extent>();
  extent->bytes = ExtentBytes(bytes);
  extent->context = context;
  MutexLock lock(mutex_);
  Extent* added = nullptr;
  if (const CUresult result = AddExtent(std::move(extent), chunk_bytes_, &added);
      result != CUDA_SUCCESS) {
    return result;
  }
  *block = AddBlock(bytes, bytes < kLargeBlock ? pages_.Add(added, bytes) : BlockMemory{added, 0});
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::AllocateExtentFor(const CUmemAllocationProp& properties, uint64_t bytes,
                                         Extent** extent) {
  auto made = std::make_unique<Extent>();
  made->bytes = bytes;
  made->properties = properties;
  const bool whole = properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  MutexLock lock(mutex_);
  return AddExtent(std::move(made), whole ? bytes : chunk_bytes_, extent);
}

Bytes DeviceMemory::FreeExtent(Extent* extent) {
  MutexLock lock(mutex_);
  return Release({extent, 0});
}

void DeviceMemory::Pin(Extent* extent) {
  MutexLock lock(mutex_);
  Uncount(*extent);
  for (const Chunk& chunk : extent->chunks) {
    if (chunk.resident()) resident_ -= chunk.bytes;
    if (chunk.state == Chunk::State::kCold) cold_ -= chunk.bytes;
  }
  extent->pinned = true;
}

void DeviceMemory::Join(Extent* extent, CUmemGenericAllocationHandle handle) {
  Chunk whole;
  whole.address = extent->address;
  whole.bytes = extent->bytes;
  whole.state = Chunk::State::kHere;
  whole.handle = handle;
  whole.exposed = true;
  MutexLock lock(mutex_);
  extent->chunks.assign(1, whole);
}

DeviceMemory::Blocks::const_iterator DeviceMemory::Around(CUdeviceptr pointer) const {
  return FindAround(blocks_, pointer, [](const Entry& entry) { return entry.block.bytes; });
}

std::optional<Block> DeviceMemory::Find(CUdeviceptr pointer) const {
  MutexLock lock(mutex_);
  const auto entry = Around(pointer);
  if (entry == blocks_.end()) return std::nullopt;
  return entry->second.block;
}

std::optional<DeviceMemory::Home> DeviceMemory::HoldHome(CUdeviceptr pointer) {
  MutexLock lock(mutex_);
  const auto entry = Around(pointer);
  if (entry == blocks_.end()) return std::nullopt;
  Extent& extent = *entry->second.memory.extent;
  ++extent.live;
  return Home{entry->second.block, extent.address, extent.bytes};
}

Bytes DeviceMemory::LetGo(const Home& home) {
  MutexLock lock(mutex_);
  return Drop(extents_.at(home.extent).get());
}

// The extent has no owner any more, but is still on the card.
void DeviceMemory::Kill(Extent* extent) {
  if (!extent->lost && !extent->pinned) Uncount(*extent);
  extent->dead = true;
  const auto owner = extents_.find(extent->address);
  dead_.push_back(std::move(owner->second));
  has_dead_.store(true, std::memory_order_release);
  extents_.erase(owner);
}

Bytes DeviceMemory::Release(const BlockMemory& memory) {
  if (memory.extent->slots.bytes != 0 && !memory.extent->lost) pages_.Return(memory);
  return Drop(memory.extent);
}

Bytes DeviceMemory::Drop(Extent* extent) {
  if (--extent->live != 0) return Bytes();
  const Bytes bytes(extent->pinned ? 0 : extent->bytes);
  pages_.Close(extent);
  if (extent->slots.bytes == 0 || extent->lost || extent->pinned) {
    Kill(extent);
    return bytes;
  }
  return ReleasePages(pages_.Keep(extent));
}

Bytes DeviceMemory::ReleasePages(const std::vector<Extent*>& pages) {
  Bytes shrunk;
  for (Extent* const page : pages) {
    shrunk += Bytes(page->bytes);
    Kill(page);
  }
  return shrunk;
}

Bytes DeviceMemory::FreePages(size_t keep) {
  MutexLock lock(mutex_);
  return ReleasePages(pages_.TakeKept(keep));
}

Bytes DeviceMemory::FreeUntakenPages(bool* more) {
  MutexLock lock(mutex_);
  return ReleasePages(pages_.TakeUntaken(more));
}

Bytes DeviceMemory::ReleaseRetired(std::vector<BlockMemory>* retired) {
  Bytes shrunk;
  for (const BlockMemory& memory : std::exchange(*retired, {})) {
    retired_bytes_.fetch_sub(memory.bytes(), std::memory_order_relaxed);
    shrunk += Release(memory);
  }
  return shrunk;
}

void DeviceMemory::Uncount(const Extent& extent) {
  need_ -= extent.bytes;
  for (const Chunk& chunk : extent.chunks) {
    if (chunk.missing()) missing_ -= chunk.bytes;
    if (chunk.state == Chunk::State::kCold) needed_cold_ -= chunk.bytes;
  }
}

std::optional<Bytes> DeviceMemory::Free(CUdeviceptr pointer, uint64_t id, bool unused) {
  MutexLock lock(mutex_);
  const auto entry = blocks_.find(pointer);
  if (entry == blocks_.end() || entry->second.block.id != id) return std::nullopt;
  const BlockMemory memory = entry->second.memory;
  blocks_.erase(entry);
  if (unused) return Release(memory);
  retired_.push_back(memory);
  retired_bytes_.fetch_add(memory.bytes(), std::memory_order_relaxed);
  return Bytes();
}

std::optional<Bytes> DeviceMemory::FreeIn(CUcontext context, CUdeviceptr pointer) {
  MutexLock lock(mutex_);
  const auto entry = blocks_.find(pointer);
  if (entry == blocks_.end() || entry->second.block.context != context) return std::nullopt;
  const BlockMemory memory = entry->second.memory;
  blocks_.erase(entry);
  return Release(memory);
}

Bytes DeviceMemory::FreeContext(CUcontext context) {
  MutexLock lock(mutex_);
  std::vector<BlockMemory> its;
  std::erase_if(blocks_, [&](const auto& named) {
    const Entry& entry = named.second;
    if (entry.block.context != context) return false;
    its.push_back(entry.memory);
    return true;
  });
  Bytes shrunk;
  for (const BlockMemory& memory : its) shrunk += Release(memory);
  for (std::vector<BlockMemory>* retired : {&fenced_, &retired_}) {
    const auto of_others = std::partition(
        retired->begin(), retired->end(),
        [context](const BlockMemory& memory) { return memory.extent->context != context; });
    its.assign(of_others, retired->end());
    retired->erase(of_others, retired->end());
    shrunk += ReleaseRetired(&its);
  }
  return shrunk + ReleasePages(pages_.TakeKeptOf(context));
}

void DeviceMemory::Fence() {
  MutexLock lock(mutex_);
  fenced_.insert(fenced_.end(), retired_.begin(), retired_.end());
  retired_.clear();
}

Bytes DeviceMemory::ReleaseFenced() {
  MutexLock lock(mutex_);
  return ReleaseRetired(&fenced_);
}

MemoryView DeviceMemory::GetView() const {
  MutexLock lock(mutex_);
  MemoryView view{.need = Bytes(need_),
                  .resident = resident(),
                  .missing = Bytes(missing_),
                  .next_chunk = {},
                  .swapped = Bytes(swapped_ + cold_),
                  .cold = Bytes(cold_),
                  .needed_cold = Bytes(needed_cold_)};
  if (missing_ == 0) return view;
  for (const auto& [address, extent] : extents_) {
    if (extent->lost) continue;
    for (const Chunk& chunk : extent->chunks) {
      if (chunk.mapped()) continue;
      view.next_chunk = Bytes(chunk.bytes);
      return view;
    }
  }
  return view;
}

Extent* DeviceMemory::FindExtent(CUdeviceptr address) const {
  MutexLock lock(mutex_);
  const auto found = extents_.find(address);
  return found == extents_.end() ? nullptr : found->second.get();
}

Extent* DeviceMemory::ExtentAround(CUdeviceptr pointer) const {
  const auto found =
      FindAround(extents_, pointer, [](const auto& extent) { return extent->bytes; });
  return found == extents_.end() ? nullptr : found->second.get();
}

std::optional<DeviceMemory::Place> DeviceMemory::FindChunk(CUdeviceptr pointer) const {
  MutexLock lock(mutex_);
  Extent* const extent = ExtentAround(pointer);
  if (extent == nullptr || extent->lost) return std::nullopt;
  const auto after =
      std::upper_bound(extent->chunks.begin(), extent->chunks.end(), pointer,
                       [](CUdeviceptr at, const Chunk& chunk) { return at < chunk.address; });
  return Place{extent, &*std::prev(after)};
}

std::vector<DeviceMemory::Place> DeviceMemory::Missing(uint64_t most, size_t count) const {
  MutexLock lock(mutex_);
  std::vector<Place> places;
  for (const auto& [address, extent] : extents_) {
    if (extent->lost) continue;
    for (Chunk& chunk : extent->chunks) {
      if (chunk.mapped()) continue;
      if (places.size() == count || chunk.bytes > most) return places;
      most -= chunk.bytes;
      places.push_back({extent.get(), &chunk});
    }
  }
  return places;
}

std::vector<DeviceMemory::Place> DeviceMemory::Mapped() const {
  MutexLock lock(mutex_);
  std::vector<Place> places;
  for (const auto& [address, extent] : extents_) {
    for (Chunk& chunk : extent->chunks) {
      if (chunk.mapped()) places.push_back({extent.get(), &chunk});
    }
  }
  return places;
}

std::vector<DeviceMemory::Place> DeviceMemory::Resident() const {
  std::vector<Place> places = Mapped();
  std::erase_if(places, [](const Place& place) { return !place.chunk->resident(); });
  return places;
}

std::vector<DeviceMemory::Place> DeviceMemory::Victims(uint64_t least) const {
  std::vector<Place> places = Resident();
  std::erase_if(places, [](const Place& place) {
    return place.chunk->state != Chunk::State::kHere || place.extent->pinned;
  });
  // Else from the far end: what was allocated first tends to be in use all the time.
  std::reverse(places.begin(), places.end());
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return Reluctance(*a.chunk) < Reluctance(*b.chunk);
  });
  uint64_t sum = 0;
  size_t count = 0;
  while (count < places.size() && sum < least) sum += places[count++].chunk->bytes;
  places.resize(count);
  return places;
}

void DeviceMemory::SetState(const Place& place, Chunk::State state) {
  MutexLock lock(mutex_);
  Chunk& chunk = *place.chunk;
  if (place.extent->pinned) {
    chunk.state = state;
    return;
  }
  Uncount(place);
  chunk.state = state;
  const bool needed = !place.extent->dead && !place.extent->lost;
  if (chunk.resident()) resident_ += chunk.bytes;
  if (chunk.state == Chunk::State::kCold) cold_ += chunk.bytes;
  if (needed && chunk.missing()) missing_ += chunk.bytes;
  if (needed && chunk.state == Chunk::State::kCold) needed_cold_ += chunk.bytes;
}

void DeviceMemory::Uncount(const Place& place) {
  const Chunk& chunk = *place.chunk;
  const bool needed = !place.extent->dead && !place.extent->lost;
  if (chunk.resident()) resident_ -= chunk.bytes;
  if (chunk.state == Chunk::State::kCold) cold_ -= chunk.bytes;
  if (needed && chunk.missing()) missing_ -= chunk.bytes;
  if (needed && chunk.state == Chunk::State::kCold) needed_cold_ -= chunk.bytes;
}

void DeviceMemory::CountSwapped(int64_t bytes) {
  MutexLock lock(mutex_);
  swapped_ += static_cast<uint64_t>(bytes);
}

std::vector<DeviceMemory::Place> DeviceMemory::Lose(CUcontext context) {
  MutexLock lock(mutex_);
  std::vector<Place> places;
  for (const auto& [address, extent] : extents_) {
    if (extent->context != context || extent->lost) continue;
    if (!extent->pinned) Uncount(*extent);
    extent->lost = true;
    for (Chunk& chunk : extent->chunks) places.push_back({extent.get(), &chunk});
  }
  return places;
}

void DeviceMemory::LoseExtent(Extent* extent) {
  MutexLock lock(mutex_);
  pages_.Close(extent);
  Uncount(*extent);
  extent->lost = true;
}

std::vector<std::unique_ptr<Extent>> DeviceMemory::TakeDead() {
  MutexLock lock(mutex_);
  has_dead_.store(false, std::memory_order_release);
  return std::exchange(dead_, {});
}

void DeviceMemory::Bury(std::unique_ptr<Extent> extent) {
  MutexLock lock(mutex_);
  regions_.Return(extent->address, extent->bytes);
}

void DeviceMemory::KeepDead(std::unique_ptr<Extent> extent) {
  MutexLock lock(mutex_);
  dead_.push_back(std::move(extent));
  has_dead_.store(true, std::memory_order_release);
}

}  // namespace tandem::shim
