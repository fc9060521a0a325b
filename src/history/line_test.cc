#include "src/history/line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/base/json.h"

namespace tandem::history {
namespace {

using Json = nlohmann::json;

Json Parsed(decltype(Record::what) what) {
  const std::string line =
      LineOf(Record{Instant(5000000000), 1700000000000000000 + 1500, std::move(what)});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  return ParseJson(line);
}

TEST(LineTest, SaysWhenAndWhat) {
  const Json line = Parsed(Told{1, core::event::Ready{core::SessionId{7}, MiB(3)}});
  EXPECT_EQ(line, ParseJson(R"({"at": "2023-11-14T22:13:20.000001Z", "ns": 5000000000,
      "event": "ready", "session": 7, "need_bytes": 3145728, "gpu": 1})"));
}

TEST(LineTest, TheDaemonNamesTheFormatAndTheGpus) {
  DaemonStarted started{"0.1", 42, "fair", {}};
  started.gpus.push_back({0, "GPU-1", "Card", true, MiB(134), MiB(100), MiB(8), MiB(2)});
  const Json line = Parsed(started);
  EXPECT_EQ(line["format"], kEventFormat);
  EXPECT_EQ(line["policy"], "fair");
  EXPECT_EQ(line["gpus"][0]["budget_bytes"], MiB(100).count);
}

TEST(LineTest, AHandOverSaysWhatMovedAndWhen) {
  core::Handover handover;
  handover.epoch = 9;
  handover.to = core::SessionId{2};
  handover.from = {core::SessionId{1}};
  handover.why = core::Why::kTurnEnded;
  handover.out = MiB(40);
  handover.revoked_at = Instant(10);
  handover.running_at = Instant(30);
  const Json line = Parsed(HandedOver{0, handover, {{core::SessionId{2}, MiB(60)}}});
  EXPECT_EQ(line["event"], "handover");
  EXPECT_EQ(line["from"], ParseJson("[1]"));
  EXPECT_EQ(line["reason_code"], "turn_ended");
  EXPECT_EQ(line["out_bytes"], MiB(40).count);
  EXPECT_EQ(line["revoked_ns"], 10);
  EXPECT_EQ(line["running_ns"], 30);
  EXPECT_EQ(line["resident_bytes"]["2"], MiB(60).count);
}

TEST(LineTest, ProgressAndConsentHaveNoLine) {
  const auto has_line = [](decltype(Record::what) what) {
    return !LineOf(Record{Instant(), 0, std::move(what)}).empty();
  };
  EXPECT_FALSE(has_line(Told{0, core::event::Tick{}}));
  EXPECT_FALSE(has_line(Told{0, core::event::Restored{}}));
  EXPECT_FALSE(has_line(Decided{0, core::action::Reserved{core::SessionId{1}, 1, true}}));
  EXPECT_TRUE(has_line(Decided{0, core::action::Reserved{core::SessionId{1}, 1, false}}));
}

TEST(LineTest, NamesThatAreNoTextAreStillJson) {
  auto who = std::make_shared<SessionIdentity>();
  who->program = "a\xff\x1b[31m\n";
  const Json line = Parsed(SessionIdentified{who});
  EXPECT_EQ(line["program"], "a\uFFFD\x1b[31m\n");
}

}  // namespace
}  // namespace tandem::history
