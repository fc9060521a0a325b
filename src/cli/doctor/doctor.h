// `tandem doctor`: checks of this machine, with one thing to do about each finding.
#pragma once

#include <optional>
#include <string>

namespace tandem::cli {

struct DoctorOptions {
  std::optional<std::string> gpu;
  std::string program;  // to check; empty: none
  std::string bundle;   // file to write; empty: none
  bool json = false;
};

// The exit status: 0 where no problem was found, else 1.
int Doctor(const DoctorOptions& options);

}  // namespace tandem::cli
