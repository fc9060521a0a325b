// The word that a mistyped one most probably stands for.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::usage {

// The one of `words` that takes the fewest letters to turn `typed` into; none where that is more
// than two.
std::optional<std::string> Nearest(const std::string& typed, const std::vector<std::string>& words);

}  // namespace tandem::usage
