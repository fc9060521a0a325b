// The file that `tandem doctor --bundle` writes for a bug report: one JSON object that people can
// read before they send it.
//
// Pure. Threading: none.
// Invariant: it holds no text from outside Tandem but what is listed in bundle.cc: no names of
// users, hosts, programs and runs, no paths, no values of variables.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "src/cli/doctor/checks.h"

namespace tandem::cli {

// `log`: the end of the daemon's log.
nlohmann::json Bundle(const Machine& machine, const std::vector<CheckResult>& results,
                      std::string_view log);

// A line of the daemon's log up to where text from outside may begin, which "…" stands for. What
// the daemon says behind that is kept where it is known.
std::string PublicLogLine(std::string_view line);

}  // namespace tandem::cli
