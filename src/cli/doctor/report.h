// What `tandem doctor` prints of its checks.
//
// Pure. Threading: none.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/cli/doctor/checks.h"
#include "src/cli/table.h"

namespace tandem::cli {

// A line for each finding, and one with what to do; lines are wrapped to the screen's columns.
std::string ReportText(const std::vector<CheckResult>& results, const Screen& screen);

// docs/json.md lists the keys. `words` makes the text of a sentence: Shown or Hidden.
nlohmann::json ReportJson(const Machine& machine, const std::vector<CheckResult>& results,
                          std::string (*words)(std::string_view sentence));

}  // namespace tandem::cli
