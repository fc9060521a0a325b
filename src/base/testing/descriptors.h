// For tests of who closes what.
#pragma once

#include <cstddef>
#include <filesystem>

namespace tandem {

// How many descriptors this process has open.
inline size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

}  // namespace tandem
