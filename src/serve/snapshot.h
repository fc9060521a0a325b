// Snapshot: what `tandem serve` says of one moment, ready to be sent to any number of clients.
//
// Pure: the model's answers go in, texts come out.
// Invariants
// 1. All texts of a snapshot are of the same moment.
// 2. With privacy, none of them has a name or a process of another user's program.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "src/base/time.h"
#include "src/cli/top/model.h"

namespace tandem::serve {

inline constexpr const char* kHidden = "(hidden)";

struct Snapshot {
  uint64_t number = 0;  // from 1; each is newer than the one before
  Instant at;
  std::string live;      // JSON, as `tandem top --json`
  std::string gpus;      // JSON
  std::string sessions;  // JSON
  std::string open_metrics;
  std::string text_metrics;
  bool daemon = false;        // one answered
  std::string accounts_file;  // of the daemon; empty: none
  std::string events_file;    // of the daemon; empty: none
};

// `viewer`: with privacy, the user whose names are shown.
Snapshot MakeSnapshot(const cli::top::Model& model, int64_t unix_ns, std::optional<uid_t> viewer);

// In the sessions and runs of `now` that are not the viewer's.
void HideOthers(uid_t viewer, nlohmann::json* now);

}  // namespace tandem::serve
