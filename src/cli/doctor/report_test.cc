#include "src/cli/doctor/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "src/base/json.h"
#include "src/cli/doctor/bundle.h"
#include "src/cli/doctor/machine_test.h"
#include "src/cli/doctor/probe.h"

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

const std::vector<CheckResult> kResults = {
    {"driver", {Fine("driver_works", "It works.")}},
    {"host memory",
     {Problem("host_memory_low", "Only " + Outside("a\x1b[2J") + " is left.", "end programs"),
      Note("other", "A second finding of the same check, in words that take several lines.",
           "nothing")}},
};

TEST(DoctorReport, IsAligned) {
  EXPECT_EQ(ReportText(kResults, Screen()),
            "ok       driver       It works.\n"
            "problem  host memory  Only a\\x1b[2J is left.\n"
            "                      Do: end programs.\n"
            "note     host memory  A second finding of the same check, in words that take several "
            "lines.\n"
            "                      Do: nothing.\n"
            "1 problem, 1 note.\n");
  EXPECT_THAT(ReportText({kResults[0]}, Screen()), testing::EndsWith("No problem found.\n"));
}

TEST(DoctorReport, LinesFitTheScreenAndOnlyMarksAreColoured) {
  const std::string text = ReportText(kResults, Screen{50, true});
  EXPECT_THAT(text, HasSubstr("\x1b[31mproblem\x1b[0m  host memory"));
  EXPECT_THAT(text, HasSubstr("\n                      check, in words that take\n"));
  std::istringstream lines(ReportText(kResults, Screen{50, false}));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(WidthOf(line), 50u) << line;
}

using DoctorReportTest = DoctorTest;

TEST_F(DoctorReportTest, WhatIsFineIsOneLine) {
  const auto lines_are = [this] {
    const std::vector<CheckResult> results = RunChecks(machine_);
    const std::string text = ReportText(results, Screen{80, false});
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), results.size() + 1) << text;
  };
  lines_are();
  UseCard();
  lines_are();
  machine_.cards.reset();
  lines_are();
  machine_.daemon.status = {};
  lines_are();
}

TEST_F(DoctorReportTest, JsonHasEachFinding) {
  const Json report = ReportJson(machine_, kResults, &Shown);
  EXPECT_EQ(report["severity"], "problem");
  EXPECT_EQ(report["problems"], 1);
  EXPECT_EQ(report["kind"], "soft");
  EXPECT_EQ(report["checks"][0]["severity"], "ok");
  EXPECT_EQ(report["checks"][0]["findings"][0]["remedy"], Json());
  EXPECT_EQ(report["checks"][1]["check"], "host memory");
  EXPECT_EQ(report["checks"][1]["findings"][0]["sentence"], "Only a\\x1b[2J is left.");
}

// ---- The bundle

TEST(DoctorBundle, LinesOfTheLogLoseAllTextFromOutside) {
  const std::string at = "2026-11-26 02:44:29.123 info: ";
  const auto public_of = [&](const std::string& text) {
    const std::string line = PublicLogLine(at + text);
    EXPECT_THAT(line, testing::StartsWith(at));
    return line.substr(std::min(at.size(), line.size()));
  };
  EXPECT_EQ(public_of("GPU 0 GPU-12ab-34 \"Software GPU of anna\": 222 MiB of 256 MiB to share"),
            "GPU 0 GPU-… …");
  EXPECT_EQ(public_of("16 GiB of the host's memory for what does not fit on the cards"),
            "16 GiB of the host…");
  EXPECT_EQ(
      public_of("session 3 (\"mnist\", program \"x\", process 12, user 1000, gpu0) has ended"),
      "session 3 … has ended");
  EXPECT_EQ(public_of("session 3 (\"a) has ended\", program \"secret"), "session 3 …");
  EXPECT_EQ(public_of("order of user 1000, process 44: suspend \"mnist\": obeyed"),
            "order of user …, process 44…");
  EXPECT_EQ(public_of("gpu0: programs outside Tandem hold 3 GiB, before 0 B"),
            "gpu0: programs outside Tandem hold 3 GiB, before 0 B");
  EXPECT_EQ(public_of("ending: Terminated"), "ending: Terminated");
  EXPECT_EQ(public_of("left out: GPU 1: cuInit failed: CUDA_ERROR_UNKNOWN of anna"),
            "left out: GPU 1… CUDA_ERROR_UNKNOWN");
  EXPECT_EQ(public_of("1 GiB more in /users/anna"), "1 GiB more in …");
  EXPECT_EQ(PublicLogLine("anna's library said something"), "…");
  EXPECT_EQ(PublicLogLine("tandemd: cannot make anna: CUDA_ERROR_NO_DEVICE"),
            "… CUDA_ERROR_NO_DEVICE");
}

TEST_F(DoctorReportTest, TheBundleHasNoTextFromOutside) {
  const std::string secret = "anna";
  machine_.socket = "/users/anna/run/tandemd.sock";
  machine_.daemon.executable = "/users/anna/bin/tandemd";
  Set("LD_PRELOAD", "/users/anna/lib.so");
  machine_.daemon.status["socket"] = machine_.socket;
  machine_.daemon.status["gpus"][0]["anna"] = 1;
  machine_.daemon.sessions = ParseJson(
      R"({"sessions":[{"id":3,"name":"anna","program":"anna","uid":1000,"state":"running"}],
          "runs":[{"name":"anna"}]})");
  machine_.daemon.handovers = ParseJson(R"({"handovers":[{"epoch":1,"reason":"anna"}]})");
  const Json bundle = Bundle(machine_, RunChecks(machine_), "anna\n");
  EXPECT_THAT(JsonText(bundle), Not(HasSubstr(secret)));
  EXPECT_THAT(ReportText(RunChecks(machine_), Screen()), HasSubstr(secret));
  EXPECT_EQ(bundle["sessions"], ParseJson(R"([{"id":3,"state":"running"}])"));
  EXPECT_EQ(bundle["handovers"], ParseJson(R"([{"epoch":1}])"));
  EXPECT_EQ(bundle["status"]["gpus"][0]["card_bytes"], GiB(8).count);
  EXPECT_EQ(bundle["report"]["version"], "0.1.0");
  EXPECT_EQ(bundle["log"], ParseJson(R"(["…"])"));
}

// ---- Processes that are asked

TEST(DoctorProbe, AChildIsWaitedForNoLongerThanAsked) {
  const Environment environment = {"PATH=/usr/bin:/bin", "WORD=hello"};
  EXPECT_EQ(RunChild({"/bin/sh", "-c", "echo $WORD; echo err >&2"}, environment, Seconds(60)),
            "hello\nerr\n");
  EXPECT_EQ(RunChild({"/no/such/program"}, environment, Seconds(60)), "");
  EXPECT_EQ(RunChild({"/bin/sh", "-c", "exec sleep 1000"}, environment, Duration()), "");
}

}  // namespace
}  // namespace tandem::cli
