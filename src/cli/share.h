// `tandem share`: shows or sets shares of GPU time, under the policy `fair`.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace tandem::cli {

struct ShareOptions {
  std::string user;    // whose it is, or:
  std::string target;  // a session's number or a run's name
  std::string share;   // a weight, or a percentage; empty: all are shown
  bool json = false;
  std::optional<std::string> gpu;
};

// "2" or "30%".
CLI::Validator IsShare();

// Shows or sets it. The exit status.
int ShowOrSetShare(const ShareOptions& options);

}  // namespace tandem::cli
