#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "src/cli/listing.h"

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTwo[] = R"({"sessions":[
    {"id":3,"gpu":0,"uid":0,"name":"mnist","program":"python3","pid":17,"class":"interactive",
     "state":"running","resident_bytes":188743680,"swapped_bytes":0,"allocated_bytes":188743680,
     "limit_bytes":268435456,"waited_s":75.2,"elapsed_s":3700,"reason":null},
    {"id":4,"gpu":0,"uid":0,"name":"evil\u001b[2J","program":"python3","pid":18,"class":"batch",
     "state":"waiting","resident_bytes":0,"swapped_bytes":0,"allocated_bytes":188743680,
     "limit_bytes":268435456,"waited_s":40,"elapsed_s":3700,"reason":"2nd in line",
     "expected_wait_s":40}],
    "runs":[{"run":9,"name":"shell","program":"bash","uid":0,"pid":20,"class":"interactive",
             "state":"unused","state_text":"uses no GPU","elapsed_s":12}]})";

std::string Shown(const std::string& json, const Screen& screen = {}) {
  const auto table = SessionsTable(json, screen);
  return table.ok() ? *table : table.error().message;
}

TEST(SessionsTable, CutsLongNames) {
  const auto table = [](const std::string& name) {
    return Shown(R"({"sessions":[{"id":1,"name":")" + name + R"("}]})");
  };
  std::string umlauts;
  for (int i = 0; i < 32; ++i) umlauts += "ü";
  EXPECT_THAT(table(umlauts), HasSubstr(umlauts + " "));
  EXPECT_THAT(table(umlauts + "ü"), HasSubstr(umlauts.substr(2) + "…"));
  EXPECT_THAT(table(std::string(4000, 'x')), Not(HasSubstr(std::string(32, 'x'))));
}

TEST(SessionsTable, HasALineForEachSessionAndForRunsThatHaveNone) {
  const std::string table = Shown(kTwo);
  EXPECT_THAT(table, HasSubstr("mnist"));
  EXPECT_THAT(table, HasSubstr("180 MiB"));
  EXPECT_THAT(table, HasSubstr("1 min 15 s"));
  EXPECT_THAT(table, HasSubstr("2nd in line, about 40.0 s"));
  EXPECT_THAT(table, HasSubstr("evil\\x1b[2J"));
  EXPECT_THAT(table, HasSubstr("unused"));
  EXPECT_THAT(table, HasSubstr("uses no GPU"));
  EXPECT_THAT(table, Not(HasSubstr("\x1b")));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 4);
}

TEST(SessionsTable, FitsAnyTerminalByLeavingColumnsOut) {
  for (const size_t columns : {1u, 20u, 40u, 60u, 80u, 100u, 132u, 200u}) {
    std::istringstream lines(Shown(kTwo, {columns, false}));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(WidthOf(line), columns) << line;
    }
  }
  const std::string table = Shown(kTwo, {80, false});
  for (const char* title : {"ID", "NAME", "STATE", "RESIDENT", "WAITED", "WHY"}) {
    EXPECT_THAT(table, HasSubstr(title));
  }
  EXPECT_THAT(table, Not(HasSubstr("PROGRAM")));
  EXPECT_THAT(Shown(kTwo), HasSubstr("PROGRAM"));
}

TEST(SessionsTable, ColoursStatesWhereThatIsWanted) {
  EXPECT_THAT(Shown(kTwo, {0, true}), HasSubstr("\x1b[32mrunning\x1b[0m"));
}

TEST(SessionsTable, SaysHowASuspendedOneGoesOn) {
  const std::string json =
      R"({"sessions":[{"id":1,"name":"mnist","state":"suspended","suspended_by_uid":0}]})";
  EXPECT_THAT(Shown(json), HasSubstr("by root; `tandem resume mnist` continues it"));
}

}  // namespace
}  // namespace tandem::cli
