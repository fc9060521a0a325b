#include "src/cli/plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/base/json.h"

namespace tandem::cli {
namespace {

// As the reference table of the design has it, so that 5 users keep within two minutes.
PlanOptions People(int users) {
  PlanOptions options;
  options.users = users;
  options.away = "1h";
  return options;
}

PlanAnswer AnswerTo(const PlanOptions& options) {
  const Result<Question> question = Understand(options);
  EXPECT_TRUE(question.ok()) << question.error().message;
  return Answer(*question);
}

TEST(PlanTest, SaysHowLongPeopleWaitAndHowManyMay) {
  const std::string few = PlanText(AnswerTo(People(2)));
  EXPECT_NE(few.find("A job waits 1.9 s on average, and one of a hundred longer than 55 s.\n"
                     "It could be 3 more until that is 2 min: 5 in all.\n"),
            std::string::npos)
      << few;
  EXPECT_NE(few.find("If each kept the GPU until it is idle for 10 min, that would be 1 min 57 s "
                     "and 31 min 26 s."),
            std::string::npos)
      << few;
  const std::string many = PlanText(AnswerTo(People(10)));
  EXPECT_NE(many.find("A job waits 29 s on average, and one of a hundred longer than 3 min 21 s.\n"
                      "To keep that under 2 min, allow at most 5 users.\n"),
            std::string::npos)
      << many;
}

TEST(PlanTest, JsonHasTheSame) {
  const auto json = ParseJson(PlanJson(AnswerTo(People(10))));
  EXPECT_EQ(json["users"], 10);
  EXPECT_EQ(json["most_users"], 5);
  EXPECT_NEAR(json["mean_wait_s"].get<double>(), 28.8, 0.06);
  EXPECT_TRUE(json["exclusive"].is_null());
  const auto& curve = json["curve"];
  EXPECT_GT(curve.size(), 10u);
  for (size_t point = 1; point < curve.size(); ++point) {
    EXPECT_GT(curve[point]["users"], curve[point - 1]["users"]);
    EXPECT_GE(curve[point]["p99_wait_s"], curve[point - 1]["p99_wait_s"]);
  }
}

TEST(PlanTest, DrawsTwoCurves) {
  const std::string svg = PlanSvg(AnswerTo(People(30)));
  size_t curves = 0;
  for (size_t at = svg.find("<polyline"); at != std::string::npos;
       at = svg.find("<polyline", at + 1)) {
    ++curves;
  }
  EXPECT_EQ(curves, 2u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(PlanTest, MistakesAreNamed) {
  const auto mistake = [](auto change) {
    PlanOptions options = People(10);
    change(options);
    const Result<Question> question = Understand(options);
    return question.ok() ? std::string("none") : question.error().message;
  };
  using Options = PlanOptions&;
  EXPECT_EQ(mistake([](Options options) { options.users = 0; }), "--users must be 1 to 10000");
  EXPECT_EQ(mistake([](Options options) { options.gpus = -1; }), "--gpus must be 1 to 1000");
  EXPECT_EQ(mistake([](Options options) { options.burst = "0"; }),
            "--burst must be more than nothing");
  EXPECT_EQ(mistake([](Options options) { options.memory = "81G"; }),
            "--memory 81G is more than a card has (--card 80G)");
  EXPECT_EQ(mistake([](Options options) { options.bus = "0"; }), "--bus must be more than nothing");
  EXPECT_NE(mistake([](Options options) { options.edit = "soon"; }), "none");
  EXPECT_EQ(mistake([](Options options) { options.away = "0"; }), "none");
}

}  // namespace
}  // namespace tandem::cli
