// A share as people write it: "2" or "0.5" is a weight from 0.001 to 1000, "30%" a part of the time
// of at least 0.1%.
//
// Threading: none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/core/types.h"

namespace tandem::core {

// Nothing: `text` is no share.
std::optional<Share> ParseShare(std::string_view text);
std::string ShareText(const Share& share);

// The error for a `text` that is no share, with examples.
std::string NoShareText(std::string_view text);

}  // namespace tandem::core
