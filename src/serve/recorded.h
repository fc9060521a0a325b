// The answers from what daemons have recorded: /api/v1/history and /api/v1/events.
//
// Threading: any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "src/serve/answer.h"
#include "src/serve/query.h"

namespace tandem::serve {

// Where the records are, and whose names may be shown.
struct Records {
  std::string accounts_file;
  std::string events_file;
  std::optional<uid_t> viewer;  // with privacy: the user whose names are shown
};

Answer HistoryAnswer(const Parameters& parameters, const Records& records);
Answer EventsAnswer(const Parameters& parameters, const Records& records);

}  // namespace tandem::serve
