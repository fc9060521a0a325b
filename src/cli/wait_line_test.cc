#include "src/cli/wait_line.h"

#include <gtest/gtest.h>

namespace tandem::cli {
namespace {

constexpr const char* kErase = "\r\x1b[K";

std::string Named(uint64_t uid) {
  return uid == 7 ? "anna" : std::to_string(uid);
}

wire::Waiting InLine() {
  wire::Waiting waiting;
  waiting.state = "waiting";
  waiting.reason = "turn";
  waiting.gpu = "gpu0";
  waiting.name = "mnist";
  waiting.place = 2;
  waiting.expected_ms = 40900;
  waiting.holder = "film-1";
  waiting.holders = 1;
  waiting.waited_ms = 1000;
  return waiting;
}

class WaitLineTest : public ::testing::Test {
 protected:
  std::string Say(WaitLine& line, const wire::Waiting& waiting) {
    return line.OnWaiting(waiting, now_, 200);
  }
  Instant now_{Seconds(100).ns};
};

TEST_F(WaitLineTest, OnATerminalItIsOneLineThatIsKeptCurrent) {
  WaitLine line(WaitLine::Style::kLive, Named);
  EXPECT_EQ(Say(line, InLine()),
            kErase + std::string("tandem: waiting for gpu0: 2nd in line, about 40 s; film-1 holds "
                                 "it; Ctrl-C to stop"));
  wire::Waiting next = InLine();
  next.place = 1;
  next.expected_ms = wire::Waiting::kUnknown;
  next.holders = 3;
  EXPECT_EQ(Say(line, next),
            kErase + std::string("tandem: waiting for gpu0: 1st in line; film-1 and 2 more hold "
                                 "it; Ctrl-C to stop"));
  EXPECT_EQ(Say(line, {}), kErase);
  EXPECT_EQ(Say(line, {}), "");
}

TEST_F(WaitLineTest, NeverWraps) {
  WaitLine line(WaitLine::Style::kLive, Named);
  EXPECT_EQ(line.OnWaiting(InLine(), now_, 20), kErase + std::string("tandem: waiting fo…"));
}

TEST_F(WaitLineTest, ElsewhereTheStartAndTheEndAreTold) {
  WaitLine line(WaitLine::Style::kLines, Named);
  EXPECT_EQ(Say(line, InLine()),
            "tandem: waiting for gpu0: 2nd in line, about 40 s; film-1 holds it\n");
  wire::Waiting next = InLine();
  next.place = 1;
  EXPECT_EQ(Say(line, next), "");
  now_ = now_ + Seconds(11);
  EXPECT_EQ(Say(line, {}), "tandem: waited 12 s for gpu0\n");
}

TEST_F(WaitLineTest, ALogIsNotFilledWithShortWaits) {
  WaitLine line(WaitLine::Style::kLines, Named);
  Say(line, InLine());
  Say(line, {});
  now_ = now_ + Seconds(30);
  EXPECT_EQ(Say(line, InLine()), "");
  EXPECT_EQ(Say(line, {}), "");
  now_ = now_ + Seconds(30);
  EXPECT_NE(Say(line, InLine()), "");
}

TEST_F(WaitLineTest, TheSecondInterruptOfAWaitEndsTheProgram) {
  WaitLine line(WaitLine::Style::kLive, Named);
  bool end = false;
  EXPECT_EQ(line.OnInterrupt(200, &end), "");  // nothing waits
  EXPECT_FALSE(end);
  Say(line, InLine());
  EXPECT_TRUE(line.OnInterrupt(200, &end).ends_with("; Ctrl-C again ends it"));
  EXPECT_FALSE(end);
  EXPECT_TRUE(Say(line, InLine()).ends_with("; Ctrl-C again ends it"));
  EXPECT_EQ(line.OnInterrupt(200, &end), kErase);
  EXPECT_TRUE(end);
}

TEST_F(WaitLineTest, EachWaitCountsItsOwnInterrupts) {
  WaitLine line(WaitLine::Style::kSilent, Named);
  bool end = false;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Say(line, InLine()), "");
    EXPECT_EQ(line.OnInterrupt(200, &end), "");
    EXPECT_FALSE(end);
    EXPECT_EQ(Say(line, {}), "");
  }
}

TEST_F(WaitLineTest, SaysWhatContinuesASuspendedProgram) {
  WaitLine line(WaitLine::Style::kLines, Named);
  wire::Waiting waiting = InLine();
  waiting.state = "suspended";
  waiting.suspended_by = 7;
  EXPECT_EQ(Say(line, waiting), "tandem: suspended by anna; `tandem resume mnist` continues it\n");
}

TEST_F(WaitLineTest, NamesReachTheTerminalEscaped) {
  WaitLine line(WaitLine::Style::kLines, Named);
  wire::Waiting waiting = InLine();
  waiting.holder = "\x1b[2J";
  EXPECT_EQ(Say(line, waiting).find('\x1b'), std::string::npos);
}

TEST_F(WaitLineTest, IsErasedWhenTheProgramStops) {
  WaitLine line(WaitLine::Style::kLive, Named);
  Say(line, InLine());
  EXPECT_EQ(line.OnPause(), kErase);
  EXPECT_EQ(line.OnPause(), "");
}

}  // namespace
}  // namespace tandem::cli
