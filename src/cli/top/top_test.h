// A scene for the tests of `tandem top`: answers of a daemon, each of a time after its start.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "src/base/json.h"
#include "src/cli/top/model.h"

namespace tandem::cli::top {

class TopTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;

  static Json Gpu(uint64_t index, double busy_s = 0, uint64_t handovers = 0) {
    return {{"index", index},
            {"name", "Software GPU"},
            {"software", true},
            {"card_bytes", 256 * kMiB},
            {"budget_bytes", 222 * kMiB},
            {"free_bytes", 40 * kMiB},
            {"foreign_bytes", 32 * kMiB},
            {"context_bytes", 8 * kMiB},
            {"holders", Json::array({3})},
            {"waiting", Json::array({4})},
            {"blocked_by", Json::array()},
            {"policy", "round-robin"},
            {"mode", "turns"},
            {"switch_cost_s", 0.021},
            {"busy_s", busy_s},
            {"held_s", busy_s},
            {"handovers", handovers}};
  }
  static Json Session(uint64_t id, const std::string& name, double active_s = 0) {
    return {{"id", id},
            {"gpu", 0},
            {"uid", 0},
            {"name", name},
            {"program", "python3"},
            {"pid", 10 + id},
            {"class", "interactive"},
            {"state", "running"},
            {"state_text", "may submit work"},
            {"since", "2026-11-26T00:00:00.500000Z"},
            {"reason", nullptr},
            {"share", "1"},
            {"user_share", "1"},
            {"resident_bytes", 64 * kMiB},
            {"swapped_bytes", 0},
            {"allocated_bytes", 64 * kMiB},
            {"contexts", 1},
            {"active_s", active_s},
            {"held_s", active_s},
            {"waited_s", 0.5},
            {"handovers", 0}};
  }
  static Json Waiting(Json session) {
    session["state"] = "waiting";
    session["reason"] = "1st in line";
    session["expected_wait_s"] = 40;
    session["resident_bytes"] = 0;
    session["swapped_bytes"] = 64 * kMiB;
    return session;
  }
  void Take(double uptime_s, Json gpus, Json sessions, Json runs = Json::array(), int pid = 42) {
    const Json status = {{"version", "0.1"},
                         {"pid", pid},
                         {"socket", "/s"},
                         {"uptime_s", uptime_s},
                         {"gpus", std::move(gpus)}};
    const Json answer = {{"sessions", std::move(sessions)}, {"runs", std::move(runs)}};
    ASSERT_TRUE(model_.Take(JsonText(status), JsonText(answer)).ok());
  }
  void TakeTwo(double uptime_s, double active_s = 0) {
    Take(uptime_s, Json::array({Gpu(0, active_s)}),
         Json::array({Session(3, "mnist", active_s), Waiting(Session(4, "evil\x1b[2J"))}));
  }

  static constexpr double kUnixS = 1795651220;  // 19.5 s after `since`

  Model model_;
};

}  // namespace tandem::cli::top
