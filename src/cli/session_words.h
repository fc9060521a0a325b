// How a session or a run stands, in the words of `tandem ps` and `tandem top`: from its entry in
// the daemon's answer to "sessions".
//
// Pure, but for UserName. Threading: none.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tandem::cli {

// Of its state, as Cell::colour.
const char* ColourOfState(const nlohmann::json& session);

// Why it does not run; "-" where it does.
std::string WhyText(const nlohmann::json& session);

}  // namespace tandem::cli
