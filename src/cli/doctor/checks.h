// The checks of `tandem doctor`. Each looks at one thing and gives at least one finding.
//
// Pure, but for reading files below the machine's root.
#pragma once

#include <vector>

#include "src/cli/doctor/finding.h"
#include "src/cli/doctor/machine.h"

namespace tandem::cli {

// driver_checks.cc
Findings CheckDriver(const Machine& machine);
Findings CheckLibraries(const Machine& machine);
Findings CheckProgram(const Machine& machine);  // none without a program
// tandem_checks.cc
Findings CheckFiles(const Machine& machine);
Findings CheckPreload(const Machine& machine);
Findings CheckDaemon(const Machine& machine);
Findings CheckVersions(const Machine& machine);
// host_checks.cc
Findings CheckHostMemory(const Machine& machine);
Findings CheckControlGroups(const Machine& machine);
Findings CheckHugePages(const Machine& machine);
Findings CheckLockedMemory(const Machine& machine);
Findings CheckOvercommit(const Machine& machine);
Findings CheckContainer(const Machine& machine);
// card_checks.cc
Findings CheckCards(const Machine& machine);
Findings CheckOtherPrograms(const Machine& machine);
Findings CheckMps(const Machine& machine);
Findings CheckCardModes(const Machine& machine);

struct CheckResult {
  const char* name;
  Findings findings;
};
// All of them, in the order of the list that people see.
std::vector<CheckResult> RunChecks(const Machine& machine);

// The most serious of them. REQUIRES: there is one.
Severity WorstOf(const Findings& findings);
Severity WorstOf(const std::vector<CheckResult>& results);

}  // namespace tandem::cli
