#include "src/shim/testing/stand_in_functions.h"

#include <cstring>

// Each has a value of its own, so that no two are one. Those that are written out in
// stand_in_libcuda.cc take precedence.
extern "C" {
#define DRIVER_FUNCTION(symbol, base, since, variant)              \
  [[gnu::weak, gnu::visibility("default")]] int symbol() noexcept; \
  int symbol() noexcept {                                          \
    return 100000 + __COUNTER__;                                   \
  }
#include <stand_in_functions.inc>
#undef DRIVER_FUNCTION
}

namespace tandem::shim {
namespace {

namespace copy {
#define DRIVER_FUNCTION(symbol, base, since, variant) \
  int symbol() {                                      \
    return 200000 + __COUNTER__;                      \
  }
#include <stand_in_functions.inc>
#undef DRIVER_FUNCTION
}  // namespace copy

const StandInFunction kFunctions[] = {
#define DRIVER_FUNCTION(symbol, base, since, variant) \
  {#symbol,                                           \
   #base,                                             \
   since,                                             \
   variant[0] == '_',                                 \
   reinterpret_cast<void*>(&::symbol),                \
   reinterpret_cast<void*>(&copy::symbol)},
#include <stand_in_functions.inc>
#undef DRIVER_FUNCTION
};

const StandInFunction* Newest(const char* base, int version, bool per_thread, bool* known) {
  const StandInFunction* newest = nullptr;
  for (const StandInFunction& function : kFunctions) {
    if (std::strcmp(function.base, base) != 0) continue;
    *known = true;
    if (function.per_thread != per_thread || function.since > version) continue;
    if (newest == nullptr || function.since > newest->since) newest = &function;
  }
  return newest;
}

}  // namespace

const StandInFunction* FindStandInFunction(const char* base, int version, bool per_thread,
                                           bool* known) {
  *known = false;
  const StandInFunction* const variant = per_thread ? Newest(base, version, true, known) : nullptr;
  return variant != nullptr ? variant : Newest(base, version, false, known);
}

}  // namespace tandem::shim
