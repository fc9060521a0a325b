// `tandem top`: a live view of the GPUs and of the sessions that share them, with orders.
#pragma once

#include <optional>
#include <string>

namespace tandem::cli {

struct TopOptions {
  bool once = false;
  bool json = false;
  std::string interval = "1s";
  std::optional<std::string> gpu;
};

// Until `q` or Ctrl-C. Without a terminal that can show it: one picture, as text. The exit status.
int Top(const TopOptions& options);

}  // namespace tandem::cli
