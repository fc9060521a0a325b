// What somebody who mistyped a word probably meant.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::cli {

// The one of `words` that takes the fewest letters to turn `typed` into; none where that is more
// than two.
std::optional<std::string> Nearest(const std::string& typed, const std::vector<std::string>& words);

}  // namespace tandem::cli
