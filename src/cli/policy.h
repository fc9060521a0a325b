// `tandem policy`: shows or sets the scheduling policy of each GPU.
#pragma once

#include <optional>
#include <string>

namespace tandem::cli {

struct PolicyOptions {
  std::string target;  // "gpu0" or "all"
  std::string policy;  // its name; both empty: nothing is changed
  bool json = false;
  std::optional<std::string> gpu;
};

// Shows or sets it. The exit status.
int ShowOrSetPolicy(const PolicyOptions& options);

}  // namespace tandem::cli
