#include "src/cli/selection.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/base/json.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

constexpr char kThree[] = R"({"sessions":[
    {"id":1,"gpu":0,"uid":0,"name":"b","waited_s":1.5,"resident_bytes":10},
    {"id":2,"gpu":1,"uid":4242,"name":"a","waited_s":20,"resident_bytes":5},
    {"id":3,"gpu":1,"uid":0,"name":"c","waited_s":3,"resident_bytes":7}],
    "runs":[{"run":9,"name":"shell","uid":4242}]})";

// The numbers of the sessions, then those of the runs.
std::vector<int> Selected(const Selection& selection) {
  const auto text = Select(kThree, selection);
  EXPECT_TRUE(text.ok());
  const Json answer = ParseJson(*text);
  std::vector<int> numbers;
  for (const Json& session : answer["sessions"]) numbers.push_back(session["id"]);
  for (const Json& run : answer["runs"]) numbers.push_back(run["run"]);
  return numbers;
}

TEST(SelectionTest, AllWhereNothingIsSaid) {
  EXPECT_EQ(*Select(kThree, {}), kThree);
}

TEST(SelectionTest, AUserByNameOrNumber) {
  EXPECT_EQ(Selected({"root", {}, ""}), (std::vector<int>{1, 3}));
  EXPECT_EQ(Selected({"4242", {}, ""}), (std::vector<int>{2, 9}));
  EXPECT_EQ(Selected({"ghost", {}, ""}), std::vector<int>{});
}

TEST(SelectionTest, AGpu) {
  EXPECT_EQ(Selected({"", 1, ""}), (std::vector<int>{2, 3}));
  EXPECT_EQ(Selected({"root", 1, ""}), std::vector<int>{3});
}

TEST(SelectionTest, Sorted) {
  EXPECT_EQ(Selected({"", {}, "waited"}), (std::vector<int>{2, 3, 1, 9}));
  EXPECT_EQ(Selected({"", {}, "name"}), (std::vector<int>{2, 1, 3, 9}));
  EXPECT_EQ(Selected({"", {}, "resident"}), (std::vector<int>{1, 3, 2, 9}));
  for (const std::string& key : SortKeys()) EXPECT_EQ(Selected({"", {}, key}).size(), 4u) << key;
}

TEST(SelectionTest, AnAnswerOfAnotherVersionIsTaken) {
  EXPECT_TRUE(Select(R"({"sessions":[3,null,{"gpu":"x"}]})", {"root", 0, "waited"}).ok());
  EXPECT_FALSE(Select("{", {"root", 0, "waited"}).ok());
}

}  // namespace
}  // namespace tandem::cli
