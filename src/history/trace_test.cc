#include "src/history/trace.h"

#include <gtest/gtest.h>

#include "src/base/json.h"

namespace tandem::history {
namespace {

using Json = nlohmann::json;

class TraceTest : public ::testing::Test {
 protected:
  void Say(int64_t ns, const std::string& event, Json fields = Json::object()) {
    fields["ns"] = ns;
    fields["event"] = event;
    trace_.Add(JsonText(fields));
  }
  void Begin() {
    Say(0, "daemon", {{"pid", 7}, {"gpus", {{{"index", 0}, {"name", "Card"}}}}});
    Say(0, "session", {{"session", 1}, {"gpu", 0}, {"name", "film"}, {"program", "train"}});
    Say(0, "session", {{"session", 2}, {"gpu", 0}, {"name", ""}, {"program", "mnist"}});
  }
  // The slices of that name, each as begin and length in microseconds.
  static std::vector<std::pair<double, double>> Named(const Json& trace, const std::string& name) {
    std::vector<std::pair<double, double>> slices;
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] == "X" && event["name"] == name) {
        slices.emplace_back(event["ts"], event["dur"]);
      }
    }
    return slices;
  }
  using Slices = std::vector<std::pair<double, double>>;

  Trace trace_;
};

TEST_F(TraceTest, ALeaseWithItsWaitItsSwapInAndItsWork) {
  Begin();
  Say(1000, "ready", {{"session", 1}});
  Say(3000, "grant", {{"session", 1}, {"credit_bytes", 5}});
  Say(4000, "running", {{"session", 1}});
  Say(6000, "idle", {{"session", 1}});
  Say(7000, "active", {{"session", 1}});
  Say(9000, "released", {{"session", 1}});
  const Json trace = trace_.Finish(1000000);
  EXPECT_EQ(Named(trace, "waits for its turn"), (Slices{{1, 2}}));
  EXPECT_EQ(Named(trace, "lease"), (Slices{{3, 6}}));
  EXPECT_EQ(Named(trace, "swap in"), (Slices{{3, 1}}));
  EXPECT_EQ(Named(trace, "work"), (Slices{{4, 2}, {7, 2}}));
}

TEST_F(TraceTest, AWaitSaysWhoHoldsTheGpu) {
  Begin();
  Say(1000, "grant", {{"session", 1}});
  Say(2000, "ready", {{"session", 2}});
  const Json trace = trace_.Finish(1000000);
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] != "waits for its turn") continue;
    EXPECT_EQ(event["args"]["held_by"], Json::array({"film (1)"}));
    return;
  }
  ADD_FAILURE() << "no wait";
}

TEST_F(TraceTest, AHandOverAndTheMemoryAfterIt) {
  Begin();
  Say(9000, "handover",
      {{"gpu", 0},
       {"to", 2},
       {"from", {1}},
       {"out_bytes", 10},
       {"in_bytes", 20},
       {"revoked_ns", 2000},
       {"running_ns", 9000},
       {"resident_bytes", {{"1", 5}, {"2", 60}}}});
  const Json trace = trace_.Finish(1000000);
  EXPECT_EQ(Named(trace, "to mnist (2)"), (Slices{{2, 7}}));
  Json last;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "C") last = event;
  }
  EXPECT_EQ(last["args"], Json({{"film (1)", 5}, {"mnist (2)", 60}}));
}

TEST_F(TraceTest, OnlyWhatTheSpanHasIsShownAndTheRestIsCut) {
  Begin();
  Say(1000, "grant", {{"session", 1}});
  Say(2000, "released", {{"session", 1}});
  Say(3000, "grant", {{"session", 1}});
  Say(9000, "released", {{"session", 1}});
  Say(10000, "ready", {{"session", 1}});
  EXPECT_EQ(Named(trace_.Finish(4000), "lease"), (Slices{{6, 3}}));
}

TEST_F(TraceTest, TheEndOfADaemonEndsItsLeases) {
  Begin();
  Say(1000, "grant", {{"session", 1}});
  Say(2000, "ready", {{"session", 2}});
  Say(5000, "daemon", {{"pid", 8}});
  Say(5000, "session", {{"session", 1}, {"gpu", 0}, {"name", "film"}, {"program", ""}});
  Say(6000, "grant", {{"session", 1}});
  Say(7000, "gone", {{"session", 1}});
  EXPECT_EQ(Named(trace_.Finish(1000000), "lease"), (Slices{{1, 1}, {6, 1}}));
}

TEST_F(TraceTest, TheHeadOfANewFileEndsNothing) {
  Begin();
  Say(1000, "grant", {{"session", 1}});
  Begin();
  Say(7000, "released", {{"session", 1}});
  EXPECT_EQ(Named(trace_.Finish(1000000), "lease"), (Slices{{1, 6}}));
}

TEST_F(TraceTest, AfterTheMachineHasStartedAgainThereIsNoBefore) {
  Begin();
  Say(900000, "grant", {{"session", 1}});
  Say(50, "daemon", {{"pid", 8}});
  Say(60, "session", {{"session", 5}, {"gpu", 0}, {"name", "x"}, {"program", ""}});
  Say(100, "grant", {{"session", 5}});
  Say(200, "released", {{"session", 5}});
  EXPECT_EQ(Named(trace_.Finish(1000000), "lease"), (Slices{{0.1, 0.1}}));
}

TEST_F(TraceTest, GarbageIsSkipped) {
  Begin();
  for (const char* line : {"", "{", "[1]", "{\"event\": 3}", "\xff\xff", "{\"event\": \"grant\"}",
                           R"({"event": "grant", "ns": "x", "session": -4})",
                           R"({"event": "handover", "ns": 5, "from": {"a": 1},
                               "resident_bytes": {"x": "y"}})",
                           R"({"event": "daemon", "ns": 0, "pid": 7, "gpus": 3})"}) {
    trace_.Add(line);
  }
  EXPECT_GT(trace_.skipped(), 4u);
  EXPECT_TRUE(trace_.Finish(1000000)["traceEvents"].is_array());
}

TEST_F(TraceTest, NamesReachNoTerminal) {
  Say(0, "session", {{"session", 1}, {"gpu", 0}, {"name", "a\x1b]0;x\x07"}, {"program", ""}});
  Say(1, "grant", {{"session", 1}});
  Say(2, "released", {{"session", 1}});
  EXPECT_NE(JsonText(trace_.Finish(100)).find("a\\\\x1b"), std::string::npos);
}

}  // namespace
}  // namespace tandem::history
