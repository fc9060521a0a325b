// Random nodes in virtual time, with the daemon's service and the programs' client code: programs
// come, work, are stopped, killed and say what they should not; the daemon dies and comes back;
// orders change limits, shares and policies. A failure prints its seed; TANDEM_SEED=n runs that one
// alone, TANDEM_WORLDS=n draws n of them.
//
// What must hold: no card ever has more on it than there is; a session that wants the card and is
// free to have it gets it in a bounded time, but under `priority`, which promises no bound; in the
// end nothing is charged for a session that has gone.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "src/base/json.h"
#include "src/base/testing/rounds.h"
#include "src/sim/draws_test.h"
#include "src/sim/node.h"

namespace tandem::sim {
namespace {

using Json = nlohmann::json;

// A program works for a few hundred milliseconds at a time, so that a wait is bounded by the
// others' turns and the longest patience of a policy.
constexpr Duration kLongestWait = Seconds(200);

class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {
    config_.gpus = 1 + static_cast<int>(Below(3));
    config_.card = Bytes(MiB(64).count * (2 + Below(8)));
    config_.chunk = MiB(2);
    config_.bus_bytes_per_second = 1e9 * static_cast<double>(1 + Below(20));
    config_.policy = policy_ = Policy();
    node_ = std::make_unique<Node>(&timeline_, config_);
  }

  void Live(int events) {
    for (uint64_t i = 1 + Below(6); i > 0; --i) Start();
    for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
      timeline_.RunUntil(timeline_.now() + Duration(static_cast<int64_t>(Uniform() * 8e8)));
      Disturb();
      Check();
    }
  }

  // The test no longer disturbs the programs.
  void ExpectToComeToRest() {
    SetPolicy("round-robin");
    ResumeAll();
    for (int i = 0; i < 100 && !::testing::Test::HasFailure(); ++i) {
      timeline_.RunUntil(timeline_.now() + Seconds(1));
      Check();
    }
    for (const uint64_t program : node_->programs()) node_->Kill(program);
    timeline_.RunUntil(timeline_.now() + Seconds(10));
    const Json status = ParseJson(node_->Ask("status"));
    for (const Json& gpu : status["gpus"]) EXPECT_EQ(gpu["charged_bytes"], 0) << status;
    EXPECT_EQ(ParseJson(node_->Ask("sessions"))["sessions"], Json::array());
  }

  uint64_t bursts() const { return bursts_; }
  uint64_t restarts() const { return restarts_; }

 private:
  double Uniform() { return std::uniform_real_distribution<>(0, 1)(random_); }
  uint64_t Below(uint64_t end) { return random_() % end; }
  std::string Policy() { return One({"fcfs", "round-robin", "interactive", "fair", "priority"}); }
  std::string One(std::vector<std::string> names) { return names[Below(names.size())]; }
  Duration UpTo(double seconds) {
    return Duration(static_cast<int64_t>(Uniform() * seconds * 1e9));
  }

  void Start() {
    const uint64_t chunks = 1 + Below(config_.card.count / config_.chunk.count * 9 / 10);
    Habits habits{Exponential(UpTo(2), random_()), Exponential(UpTo(0.5), random_()),
                  Bytes(config_.chunk.count * chunks),
                  One({"", "production", "interactive", "batch", "opportunistic"})};
    const int gpu = static_cast<int>(Below(static_cast<uint64_t>(config_.gpus)));
    node_->Start(gpu, 1000 + static_cast<unsigned>(Below(3)), habits,
                 [this](const Burst&) { ++bursts_; });
  }

  void Disturb() {
    const std::vector<uint64_t> programs = node_->programs();
    const uint64_t one = programs.empty() ? 0 : programs[Below(programs.size())];
    const double what = Uniform();
    if (one == 0 || (what < 0.15 && programs.size() < 12)) return Start();
    if (what < 0.25) return node_->Kill(one);
    if (what < 0.40) return Stop(one);
    if (what < 0.50) return Order("suspend", one);
    if (what < 0.65) return Order("resume", one);
    if (what < 0.70) return SetPolicy(Policy());
    if (what < 0.80) return Order("share", one, Uniform() < 0.5 ? "30%" : "4");
    if (what < 0.85) return Order("limit", one);
    if (what < 0.89) return RestartDaemon();
  }

  // A new daemon has the first one's again.
  void SetPolicy(const std::string& policy) {
    if (node_->Ask("status").empty()) return;
    OnPolicy(policy);
    node_->Order({"policy", "all", 0, policy});
  }
  void OnPolicy(const std::string& policy) {
    if (policy_ == "priority") bounded_since_ = timeline_.now();
    policy_ = policy;
  }

  // Also through a restart.
  void Stop(uint64_t program) { node_->Stop(program, UpTo(5)); }

  void RestartDaemon() {
    ++restarts_;
    OnPolicy(config_.policy);
    node_->RestartDaemon(UpTo(2));
  }

  // By the session's number, which changes with the daemon.
  void Order(const char* what, uint64_t program, const char* value = "") {
    const std::string answer = node_->Ask("sessions");
    if (answer.empty()) return;
    const Json answered = ParseJson(answer);
    for (const Json& session : answered["sessions"]) {
      if (session["pid"] == program) {
        node_->Order({what, std::to_string(session["id"].get<uint64_t>()), MiB(64).count, value});
      }
    }
  }

  void ResumeAll() {
    const std::string answer = node_->Ask("sessions");
    if (answer.empty()) return;
    const Json answered = ParseJson(answer);
    for (const Json& session : answered["sessions"]) {
      node_->Order({"resume", std::to_string(session["id"].get<uint64_t>()), 0, ""});
    }
  }

  void Check() {
    for (int gpu = 0; gpu < config_.gpus; ++gpu) {
      ASSERT_LE(node_->Resident(gpu), config_.card + config_.chunk) << "gpu " << gpu;
    }
    const std::string answer = node_->Ask("sessions");
    if (answer.empty()) return;
    const Json answered = ParseJson(answer);
    for (const Json& session : answered["sessions"]) {
      const auto since = node_->program(session["pid"].get<uint64_t>()).waiting_since();
      const bool bounded = policy_ != "priority" && !session["suspended"].get<bool>();
      if (!since.has_value() || !bounded) continue;
      const Duration waited = timeline_.now() - std::max(*since, bounded_since_);
      ASSERT_LT(waited, kLongestWait) << answered << node_->Ask("status");
    }
  }

  std::mt19937_64 random_;
  Timeline timeline_;
  NodeConfig config_;
  std::unique_ptr<Node> node_;
  std::string policy_;
  Instant bounded_since_;  // waits are: the policy promises that
  uint64_t bursts_ = 0;
  uint64_t restarts_ = 0;
};

// In quarters, which the two processes of this test share.
class SwarmTest : public testing::TestWithParam<int> {};

TEST_P(SwarmTest, NobodyIsHurtByWhatOthersDo) {
  uint64_t bursts = 0, restarts = 0;
  for (const uint64_t seed : Seeds(Rounds(25))) {
    SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
    World world(seed);
    world.Live(100);
    world.ExpectToComeToRest();
    bursts += world.bursts();
    restarts += world.restarts();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(bursts, 0u);
  RecordProperty("bursts", std::to_string(bursts));
  RecordProperty("restarts", std::to_string(restarts));
}

INSTANTIATE_TEST_SUITE_P(Quarters, SwarmTest, testing::Range(0, 4));

}  // namespace
}  // namespace tandem::sim
