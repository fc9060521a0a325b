// FakeProcess: what process.h declares, for tests of hooks: a driver of the test's and one guest.
//
// Threading: any thread. One at a time.
#pragma once

#include "src/shim/program/process.h"

namespace tandem::shim {

// From now on the process has these; null: no driver, no guest.
void SetFakeProcess(const cuda::RealDriver* real, Guest* guest);

}  // namespace tandem::shim
