// The classes of work by the names that people use.
#pragma once

#include <optional>
#include <string_view>

#include "src/core/types.h"

namespace tandem::core {

// In the order of the enumerators.
inline constexpr std::string_view kClassNames[kClasses] = {"production", "interactive", "batch",
                                                           "opportunistic"};

constexpr std::string_view NameOf(Class of_class) {
  return kClassNames[static_cast<size_t>(of_class)];
}

constexpr std::optional<Class> ClassNamed(std::string_view name) {
  for (size_t i = 0; i < kClasses; ++i) {
    if (kClassNames[i] == name) return static_cast<Class>(i);
  }
  return std::nullopt;
}

}  // namespace tandem::core
