#include "src/cli/doctor/checks.h"

#include <algorithm>

namespace tandem::cli {
namespace {

struct Check {
  const char* name;
  Findings (*run)(const Machine& machine);
};
constexpr Check kChecks[] = {
    {"driver", CheckDriver},
    {"libraries", CheckLibraries},
    {"files", CheckFiles},
    {"preload", CheckPreload},
    {"daemon", CheckDaemon},
    {"versions", CheckVersions},
    {"host memory", CheckHostMemory},
    {"control group", CheckControlGroups},
    {"huge pages", CheckHugePages},
    {"locked memory", CheckLockedMemory},
    {"overcommit", CheckOvercommit},
    {"cards", CheckCards},
    {"other programs", CheckOtherPrograms},
    {"MPS", CheckMps},
    {"card modes", CheckCardModes},
    {"container", CheckContainer},
};

}  // namespace

std::vector<CheckResult> RunChecks(const Machine& machine) {
  std::vector<CheckResult> results;
  for (const Check& check : kChecks) results.push_back({check.name, check.run(machine)});
  if (!machine.program.empty()) results.push_back({"program", CheckProgram(machine)});
  return results;
}

Severity WorstOf(const Findings& findings) {
  return std::max_element(
             findings.begin(), findings.end(),
             [](const Finding& a, const Finding& b) { return a.severity < b.severity; })
      ->severity;
}

Severity WorstOf(const std::vector<CheckResult>& results) {
  Severity worst = Severity::kOk;
  for (const CheckResult& result : results) worst = std::max(worst, WorstOf(result.findings));
  return worst;
}

}  // namespace tandem::cli
