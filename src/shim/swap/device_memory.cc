#include "src/shim/swap/device_memory.h"

#include <algorithm>
#include <limits>

namespace tandem::shim {
namespace {

constexpr uint64_t kSmallestSlot = 512;  // what cuMemAlloc aligns to
constexpr size_t kMostKeptPages = 4;

// 512, 768 (not: not a multiple of 512), 1024, 1536, 2048, 3072, …: two sizes per doubling.
uint64_t SlotBytes(uint64_t bytes) {
  uint64_t size = kSmallestSlot;
  while (size < bytes) {
    const uint64_t between = size / 2 * 3;
    if (between >= bytes && between % kSmallestSlot == 0) return between;
    size *= 2;
  }
  return size;
}

// The order in which chunks leave: first those that need no copying, then those that turned out to
// need none, then unknown ones, so that they become known, and last modified ones.
int Reluctance(const Chunk& chunk) {
  if (!chunk.exposed) return 0;
  if (chunk.modified != 0) return 3;
  return chunk.host != nullptr && chunk.print.has_value() ? 1 : 2;
}

}  // namespace

uint64_t DeviceMemory::RunBytes(uint64_t bytes) {
  if (bytes < kLargeBlock) return kGranule;
  if (bytes > std::numeric_limits<uint64_t>::max() / 2) return 0;
  return RoundToGranules(bytes);
}

Block DeviceMemory::AddBlock(CUdeviceptr address, uint64_t bytes, Run* run, uint32_t slot) {
  const Block block{address, bytes, run->context, next_id_++};
  blocks_.emplace(address, Entry{block, run, slot});
  return block;
}

// A page with a free slot, if there is one: perhaps one that was kept, whatever it was cut into.
Run* DeviceMemory::OpenPage(uint64_t slot_bytes, CUcontext context) {
  if (const auto pages = open_pages_.find({slot_bytes, context}); pages != open_pages_.end()) {
    return pages->second.back();
  }
  const auto fits = [context](const Run* page) { return page->context == context && !page->lost; };
  const auto kept = std::find_if(kept_pages_.rbegin(), kept_pages_.rend(), fits);
  if (kept == kept_pages_.rend()) return nullptr;
  Run* const page = *kept;
  kept_pages_.erase(std::next(kept).base());
  kept_bytes_.fetch_sub(page->bytes, std::memory_order_relaxed);
  untaken_pages_ = std::min(untaken_pages_, kept_pages_.size());
  page->Cut(slot_bytes);
  open_pages_[{slot_bytes, context}].push_back(page);
  return page;
}

Run* DeviceMemory::PageOfLargerSlots(uint64_t slot_bytes, CUcontext context) const {
  const auto larger =
      std::find_if(open_pages_.upper_bound({slot_bytes, context}), open_pages_.end(),
                   [context](const auto& pages) { return pages.first.second == context; });
  return larger == open_pages_.end() ? nullptr : larger->second.back();
}

void DeviceMemory::ClosePage(Run* page) {
  const auto pages = open_pages_.find({page->slot_bytes, page->context});
  if (pages->second.back() == page) {
    pages->second.pop_back();
  } else {
    std::erase(pages->second, page);
  }
  if (pages->second.empty()) open_pages_.erase(pages);
}

std::optional<Block> DeviceMemory::AllocateFromPage(uint64_t bytes, CUcontext context, bool* backed,
                                                    Slots slots) {
  if (bytes >= kLargeBlock) return std::nullopt;
  const uint64_t slot_bytes = SlotBytes(bytes);
  MutexLock lock(mutex_);
  Run* page = OpenPage(slot_bytes, context);
  if (page == nullptr && slots == Slots::kAnyLarger) page = PageOfLargerSlots(slot_bytes, context);
  if (page == nullptr) return std::nullopt;
  if (backed != nullptr) *backed = missing_ == 0;
  const uint32_t slot = page->TakeSlot();
  ++page->live;
  if (!page->HasSlot()) ClosePage(page);
  return AddBlock(page->address + slot * page->slot_bytes, bytes, page, slot);
}

CUresult DeviceMemory::AddRun(std::unique_ptr<Run> run, uint64_t chunk_bytes, Run** added) {
  if (const CUresult result = regions_.Take(run->bytes, &run->address); result != CUDA_SUCCESS) {
    return result;
  }
  for (uint64_t offset = 0; offset < run->bytes; offset += chunk_bytes) {
    Chunk chunk;
    chunk.address = run->address + offset;
    chunk.bytes = std::min(chunk_bytes, run->bytes - offset);
    run->chunks.push_back(chunk);
  }
  need_ += run->bytes;
  missing_ += run->bytes;
  *added = run.get();
  runs_.emplace(run->address, std::move(run));
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::AllocateRun(uint64_t bytes, CUcontext context, Block* block) {
  auto run = std::make_unique<Run>();
  run->bytes = RunBytes(bytes);
  run->context = context;
  if (bytes < kLargeBlock) run->Cut(SlotBytes(bytes));
  MutexLock lock(mutex_);
  Run* added = nullptr;
  if (const CUresult result = AddRun(std::move(run), chunk_bytes_, &added);
      result != CUDA_SUCCESS) {
    return result;
  }
  if (added->slot_bytes != 0) {
    added->TakeSlot();  // the first
    if (added->HasSlot()) open_pages_[{added->slot_bytes, context}].push_back(added);
  }
  *block = AddBlock(added->address, bytes, added, 0);
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::AllocateRunFor(const CUmemAllocationProp& properties, uint64_t bytes,
                                      Run** run) {
  auto made = std::make_unique<Run>();
  made->bytes = bytes;
  made->properties = properties;
  const bool whole = properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  MutexLock lock(mutex_);
  return AddRun(std::move(made), whole ? bytes : chunk_bytes_, run);
}

Bytes DeviceMemory::FreeRun(Run* run) {
  MutexLock lock(mutex_);
  return Release({run, 0});
}

void DeviceMemory::Pin(Run* run) {
  MutexLock lock(mutex_);
  Uncount(*run);
  for (const Chunk& chunk : run->chunks) {
    if (chunk.resident()) resident_ -= chunk.bytes;
    if (chunk.state == Chunk::State::kCold) cold_ -= chunk.bytes;
  }
  run->pinned = true;
}

void DeviceMemory::Join(Run* run, CUmemGenericAllocationHandle handle) {
  Chunk whole;
  whole.address = run->address;
  whole.bytes = run->bytes;
  whole.state = Chunk::State::kHere;
  whole.handle = handle;
  whole.exposed = true;
  MutexLock lock(mutex_);
  run->chunks.assign(1, whole);
}

DeviceMemory::Blocks::const_iterator DeviceMemory::Around(CUdeviceptr pointer) const {
  auto entry = blocks_.upper_bound(pointer);
  if (entry == blocks_.begin()) return blocks_.end();
  --entry;
  const Block& block = entry->second.block;
  return pointer - block.address < block.bytes ? entry : blocks_.end();
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
  Run& run = *entry->second.run;
  ++run.live;
  return Home{entry->second.block, run.address, run.bytes};
}

Bytes DeviceMemory::LetGo(const Home& home) {
  MutexLock lock(mutex_);
  return Drop(runs_.at(home.run).get());
}

// The run has no owner any more, but is still on the card.
void DeviceMemory::Kill(Run* run) {
  if (!run->lost && !run->pinned) Uncount(*run);
  run->dead = true;
  const auto owner = runs_.find(run->address);
  dead_.push_back(std::move(owner->second));
  has_dead_.store(true, std::memory_order_release);
  runs_.erase(owner);
}

Bytes DeviceMemory::Release(const Share& share) {
  Run* const run = share.run;
  if (run->slot_bytes != 0 && !run->lost) {
    if (!run->HasSlot()) open_pages_[{run->slot_bytes, run->context}].push_back(run);
    run->free_slots.push_back(share.slot);
  }
  return Drop(run);
}

Bytes DeviceMemory::Drop(Run* run) {
  if (--run->live != 0) return Bytes();
  const Bytes bytes(run->pinned ? 0 : run->bytes);
  if (run->HasSlot()) ClosePage(run);
  if (run->slot_bytes == 0 || run->lost || run->pinned) {
    Kill(run);
    return bytes;
  }
  kept_pages_.push_back(run);
  kept_bytes_.fetch_add(run->bytes, std::memory_order_relaxed);
  return FreeOldestPages(kept_pages_.size() > kMostKeptPages ? 1 : 0);
}

Bytes DeviceMemory::FreeOldestPages(size_t count) {
  Bytes shrunk;
  for (size_t i = 0; i < count; ++i) {
    shrunk += Bytes(kept_pages_[i]->bytes);
    Kill(kept_pages_[i]);
  }
  kept_pages_.erase(kept_pages_.begin(), kept_pages_.begin() + static_cast<ptrdiff_t>(count));
  kept_bytes_.fetch_sub(shrunk.count, std::memory_order_relaxed);
  untaken_pages_ = std::min(untaken_pages_, kept_pages_.size());
  return shrunk;
}

Bytes DeviceMemory::FreePages(size_t keep) {
  MutexLock lock(mutex_);
  return FreeOldestPages(kept_pages_.size() - std::min(keep, kept_pages_.size()));
}

Bytes DeviceMemory::FreeUntakenPages(bool* more) {
  MutexLock lock(mutex_);
  const Bytes shrunk = FreeOldestPages(untaken_pages_);
  untaken_pages_ = kept_pages_.size();
  *more = untaken_pages_ != 0;
  return shrunk;
}

Bytes DeviceMemory::ReleaseRetired(std::vector<Share>* retired) {
  Bytes shrunk;
  for (const Share& share : std::exchange(*retired, {})) {
    retired_bytes_.fetch_sub(share.bytes(), std::memory_order_relaxed);
    shrunk += Release(share);
  }
  return shrunk;
}

void DeviceMemory::Uncount(const Run& run) {
  need_ -= run.bytes;
  for (const Chunk& chunk : run.chunks) {
    if (chunk.missing()) missing_ -= chunk.bytes;
    if (chunk.state == Chunk::State::kCold) needed_cold_ -= chunk.bytes;
  }
}

std::optional<Bytes> DeviceMemory::Free(CUdeviceptr pointer, uint64_t id, bool unused) {
  MutexLock lock(mutex_);
  const auto entry = blocks_.find(pointer);
  if (entry == blocks_.end() || entry->second.block.id != id) return std::nullopt;
  const Share share{entry->second.run, entry->second.slot};
  blocks_.erase(entry);
  if (unused) return Release(share);
  retired_.push_back(share);
  retired_bytes_.fetch_add(share.bytes(), std::memory_order_relaxed);
  return Bytes();
}

std::optional<Bytes> DeviceMemory::FreeIn(CUcontext context, CUdeviceptr pointer) {
  MutexLock lock(mutex_);
  const auto entry = blocks_.find(pointer);
  if (entry == blocks_.end() || entry->second.block.context != context) return std::nullopt;
  const Share share{entry->second.run, entry->second.slot};
  blocks_.erase(entry);
  return Release(share);
}

Bytes DeviceMemory::FreeContext(CUcontext context) {
  MutexLock lock(mutex_);
  std::vector<Share> its;
  std::erase_if(blocks_, [&](const auto& named) {
    const Entry& entry = named.second;
    if (entry.block.context != context) return false;
    its.push_back({entry.run, entry.slot});
    return true;
  });
  Bytes shrunk;
  for (const Share& share : its) shrunk += Release(share);
  for (std::vector<Share>* retired : {&fenced_, &retired_}) {
    const auto of_others =
        std::partition(retired->begin(), retired->end(),
                       [context](const Share& share) { return share.run->context != context; });
    its.assign(of_others, retired->end());
    retired->erase(of_others, retired->end());
    shrunk += ReleaseRetired(&its);
  }
  const auto others =
      std::stable_partition(kept_pages_.begin(), kept_pages_.end(),
                            [context](const Run* page) { return page->context == context; });
  return shrunk + FreeOldestPages(static_cast<size_t>(others - kept_pages_.begin()));
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
  for (const auto& [address, run] : runs_) {
    if (run->lost) continue;
    for (const Chunk& chunk : run->chunks) {
      if (chunk.mapped()) continue;
      view.next_chunk = Bytes(chunk.bytes);
      return view;
    }
  }
  return view;
}

Run* DeviceMemory::FindRun(CUdeviceptr address) const {
  MutexLock lock(mutex_);
  const auto found = runs_.find(address);
  return found == runs_.end() ? nullptr : found->second.get();
}

std::optional<DeviceMemory::Place> DeviceMemory::FindChunk(CUdeviceptr pointer) const {
  MutexLock lock(mutex_);
  auto next = runs_.upper_bound(pointer);
  if (next == runs_.begin()) return std::nullopt;
  Run* const run = std::prev(next)->second.get();
  if (pointer - run->address >= run->bytes || run->lost) return std::nullopt;
  const auto after =
      std::upper_bound(run->chunks.begin(), run->chunks.end(), pointer,
                       [](CUdeviceptr at, const Chunk& chunk) { return at < chunk.address; });
  return Place{run, &*std::prev(after)};
}

std::vector<DeviceMemory::Place> DeviceMemory::Missing(uint64_t most, size_t count) const {
  MutexLock lock(mutex_);
  std::vector<Place> places;
  for (const auto& [address, run] : runs_) {
    if (run->lost) continue;
    for (Chunk& chunk : run->chunks) {
      if (chunk.mapped()) continue;
      if (places.size() == count || chunk.bytes > most) return places;
      most -= chunk.bytes;
      places.push_back({run.get(), &chunk});
    }
  }
  return places;
}

std::vector<DeviceMemory::Place> DeviceMemory::Mapped() const {
  MutexLock lock(mutex_);
  std::vector<Place> places;
  for (const auto& [address, run] : runs_) {
    for (Chunk& chunk : run->chunks) {
      if (chunk.mapped()) places.push_back({run.get(), &chunk});
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
    return place.chunk->state != Chunk::State::kHere || place.run->pinned;
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
  if (place.run->pinned) {
    chunk.state = state;
    return;
  }
  Uncount(place);
  chunk.state = state;
  const bool needed = !place.run->dead && !place.run->lost;
  if (chunk.resident()) resident_ += chunk.bytes;
  if (chunk.state == Chunk::State::kCold) cold_ += chunk.bytes;
  if (needed && chunk.missing()) missing_ += chunk.bytes;
  if (needed && chunk.state == Chunk::State::kCold) needed_cold_ += chunk.bytes;
}

void DeviceMemory::Uncount(const Place& place) {
  const Chunk& chunk = *place.chunk;
  const bool needed = !place.run->dead && !place.run->lost;
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
  for (const auto& [address, run] : runs_) {
    if (run->context != context || run->lost) continue;
    if (!run->pinned) Uncount(*run);
    run->lost = true;
    for (Chunk& chunk : run->chunks) places.push_back({run.get(), &chunk});
  }
  return places;
}

void DeviceMemory::LoseRun(Run* run) {
  MutexLock lock(mutex_);
  if (run->HasSlot()) ClosePage(run);
  run->free_slots.clear();
  run->fresh_slots = 0;
  Uncount(*run);
  run->lost = true;
}

std::vector<std::unique_ptr<Run>> DeviceMemory::TakeDead() {
  MutexLock lock(mutex_);
  has_dead_.store(false, std::memory_order_release);
  return std::exchange(dead_, {});
}

void DeviceMemory::Bury(std::unique_ptr<Run> run) {
  MutexLock lock(mutex_);
  regions_.Return(run->address, run->bytes);
}

void DeviceMemory::KeepDead(std::unique_ptr<Run> run) {
  MutexLock lock(mutex_);
  dead_.push_back(std::move(run));
  has_dead_.store(true, std::memory_order_release);
}

}  // namespace tandem::shim
