// Looks every driver function up in every way, under LD_PRELOAD=libtandem.so and beside the
// stand-in for the driver, and says what is wrong: the shim has to hand out its own function
// exactly where its table says so, and to leave everything else as the driver gave it.
//
//   look_up_all TABLES      TABLES: the folder tests/data
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/cuda/driver_types.h"

namespace {

using GetProc = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
using OlderGetProc = CUresult (*)(const char*, void**, int, cuuint64_t);
using TrueLookUp = const char* (*)(const char*, void**, int, cuuint64_t,
                                   CUdriverProcAddressQueryResult*);

constexpr std::array<cuuint64_t, 3> kFlags = {0, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                                              CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};

int failures = 0;
int looked_up = 0;

void Expect(bool holds, const std::string& what, const std::string& found = "") {
  ++looked_up;
  if (holds) return;
  std::printf("wrong: %s%s%s\n", what.c_str(), found.empty() ? "" : ": ", found.c_str());
  ++failures;
}

constexpr std::pair<std::string_view, std::string_view> kRows[] = {
#define CU(symbol, base, since, shim, soft, parameters, arguments) {#symbol, #shim},
#define CU_REFUSE(symbol, base, since, why) {#symbol, "REFUSE"},
#include "src/cuda/driver_api.def"
#undef CU_REFUSE
#undef CU
};

bool IsHooked(std::string_view symbol) {
  static const std::map<std::string_view, std::string_view> rows(std::begin(kRows),
                                                                 std::end(kRows));
  const auto row = rows.find(symbol);
  return row != rows.end() && row->second != "PASS";
}

// "libtandem.so cuInit"
std::string Name(void* function) {
  Dl_info info{};
  if (function == nullptr || dladdr(function, &info) == 0) return "nothing";
  const std::string path = info.dli_fname;
  const char* const symbol = info.dli_sname;
  return path.substr(path.rfind('/') + 1) + " " + (symbol == nullptr ? "unnamed" : symbol);
}

using Table = std::vector<std::vector<std::string>>;

// Without its first line, which names the columns.
Table ReadTable(const std::string& path) {
  Table table;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream cells(line);
    std::vector<std::string>& row = table.emplace_back();
    for (std::string cell; std::getline(cells, cell, '\t');) row.push_back(cell);
  }
  Expect(!table.empty(), path + " can be read");
  return table;
}

void ByDlsym(void* driver, const Table& functions) {
  for (const auto& row : functions) {
    const std::string& symbol = row.at(0);
    const std::string expected = (IsHooked(symbol) ? "libtandem.so " : "libcuda.so.1 ") + symbol;
    const std::string found = Name(dlsym(driver, symbol.c_str()));
    Expect(found == expected, "dlsym for " + expected, found);
  }
}

struct LookUps {
  GetProc shim;
  OlderGetProc older_shim;
  TrueLookUp driver;

  // The symbol that the driver found, or how it says that there is none.
  std::string ByName(const std::string& base, int version, cuuint64_t flags) const {
    void* expected = nullptr;
    CUdriverProcAddressQueryResult expected_status{};
    const char* const symbol = driver(base.c_str(), &expected, version, flags, &expected_status);
    void* found = nullptr;
    CUdriverProcAddressQueryResult status{};
    const CUresult result = shim(base.c_str(), &found, version, flags, &status);
    void* older = nullptr;
    const CUresult older_result = older_shim(base.c_str(), &older, version, flags);

    const std::string what =
        base + " of version " + std::to_string(version) + " with flags " + std::to_string(flags);
    Expect(result == CUDA_SUCCESS && status == expected_status, what + ": the driver's status");
    Expect((older_result == CUDA_SUCCESS) == (symbol != nullptr), what + ": the driver's result");
    Expect(older == found, what + ": the same by the older function");
    if (symbol != nullptr && IsHooked(symbol)) {
      Expect(Name(found) == std::string("libtandem.so ") + symbol, what, Name(found));
    } else {
      Expect(found == expected, what + ", the driver's", Name(found));
    }
    if (symbol != nullptr) return symbol;
    return status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT ? "VERSION" : "NOTFOUND";
  }
};

// At each version at which a name begins to mean something, just before that, and today.
void ByVersions(const LookUps& look_ups, const Table& versions) {
  std::map<std::string, std::set<int>> asked;
  for (const auto& row : versions) {
    const int since = std::stoi(row.at(1));
    asked[row.at(0)].insert({since - 1, since, 13000});
  }
  for (const auto& [base, its_versions] : asked) {
    for (const int version : its_versions) {
      for (const cuuint64_t flags : kFlags) look_ups.ByName(base, version, flags);
    }
  }
}

// What the runtime asks for, in its order.
void AsTheRuntime(const LookUps& look_ups, const Table& asked) {
  for (const auto& row : asked) {
    const std::string found =
        look_ups.ByName(row.at(0), std::stoi(row.at(1)), std::stoull(row.at(2)));
    Expect(found == row.at(3), row.at(0), found);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string tables = argc > 1 ? argv[1] : ".";
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  ByDlsym(driver, ReadTable(tables + "/driver_api_classes.tsv"));
  const LookUps look_ups = {
      reinterpret_cast<GetProc>(dlsym(driver, "cuGetProcAddress_v2")),
      reinterpret_cast<OlderGetProc>(dlsym(driver, "cuGetProcAddress")),
      reinterpret_cast<TrueLookUp>(dlsym(driver, "stand_in_look_up")),
  };
  ByVersions(look_ups, ReadTable(tables + "/getproc_versions.tsv"));
  AsTheRuntime(look_ups, ReadTable(tables + "/cudart13_getproc_lookups.tsv"));
  std::printf("%d look-ups\n", looked_up);
  return failures == 0 ? 0 : 1;
}
