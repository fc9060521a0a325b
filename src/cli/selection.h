// Selection: which sessions `tandem ps` lists, and in what order.
//
// Pure, but for UserName. Threading: none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace tandem::cli {

struct Selection {
  std::string user;         // a name or a number; empty: all
  std::optional<int> card;  // the GPU's index; none: all
  std::string sort;         // of SortKeys(); empty: as the daemon lists them

  bool all() const { return user.empty() && !card.has_value() && sort.empty(); }
};

const std::vector<std::string>& SortKeys();

// The answer to "sessions" with those that are selected. Runs without a session are on no GPU.
Result<std::string> Select(const std::string& json, const Selection& selection);

}  // namespace tandem::cli
