// FindAround, LastAt: which of some ranges that do not overlap an address is in.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>

namespace tandem {

// In a map from where each range begins. `size`: of a range, by what is mapped, as for
// std::invoke. end() where the address is in none.
template <typename Map, typename Size = std::identity>
auto FindAround(Map& ranges, uint64_t address, Size size = {}) -> decltype(ranges.begin()) {
  const auto after = ranges.upper_bound(address);
  if (after == ranges.begin()) return ranges.end();
  const auto found = std::prev(after);
  return address - found->first < std::invoke(size, found->second) ? found : ranges.end();
}

// The same where that is known: the range that begins last, at the address or before. REQUIRES: one
// does.
template <typename Map>
auto LastAt(Map& ranges, uint64_t address) -> decltype(ranges.begin()) {
  return std::prev(ranges.upper_bound(address));
}

}  // namespace tandem
