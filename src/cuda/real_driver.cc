#include "src/cuda/real_driver.h"

#include <algorithm>
#include <string_view>

namespace tandem::cuda {
namespace {

// Default streams of one per thread came with it.
constexpr int kPerThreadSince = 7000;

struct Row {
  constexpr Row(std::string_view name, std::string_view base_name, int first)
      : symbol(name),
        base(base_name),
        per_thread(name.ends_with("_ptds") || name.ends_with("_ptsz")),
        since(per_thread ? std::max(first, kPerThreadSince) : first) {}

  std::string_view symbol;
  std::string_view base;
  bool per_thread;  // it is the variant for such streams
  int since;
};

constexpr Row kRows[] = {
#define CU(symbol, base, since, shim, soft, parameters, arguments) {#symbol, #base, since},
#define CU_PASS(symbol, base, since, why) {#symbol, #base, since},
#define CU_REFUSE(symbol, base, since, why) {#symbol, #base, since},
#include "src/cuda/driver_api.def"
#undef CU_REFUSE
#undef CU_PASS
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

bool IsListed(const char* symbol) {
  return std::any_of(std::begin(kRows), std::end(kRows),
                     [symbol](const Row& row) { return row.symbol == symbol; });
}

ProcAddress ResolveProcAddress(const char* base, int version, bool per_thread,
                               bool (*exists)(const char* symbol)) {
  ProcAddress best;
  for (const Row& row : kRows) {
    if (row.base != base || (exists != nullptr && !exists(row.symbol.data()))) continue;
    best.known = true;
    if (row.since > version || (row.per_thread && !per_thread)) continue;
    const bool newer = row.since > best.since || (row.since == best.since && row.per_thread);
    if (newer) best = {row.symbol.data(), row.since, true};
  }
  return best;
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
