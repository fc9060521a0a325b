// The metrics of GPUs and sessions (docs/serve.md has their names).
//
// Pure. Names and labels never change their meaning; new ones may come.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "src/serve/exposition.h"

namespace tandem::serve {

// `now`: as `tandem top --json`, with the name of the user in each session.
std::string MetricsText(const nlohmann::json& now, MetricsFormat format);

}  // namespace tandem::serve
