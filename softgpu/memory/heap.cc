#include "softgpu/memory/heap.h"

#include <cstdlib>
#include <iterator>
#include <utility>

#include "softgpu/memory/handle_table.h"
#include "src/base/around.h"

namespace tandem::soft {
namespace {

constexpr uint64_t kSmall = uint64_t{1} << 20;  // blocks below share pages

// What blocks of a shared page begin at multiples of.
uint64_t StepOf(Heap::Users users) {
  return users == Heap::Users::kEveryDevice ? HostPageBytes() : kBlockAlignment;
}

uint64_t RoundToStep(uint64_t bytes, uint64_t step) {
  return (bytes + step - 1) / step * step;
}

}  // namespace

uint64_t Heap::Allocate(Owner owner, uint64_t bytes, Use use, Users users) {
  if (bytes > space_->size()) return 0;
  const uint64_t address = bytes < kSmall ? AllocateSmall(owner, bytes, users)
                                          : NewPages(owner, RoundToPages(bytes), users);
  if (address == 0) return 0;
  auto managed = users == Users::kEveryDevice ? std::make_shared<ManagedBlock>() : nullptr;
  blocks_[address] =
      Block{address, bytes, owner, NewHandle(), use == Use::kDriver, std::move(managed)};
  LastAt(pages_, address)->second.blocks += 1;
  return address;
}

uint64_t Heap::AllocateSmall(Owner owner, uint64_t bytes, Users users) {
  const uint64_t step = StepOf(users), size = RoundToStep(bytes, step);
  for (auto& [address, pages] : pages_) {
    if (pages.owner != owner || pages.users != users || !pages.small) continue;
    if (const auto block = pages.small->Take(size, step)) return *block;
  }
  const uint64_t page = NewPages(owner, kPageBytes, users);
  if (page == 0) return 0;
  Pages& pages = pages_.at(page);
  pages.small.emplace(page, kPageBytes);
  return pages.small->Take(size, step).value();
}

uint64_t Heap::NewPages(Owner owner, uint64_t size, Users users) {
  const uint64_t address = space_->Reserve(size);
  if (address == 0) return 0;
  std::vector<Range> pieces = store_->Allocate(size);
  if (pieces.empty() || !store_->MapAt(*space_, address, pieces)) {
    store_->Free(pieces);
    space_->Free(address, size);
    return 0;
  }
  space_->SetReach(address, size,
                   users == Users::kEveryDevice ? kEveryDevice : ReachOf(device_, owner));
  pages_.emplace(address, Pages{owner, users, size, std::move(pieces), std::nullopt, 0});
  return address;
}

bool Heap::Free(uint64_t address) {
  const auto block = blocks_.find(address);
  if (block == blocks_.end()) return false;
  const auto pages = LastAt(pages_, address);
  const uint64_t size = RoundToStep(block->second.size, StepOf(pages->second.users));
  if (pages->second.small && !pages->second.small->Give(address, size)) std::abort();
  blocks_.erase(block);
  if (--pages->second.blocks == 0) DropPages(pages);
  return true;
}

void Heap::DropPages(std::map<uint64_t, Pages>::iterator pages) {
  store_->KeepTables(*space_, pages->first, pages->second.pieces);
  space_->Unmap(pages->first, pages->second.size);
  store_->Free(pages->second.pieces);
  space_->Free(pages->first, pages->second.size);
  pages_.erase(pages);
}

void Heap::FreeAll(Owner owner) {
  std::erase_if(blocks_, [&](const auto& entry) { return entry.second.owner == owner; });
  for (auto pages = pages_.begin(); pages != pages_.end();) {
    const auto next = std::next(pages);
    if (pages->second.owner == owner) DropPages(pages);
    pages = next;
  }
}

std::optional<Heap::Block> Heap::Find(uint64_t address) const {
  const auto found = FindAround(blocks_, address, &Block::size);
  if (found == blocks_.end()) return std::nullopt;
  return found->second;
}

std::optional<Heap::Backing> Heap::BackingOf(uint64_t address) const {
  const auto block = Find(address);
  if (!block) return std::nullopt;
  const auto& [begin, pages] = *LastAt(pages_, block->address);
  return Backing{*block, begin, &pages.pieces, store_};
}

}  // namespace tandem::soft
