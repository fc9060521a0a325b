// The answer of /api/v1/plan: what `tandem plan --json` prints.
//
// Threading: any thread.
#pragma once

#include "src/serve/answer.h"
#include "src/serve/query.h"

namespace tandem::serve {

Answer PlanAnswer(const Parameters& parameters);

}  // namespace tandem::serve
