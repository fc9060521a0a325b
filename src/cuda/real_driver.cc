#include "src/cuda/real_driver.h"

#include <cstring>

namespace tandem::cuda {
namespace {

struct Row {
  const char* symbol;
  const char* base;
  int since;
  const char* per_thread;  // the variant for per-thread default streams; null: it has none
};

constexpr Row kRows[] = {
#define CU(symbol, base, since, shim, soft, parameters, arguments) {#symbol, #base, since, nullptr},
#define CU_PT(symbol, suffix, base, since, shim, soft, parameters, arguments) \
  {#symbol, #base, since, #symbol #suffix},
#include "src/cuda/driver_api.def"
#undef CU_PT
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

const char* ResolveProcAddress(const char* base, int version, bool per_thread, bool* known,
                               int* since) {
  const Row* best = nullptr;
  *known = false;
  for (const Row& row : kRows) {
    if (std::strcmp(row.base, base) != 0) continue;
    *known = true;
    if (row.since <= version && (best == nullptr || row.since > best->since)) best = &row;
  }
  if (best == nullptr) return nullptr;
  if (since != nullptr) *since = best->since;
  return per_thread && best->per_thread != nullptr ? best->per_thread : best->symbol;
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
