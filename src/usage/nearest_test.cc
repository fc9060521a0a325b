#include "src/usage/nearest.h"

#include <gtest/gtest.h>

namespace tandem::usage {
namespace {

TEST(Nearest, KnowsWhatWasMeant) {
  const std::vector<std::string> words = {"run", "ps", "status", "handovers"};
  EXPECT_EQ(Nearest("runn", words), "run");
  EXPECT_EQ(Nearest("sattus", words), "status");
  EXPECT_EQ(Nearest("handover", words), "handovers");
  EXPECT_EQ(Nearest("python3", words), std::nullopt);
  EXPECT_EQ(Nearest("run", {}), std::nullopt);
}

}  // namespace
}  // namespace tandem::usage
