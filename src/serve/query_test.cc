#include "src/serve/query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/serve/plan_answer.h"

namespace tandem::serve {
namespace {

using ::testing::HasSubstr;

TEST(QueryTest, TakesWhatIsKnownOnce) {
  const auto query = Query::Parse({{"by", "user"}, {"n", "7"}}, {"by", "n", "since"});
  ASSERT_TRUE(query.ok());
  std::string by = "run", since = "7d";
  query->Read("by", &by);
  query->Read("since", &since);
  EXPECT_EQ(by, "user");
  EXPECT_EQ(since, "7d");
  EXPECT_EQ(query->Number("n", 1, 1, 10).value(), 7);
  EXPECT_EQ(query->Number("m", 1, 1, 10).value(), 1);
  EXPECT_FALSE(query->Number("n", 1, 1, 6).ok());
  EXPECT_FALSE(query->Number("by", 1, 1, 6).ok());
}

TEST(QueryTest, RefusesTheRest) {
  EXPECT_THAT(Query::Parse({{"x", ""}}, {"by", "n"}).error().message,
              HasSubstr("'x' is no parameter; there are by, n"));
  EXPECT_FALSE(Query::Parse({{"x", ""}}, {}).ok());
  EXPECT_THAT(Query::Parse({{"n", "1"}, {"n", "1"}}, {"n"}).error().message, HasSubstr("twice"));
  EXPECT_FALSE(Query::Parse({{"n", std::string(257, '1')}}, {"n"}).ok());
  const auto number = [](const char* text) {
    return Query::Parse({{"n", text}}, {"n"})->Number("n", 1, 1, 60).ok();
  };
  for (const char* text : {"", "0", "61", "-1", "1x", "1.5", "99999999999", " 1"}) {
    EXPECT_FALSE(number(text)) << text;
  }
}

TEST(QueryTest, APlanIsComputed) {
  const Answer answer = PlanAnswer({{"users", "10"}, {"burst", "30s"}, {"pause", "5m"}});
  EXPECT_EQ(answer.status, 200);
  const auto json = ParseJson(answer.body);
  EXPECT_EQ(json.at("users"), 10);
  EXPECT_EQ(answer.body, PlanAnswer({{"users", "10"}, {"burst", "30s"}, {"edit", "5m"}}).body);
  EXPECT_EQ(PlanAnswer({}).status, 400);
  EXPECT_EQ(PlanAnswer({{"users", "0"}}).status, 400);
  EXPECT_EQ(PlanAnswer({{"users", "1"}, {"burst", "fast"}}).status, 400);
  EXPECT_EQ(PlanAnswer({{"users", "1"}, {"svg", "/tmp/x"}}).status, 400);
}

}  // namespace
}  // namespace tandem::serve
