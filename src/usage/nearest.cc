#include "src/usage/nearest.h"

#include <algorithm>
#include <numeric>

namespace tandem::usage {
namespace {

constexpr size_t kMostEdits = 2;

// Letters to insert, delete or replace.
size_t Edits(const std::string& from, const std::string& to) {
  std::vector<size_t> row(to.size() + 1);  // from the first letters of `from` to each start of `to`
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string> Nearest(const std::string& typed,
                                   const std::vector<std::string>& words) {
  const auto closer = [&](const std::string& a, const std::string& b) {
    return Edits(typed, a) < Edits(typed, b);
  };
  const auto nearest = std::min_element(words.begin(), words.end(), closer);
  if (nearest == words.end() || Edits(typed, *nearest) > kMostEdits) return std::nullopt;
  return *nearest;
}

}  // namespace tandem::usage
