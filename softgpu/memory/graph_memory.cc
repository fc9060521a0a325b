#include "softgpu/memory/graph_memory.h"

#include <algorithm>
#include <utility>

#include "softgpu/memory/handle_table.h"
#include "src/base/around.h"

namespace tandem::soft {

std::shared_ptr<GraphMemory::Block> GraphMemory::Add(DeviceVram* device, uint64_t owner,
                                                     uint64_t bytes, const Reach& reach) {
  DropUnknown();
  if (bytes > device->shared().total().count) return nullptr;
  const uint64_t address = space_->Reserve(RoundToPages(bytes));
  if (address == 0) return nullptr;
  auto block = std::make_shared<Block>();
  block->device = device;
  block->owner = owner;
  block->range = Range{address, bytes};
  block->reach = reach;
  block->number = NewHandle();
  return blocks_[address] = std::move(block);
}

std::shared_ptr<GraphMemory::Block> GraphMemory::Find(uint64_t address) const {
  const auto found =
      FindAround(blocks_, address, [](const auto& block) { return block->range.size; });
  return found != blocks_.end() ? found->second : nullptr;
}

bool GraphMemory::Back(Block& block) {
  if (!block.pieces.empty()) return true;
  const uint64_t size = RoundToPages(block.range.size);
  PhysicalStore& store = block.device->store();
  block.pieces = store.Allocate(size);
  if (block.pieces.empty()) return false;
  if (!store.MapAt(*space_, block.range.begin, block.pieces)) {
    store.Free(block.pieces);
    block.pieces.clear();
    return false;
  }
  space_->SetReach(block.range.begin, size, block.reach);
  Note(block.device);
  return true;
}

void GraphMemory::Unback(Block& block) {
  if (block.pieces.empty()) return;
  block.device->store().KeepTables(*space_, block.range.begin, block.pieces);
  space_->Unmap(block.range.begin, RoundToPages(block.range.size));
  block.device->store().Free(block.pieces);
  block.pieces.clear();
}

bool GraphMemory::KnownToNode(const std::shared_ptr<Block>& block) {
  return block.use_count() > 1;
}

bool GraphMemory::InUse(const Block& block) const {
  return block.allocated || block.freeing || (block.freed && !scheduler_->Done({*block.freed}));
}

void GraphMemory::Allocate(Block& block) {
  block.allocated = true;
  Note(block.device);
}

bool GraphMemory::BeginFree(Block& block) {
  block.freeing = std::exchange(block.allocated, false);
  return block.freeing;
}

void GraphMemory::Free(Block& block, std::optional<Dependency> freed) {
  block.allocated = block.freeing = false;
  block.freed = std::move(freed);
}

void GraphMemory::Trim(const DeviceVram* device) {
  DropUnknown();
  for (const auto& [address, block] : blocks_) {
    if (block->device == device && !InUse(*block)) Unback(*block);
  }
}

void GraphMemory::DropUnknown() {
  std::erase_if(blocks_, [this](const auto& entry) {
    Block& block = *entry.second;
    if (KnownToNode(entry.second) || InUse(block)) return false;
    Unback(block);
    space_->Free(entry.first, RoundToPages(block.range.size));
    return true;
  });
}

void GraphMemory::FreeAll(uint64_t owner) {
  for (const auto& [address, block] : blocks_) {
    if (block->owner != owner) continue;
    Free(*block, std::nullopt);
    Unback(*block);
  }
  DropUnknown();
}

void GraphMemory::Note(const DeviceVram* device) {
  Counts& peak = peaks_[device];
  peak.used = peak.reserved = 0;
  for (const auto& [address, block] : blocks_) {
    if (block->device != device || block->pieces.empty()) continue;
    const uint64_t size = RoundToPages(block->range.size);
    peak.reserved += size;
    if (KnownToNode(block) || InUse(*block)) peak.used += size;
  }
  peak.used_high = std::max(peak.used_high, peak.used);
  peak.reserved_high = std::max(peak.reserved_high, peak.reserved);
}

GraphMemory::Counts GraphMemory::CountsOf(const DeviceVram* device) {
  Note(device);
  return peaks_[device];
}

}  // namespace tandem::soft
