// `tandem suspend`, `tandem resume` and `tandem limit`: orders about a session or a run.
#pragma once

#include <optional>
#include <string>

namespace tandem::cli {

struct ControlOptions {
  std::string what;    // "suspend", "resume" or "limit", as wire::Control has it
  std::string target;  // a session's number or a run's name
  std::string memory;  // of "limit": a size, or "all" for all that can be shared
  // Of "suspend": how long to wait until all has left the card.
  std::string timeout = "60s";
  std::string fail_after;  // of "suspend": when calls that wait begin to fail; empty: never
  bool json = false;
  std::optional<std::string> gpu;
};

// Gives the order and shows the sessions it concerns. The exit status: 1, after saying why, where
// it was refused, or where what is suspended did not leave the card in time.
int Control(const ControlOptions& options);

}  // namespace tandem::cli
