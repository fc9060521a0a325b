#include "src/core/budget.h"

#include <cstdlib>

#include "src/core/check.h"

namespace tandem::core {

void CheckFailed(const char* /*what*/) {
  // The expression is in the core dump and the caller in its stack: core writes to no file.
  std::abort();
}

void Budget::SetFixed(Bytes bytes) {
  Recharge(fixed_, bytes);
  fixed_ = bytes;
}

void Budget::SetTotal(Bytes total) {
  TANDEM_CHECK(charged_ <= total + spare_);
  total_ = total;
}

void Budget::Recharge(Bytes from, Bytes to) {
  TANDEM_CHECK(from <= charged_);
  const Bytes others = charged_ - from;
  TANDEM_CHECK(to <= total_ + spare_ - others);
  charged_ = others + to;
}

}  // namespace tandem::core
