#include "src/cli/names.h"

#include <gtest/gtest.h>

namespace tandem::cli {
namespace {

TEST(Names, OfSessionsAndRunsThatAShellCannotMistake) {
  const std::string sessions =
      "{\"sessions\":[{\"id\":3,\"name\":\"film\"},{\"id\":4,\"name\":\"film\"},"
      "{\"id\":5,\"name\":\"$(touch x)\"},{\"id\":6,\"name\":\"--all\"}],"
      "\"runs\":[{\"id\":null,\"name\":\"shell-1\"},{\"name\":\"a b\"}]}";
  EXPECT_EQ(SessionNames(sessions), "3\n4\n5\n6\nfilm\nshell-1\n");
  EXPECT_EQ(SessionNames("nonsense"), "");
}

TEST(Names, OfGpus) {
  EXPECT_EQ(GpuNames(R"({"gpus":[{},{}]})"), "gpu0\ngpu1\nall\n");
}

}  // namespace
}  // namespace tandem::cli
