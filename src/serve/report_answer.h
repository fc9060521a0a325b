// The answer of /api/v1/report: what `tandem report` prints as JSON or CSV.
//
// Threading: any thread.
#pragma once

#include "src/cli/report/report.h"
#include "src/serve/answer.h"
#include "src/serve/query.h"
#include "src/serve/recorded.h"

namespace tandem::serve {

Answer ReportAnswer(const Parameters& parameters, const Records& records);

// Runs of other users than `own`, a name or a number, become one hidden run for each of the other
// keys. REQUIRES: `user` is among the keys. `keep_user`: else that key is taken out.
void HideRuns(const std::string& own, bool keep_user, cli::Report* report);

}  // namespace tandem::serve
