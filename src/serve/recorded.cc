#include "src/serve/recorded.h"

namespace tandem::serve {

Answer HistoryAnswer(const Parameters& /*parameters*/, const Records& /*records*/) {
  return ErrorAnswer(501, "history is not served yet; /api/v1/report has sums");
}

Answer EventsAnswer(const Parameters& /*parameters*/, const Records& /*records*/) {
  return ErrorAnswer(501, "events are not served yet; `tandem status --json` names their file");
}

}  // namespace tandem::serve
