#include "src/shim/hooks/hook_table.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "src/cuda/real_driver.h"
#include "src/shim/driver/unknown_functions.h"
#include "src/shim/hooks/refused_hooks.h"
#include "src/shim/os/true_symbols.h"
#include "src/shim/program/process.h"

namespace tandem::shim {
namespace {

#define TANDEM_TABLE_PASS PLAIN
#define TANDEM_TABLE_OWN HOOKED
#define TANDEM_TABLE_GATE(stream) HOOKED
#define TANDEM_TABLE_HOLD HOOKED
#define TANDEM_ADDRESS_PLAIN(symbol) nullptr
#define TANDEM_ADDRESS_HOOKED(symbol) reinterpret_cast<void*>(&::symbol)
#define TANDEM_ADDRESS_(kind, symbol) TANDEM_ADDRESS_##kind(symbol)
#define TANDEM_ADDRESS(kind, symbol) TANDEM_ADDRESS_(kind, symbol)

struct Row {
  const char* symbol;
  void* hook;  // null: it is not hooked
};

const Row kRows[] = {
#define CU(symbol, base, since, shim, soft, parameters, arguments) \
  {#symbol, TANDEM_ADDRESS(TANDEM_TABLE_##shim, symbol)},
#define CU_REFUSE(symbol, base, since, why) {#symbol, reinterpret_cast<void*>(&::symbol)},
#include "src/cuda/driver_api.def"
#undef CU_REFUSE
#undef CU
};

struct Pair {
  void* real;
  void* hook;
};

// The functions that a library has and libtandem.so hooks.
struct HookTable {
  void* library;
  std::vector<Pair> pairs;  // sorted by `real`
};

constinit std::atomic<const HookTable*> hook_table{nullptr};

const HookTable* MakeHookTable(void* library) {
  auto* const made = new HookTable{library, {}};
  for (const Row& row : kRows) {
    void* const real = row.hook == nullptr ? nullptr : TrueDlsym()(library, row.symbol);
    if (real != nullptr) made->pairs.push_back({real, row.hook});
  }
  const auto by_address = [](const Pair& a, const Pair& b) { return a.real < b.real; };
  std::stable_sort(made->pairs.begin(), made->pairs.end(), by_address);
  return made;
}

// Null as long as the program has not loaded the driver.
const HookTable* TheHookTable() {
  const HookTable* known = hook_table.load(std::memory_order_acquire);
  void* const library = known == nullptr ? DriverLibrary() : nullptr;
  if (library == nullptr) return known;
  const HookTable* const made = MakeHookTable(library);
  dlerror();  // of what this driver lacks
  if (hook_table.compare_exchange_strong(known, made, std::memory_order_acq_rel)) return made;
  delete made;
  return known;
}

}  // namespace

void* Substitute(void* found, const char* name) {
  if (found == nullptr) return nullptr;
  if (std::strncmp(name, "nvml", 4) == 0) return SubstituteNvml(found, name);
  const HookTable* known = hook_table.load(std::memory_order_acquire);
  if (known == nullptr) {
    // Only a name of the driver's is worth asking the linker whether the driver is there.
    if (std::strncmp(name, "cu", 2) != 0) return found;
    known = TheHookTable();
    if (known == nullptr) return found;
  }
  const auto at =
      std::lower_bound(known->pairs.begin(), known->pairs.end(), found,
                       [](const Pair& pair, void* address) { return pair.real < address; });
  if (at != known->pairs.end() && at->real == found) return at->hook;
  void* const refusal = cuda::IsListed(name) ? nullptr : RefusalOf(name);
  const bool drivers = refusal != nullptr && TrueDlsym()(known->library, name) == found;
  return drivers ? refusal : found;
}

void* HookOf(const char* symbol) {
  for (const Row& row : kRows) {
    if (std::strcmp(symbol, row.symbol) == 0) return row.hook;
  }
  return nullptr;
}

}  // namespace tandem::shim
