#include "src/cli/top/frame.h"

#include <gmock/gmock.h>

#include "src/cli/top/top_test.h"

namespace tandem::cli::top {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class FrameTest : public TopTest {
 protected:
  std::string Shown(size_t columns = 80, size_t rows = 24, bool unicode = true) {
    const Frame frame = Draw(model_, view_, {columns, rows, unicode, kUnixS});
    EXPECT_TRUE(rows == 0 || frame.size() == rows) << frame.size();
    for (const Line& line : frame) {
      size_t width = 0;
      for (const Cell& cell : line.cells) width += WidthOf(cell.text);
      EXPECT_LE(width, columns);
    }
    return ShowFrame(frame, false);
  }
  std::string SelectedLine(size_t columns, size_t rows) {
    std::string text;
    for (const Line& line : Draw(model_, view_, {columns, rows, true, kUnixS})) {
      if (line.selected) text += ShowFrame({line}, false);
    }
    return text;
  }

  View view_;
};

TEST_F(FrameTest, HasTheGpuItsSessionsAndTheKeys) {
  TakeTwo(10, 1);
  TakeTwo(12, 2);
  for (const auto& [columns, rows] : {std::pair{80u, 24u}, {200u, 50u}}) {
    const std::string text = Shown(columns, rows);
    EXPECT_THAT(text, HasSubstr("gpu0  Software GPU (software)   policy round-robin, in turns"));
    EXPECT_THAT(text, HasSubstr("util   50%"));
    EXPECT_THAT(text, HasSubstr("[mnist █"));
    EXPECT_THAT(text, HasSubstr("40 MiB free of 222 MiB"));
    EXPECT_THAT(text, HasSubstr("held  by mnist (3)"));
    EXPECT_THAT(text, HasSubstr("1st in line"));
    EXPECT_THAT(text, HasSubstr("19.5 s"));
    EXPECT_THAT(text, HasSubstr("hand-overs: 0 a minute, each about 21 ms"));
    EXPECT_THAT(text, HasSubstr("q quit h help"));
    EXPECT_THAT(text, HasSubstr("evil\\x1b[2J"));
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  }
  EXPECT_THAT(Shown(200, 50), HasSubstr("CLASS"));
}

TEST_F(FrameTest, FitsAnySize) {
  TakeTwo(10, 1);
  TakeTwo(12, 2);
  for (const Page page : {Page::kSessions, Page::kHelp, Page::kDetails}) {
    view_.page = page;
    for (const size_t columns : {1u, 5u, 20u, 40u, 79u, 80u, 133u, 200u}) {
      for (const size_t rows : {1u, 2u, 3u, 5u, 10u, 24u, 50u}) Shown(columns, rows);
    }
  }
}

TEST_F(FrameTest, IsAsciiWhereTheLocaleIsNotUtf8) {
  Take(10, Json::array({Gpu(0, 1)}), Json::array({Session(3, "naïve")}));
  Take(12, Json::array({Gpu(0, 2)}), Json::array({Session(3, "naïve"), Session(4, "b")}));
  view_.tree = true;
  const std::string text = Shown(80, 24, false);
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c > 0; })) << text;
  EXPECT_THAT(text, HasSubstr("na?ve ##"));
}

TEST_F(FrameTest, DividesTheBarByBytes) {
  TakeTwo(10);
  Json foreign = Gpu(0);
  foreign["foreign_bytes"] = 64 * kMiB;
  Json session = Session(3, "a");
  session["resident_bytes"] = 120 * kMiB;  // and a context of 8
  Take(11, Json::array({foreign}), Json::array({session}));
  const std::string text = Shown(6 + 2 + 23 + 32, 24, false);
  EXPECT_THAT(text, HasSubstr("[a ##############........others /]"));
}

TEST_F(FrameTest, ManyGpusTakeALineEach) {
  Json gpus = Json::array();
  for (uint64_t i = 0; i < 8; ++i) gpus.push_back(Gpu(i));
  Take(10, gpus, Json::array({Session(3, "mnist")}));
  const std::string text = Shown();
  EXPECT_THAT(text, HasSubstr("gpu7 "));
  EXPECT_THAT(text, HasSubstr("mnist"));
  for (uint64_t i = 8; i < 40; ++i) gpus.push_back(Gpu(i));
  Take(11, gpus, Json::array({Session(3, "mnist")}));
  EXPECT_THAT(Shown(), HasSubstr("and 29 more GPUs"));
}

TEST_F(FrameTest, TheSelectedSessionIsAlwaysSeen) {
  Json sessions = Json::array();
  for (uint64_t i = 1; i <= 60; ++i) sessions.push_back(Session(i, "job" + std::to_string(i)));
  Take(10, Json::array({Gpu(0)}), sessions);
  EXPECT_THAT(SelectedLine(80, 24), HasSubstr("job1 "));
  view_.selected = "session 47";
  EXPECT_THAT(SelectedLine(80, 24), HasSubstr("job47"));
  view_.selected = "session 60";
  EXPECT_THAT(SelectedLine(80, 24), HasSubstr("job60"));
  EXPECT_EQ(SelectedLine(80, 0), "");  // text has no selection
}

TEST_F(FrameTest, ShowsSharesWhereTheyCount) {
  Json gpu = Gpu(0);
  Json session = Session(3, "mnist");
  session["share"] = "30%";
  Take(10, Json::array({gpu}), Json::array({session}));
  EXPECT_THAT(Shown(80, 24), Not(HasSubstr("30%")));
  gpu["policy"] = "fair";
  Take(11, Json::array({gpu}), Json::array({session}));
  session["held_s"] = 0.5;
  Take(12, Json::array({gpu}), Json::array({session}));
  EXPECT_THAT(Shown(80, 24), HasSubstr("25% / 30%"));
}

TEST_F(FrameTest, TheTreeSumsWhatAUserHas) {
  Take(10, Json::array({Gpu(0)}), Json::array({Session(3, "a"), Session(4, "b")}));
  view_.tree = true;
  const std::string text = Shown();
  EXPECT_THAT(text, HasSubstr("root"));
  EXPECT_THAT(text, HasSubstr("2 sessions"));
  EXPECT_THAT(text, HasSubstr("128 MiB"));
  EXPECT_THAT(text, HasSubstr("└─"));
}

TEST_F(FrameTest, SaysThatTheDaemonIsGoneAndKeepsWhatItKnew) {
  model_.Lose("No daemon runs at /s");
  EXPECT_THAT(Shown(), HasSubstr("No daemon runs at /s"));
  TakeTwo(10);
  EXPECT_THAT(Shown(), Not(HasSubstr("No daemon")));
  model_.Lose("No daemon runs at /s");
  const std::string text = Shown();
  EXPECT_THAT(text, HasSubstr("No daemon runs at /s"));
  EXPECT_THAT(text, HasSubstr("mnist"));
}

TEST_F(FrameTest, AsTextItHasAllSessionsAndNoKeys) {
  Json sessions = Json::array();
  for (uint64_t i = 1; i <= 60; ++i) sessions.push_back(Session(i, "job" + std::to_string(i)));
  Take(10, Json::array({Gpu(0)}), sessions);
  const std::string text = Shown(100, 0);
  EXPECT_THAT(text, HasSubstr("job60"));
  EXPECT_THAT(text, Not(HasSubstr("quit")));
}

}  // namespace
}  // namespace tandem::cli::top
