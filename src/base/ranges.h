// RangeAllocator: which parts of [base, base + size) are free. First fit, lowest address first;
// neighbouring free ranges are always merged.
//
// Threading: none of its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tandem {

struct Range {
  uint64_t begin = 0;
  uint64_t size = 0;
  uint64_t end() const { return begin + size; }
};

// The memory of this process at an address.
inline void* PointerAt(uint64_t address) {
  return reinterpret_cast<void*>(address);
}

class RangeAllocator {
 public:
  RangeAllocator() = default;  // nothing is free
  RangeAllocator(uint64_t base, uint64_t size) { free_[base] = size; }

  // REQUIRES: size > 0; alignment is a power of two.
  std::optional<uint64_t> Take(uint64_t size, uint64_t alignment);
  // False, and nothing taken, unless all of it is free.
  bool TakeAt(uint64_t begin, uint64_t size);
  // As few pieces as first fit gives; nothing if less than `size` is free in all.
  std::vector<Range> TakePieces(uint64_t size);
  // False, and nothing given, if part of it is free already: a caller has lost count.
  [[nodiscard]] bool Give(uint64_t begin, uint64_t size);

 private:
  std::map<uint64_t, uint64_t> free_;  // begin → size
};

}  // namespace tandem
