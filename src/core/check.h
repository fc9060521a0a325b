// TANDEM_CHECK: aborts where an invariant of the decisions is broken, in release builds too. Going
// on would hand the same memory to two programs.
#pragma once

namespace tandem::core {

[[noreturn]] void CheckFailed(const char* what);

}  // namespace tandem::core

#define TANDEM_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::tandem::core::CheckFailed(#condition))
