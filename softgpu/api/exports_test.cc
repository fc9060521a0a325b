// What libcuda.so.1 exports: a symbol for every row of driver_api.def that is there, and nothing
// else.
#include <gtest/gtest.h>
#include <stdio.h>

#include <set>
#include <string>

namespace tandem::soft {
namespace {

std::set<std::string> Exported() {
  std::set<std::string> symbols;
  FILE* listing = popen(NM " -D --defined-only --format=posix " SOFT_LIBCUDA, "r");
  char line[1024];
  while (listing != nullptr && fgets(line, sizeof(line), listing) != nullptr) {
    const std::string text = line;
    symbols.insert(text.substr(0, text.find(' ')));
  }
  if (listing != nullptr) pclose(listing);
  return symbols;
}

TEST(ExportsTest, ExactlyTheRowsThatAreThere) {
  std::set<std::string> expected;
#define EXPECT_ROW_YES(symbol) expected.insert(#symbol);
#define EXPECT_ROW_LOADER(symbol) expected.insert(#symbol);
#define EXPECT_ROW_NO(symbol)
#define CU(symbol, base, since, shim, soft, parameters, arguments) EXPECT_ROW_##soft(symbol)
#include "src/cuda/driver_api.def"
#undef CU
  EXPECT_EQ(Exported(), expected);
}

}  // namespace
}  // namespace tandem::soft
