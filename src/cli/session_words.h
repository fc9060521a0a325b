// How a session or a run stands, in the words of `tandem ps` and `tandem top`: from its entry in
// the daemon's answer to "sessions".
//
// Pure, but for UserName. Threading: none.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem::cli {

// Of its state, as Cell::colour.
const char* ColourOfState(const nlohmann::json& session);

// Why it does not run, for how long about, and which of `sessions` holds the GPU; "-" where it
// runs.
std::string WhyText(const nlohmann::json& session, const std::vector<nlohmann::json>& sessions);

}  // namespace tandem::cli
