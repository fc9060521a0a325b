#include "src/base/ranges.h"

#include <algorithm>
#include <iterator>

namespace tandem {

std::optional<uint64_t> RangeAllocator::Take(uint64_t size, uint64_t alignment) {
  for (const auto& [begin, free] : free_) {
    const uint64_t aligned = (begin + alignment - 1) & ~(alignment - 1);
    const uint64_t skipped = aligned - begin;
    if (aligned < begin || free < skipped || free - skipped < size) continue;
    TakeAt(aligned, size);
    return aligned;
  }
  return std::nullopt;
}

bool RangeAllocator::TakeAt(uint64_t begin, uint64_t size) {
  auto next = free_.upper_bound(begin);
  if (next == free_.begin()) return false;
  const auto found = std::prev(next);
  const Range range{found->first, found->second};
  if (begin >= range.end() || range.end() - begin < size) return false;
  if (begin > range.begin) {
    found->second = begin - range.begin;
  } else {
    free_.erase(found);
  }
  if (begin + size < range.end()) free_[begin + size] = range.end() - (begin + size);
  return true;
}

std::vector<Range> RangeAllocator::TakePieces(uint64_t size) {
  if (const auto whole = Take(size, 1)) return {Range{*whole, size}};
  std::vector<Range> pieces;
  while (size > 0 && !free_.empty()) {
    const auto first = free_.begin();
    const Range piece{first->first, std::min(first->second, size)};
    TakeAt(piece.begin, piece.size);
    pieces.push_back(piece);
    size -= piece.size;
  }
  if (size == 0) return pieces;
  for (const Range& piece : pieces) (void)Give(piece.begin, piece.size);
  return {};
}

bool RangeAllocator::Give(uint64_t begin, uint64_t size) {
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first < begin + size) return false;
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second > begin) return false;
    if (before->first + before->second == begin) {
      begin = before->first;
      size += before->second;
      free_.erase(before);
    }
  }
  if (next != free_.end() && next->first == begin + size) {
    size += next->second;
    free_.erase(next);
  }
  free_[begin] = size;
  return true;
}

}  // namespace tandem
