#include "src/cuda/real_driver.h"

#include <cstring>

namespace tandem::cuda {
namespace {

struct Row {
  const char* symbol;
  const char* base;
  int since;
};

constexpr Row kRows[] = {
#define CU(symbol, base, since, shim, soft, parameters, arguments) {#symbol, #base, since},
#include "src/cuda/driver_api.def"
#undef CU
};

}  // namespace

RealDriver LoadRealDriver(void* library, SymbolLookup lookup) {
  RealDriver driver;
#define CU(symbol, base, since, shim, soft, parameters, arguments) \
  driver.symbol = reinterpret_cast<Fn_##symbol>(lookup(library, #symbol));
#include "src/cuda/driver_api.def"
#undef CU
  return driver;
}

const char* ResolveProcAddress(const char* base, int version, bool* known) {
  const Row* best = nullptr;
  *known = false;
  for (const Row& row : kRows) {
    if (std::strcmp(row.base, base) != 0) continue;
    *known = true;
    if (row.since <= version && (best == nullptr || row.since > best->since)) best = &row;
  }
  return best == nullptr ? nullptr : best->symbol;
}

const char* ErrorName(CUresult error) {
  switch (error) {
#define TANDEM_CASE(name, value, text) \
  case name:                           \
    return #name;
    TANDEM_CURESULTS(TANDEM_CASE)
#undef TANDEM_CASE
  }
  return nullptr;
}

const char* ErrorText(CUresult error) {
  switch (error) {
#define TANDEM_CASE(name, value, text) \
  case name:                           \
    return text;
    TANDEM_CURESULTS(TANDEM_CASE)
#undef TANDEM_CASE
  }
  return nullptr;
}

}  // namespace tandem::cuda
