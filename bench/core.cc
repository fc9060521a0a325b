// `./dev bench core`: how many events a second the arbiters of a node take, with many sessions on
// many cards.
//
// Sessions with work for a third of a second and pauses of three live through it once, in virtual
// time, beside arbiters that answer them; what happened is written down, and then given to new
// arbiters again while the time is taken, by the processor's clock for this thread. Most cards have
// far more to do than they can: many wait, some slip in.
#include <malloc.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/core/arbiter.h"

namespace tandem::bench {
namespace {

using core::Action;
using core::Arbiter;
using core::SessionId;

constexpr size_t kMostGpus = 64;
constexpr size_t kFewSessions = 1'000;  // fewer are on one card: one alone reports nothing
constexpr int kRounds = 3;
constexpr uint64_t kUsers = 100;
constexpr Bytes kCard = GiB(80);
constexpr double kBusBytesPerSecond = 50e9;
constexpr Duration kLatency = Microseconds(50), kDrain = Milliseconds(5);
constexpr Duration kBurst = Milliseconds(300), kThink = Seconds(3);
constexpr Bytes kStep = GiB(1);  // that one Evicted tells of

core::ArbiterConfig Config(const std::string& policy, int gpu) {
  core::ArbiterConfig config;
  config.policy = policy;
  config.budget = kCard;
  config.chunk = config.spare = MiB(64);
  config.context = MiB(500);
  config.reserved = 1u << 20;
  config.bytes_per_second = kBusBytesPerSecond;
  config.gpu = gpu;
  return config;
}

struct Recorded {
  uint32_t gpu;
  Instant at;
  core::Event event;
};

// The sessions of all cards, as they would live.
class Life {
 public:
  Life(const std::string& policy, size_t sessions, size_t gpus, uint64_t seed) : random_(seed) {
    for (size_t gpu = 0; gpu < gpus; ++gpu) {
      arbiters_.push_back(std::make_unique<Arbiter>(Config(policy, static_cast<int>(gpu))));
    }
    wakes_.resize(gpus);
    for (size_t i = 0; i < sessions; ++i) {
      programs_.push_back({.gpu = static_cast<uint32_t>(i % gpus), .need = DrawNeed()});
      const SessionId id{i};
      core::event::SessionAdded added{id, core::RunId{i}, kCard, {}, {}, 0, {}};
      added.tenant.user = std::to_string(i % kUsers);
      Send(id, added);
      Send(id, core::event::Reserve{id, 1, programs_[i].need});
      At(Draw(kThink), id, What::kWork);
    }
    arrivals_ = recorded_.size();
  }

  void Run(size_t events) {
    while (recorded_.size() < arrivals_ + events) {
      const Due due = queue_.top();
      queue_.pop();
      now_ = due.at;
      Happen(due);
    }
  }

  const std::vector<Recorded>& recorded() const { return recorded_; }
  size_t arrivals() const { return arrivals_; }  // the first of them
  uint64_t actions() const { return actions_; }

 private:
  enum class What { kWork, kRunning, kDone, kReleased, kEvicted, kTick };
  struct Due {
    Instant at;
    uint64_t order;
    SessionId id;  // of kTick: the card
    What what;
    uint64_t epoch;
    bool operator<(const Due& other) const {  // the latest is the least
      return std::tie(other.at, other.order) < std::tie(at, order);
    }
  };
  struct Program {
    uint32_t gpu = 0;
    Bytes need = {};
    Bytes credit = {};
    Bytes resident = {};
    Bytes target = {};
    core::Epoch epoch = 0;  // 0: no lease
    bool open = false, working = false, contended = false, idle = false;
    bool arriving = false, leaving = false;
    Instant until = {};  // of the burst
    Duration left = {};  // of one that was interrupted
  };

  Duration Draw(Duration mean) {
    const double uniform = std::uniform_real_distribution<>(0, 1)(random_);
    return Duration(static_cast<int64_t>(-std::log(1 - uniform) * static_cast<double>(mean.ns)));
  }
  Bytes DrawNeed() {  // 5 to 60 % of the card
    const double share = std::uniform_real_distribution<>(0.05, 0.6)(random_);
    return Bytes(MiB(64).count * static_cast<uint64_t>(share * 80 * 16));
  }
  static Duration BusTime(Bytes bytes) {
    return Duration(
        static_cast<int64_t>(static_cast<double>(bytes.count) / kBusBytesPerSecond * 1e9));
  }

  void At(Duration after, SessionId id, What what, uint64_t epoch = 0) {
    queue_.push({now_ + after, ++order_, id, what, epoch});
  }

  void Send(SessionId id, const core::Event& event) { Tell(programs_[id.value].gpu, event); }
  void Tell(uint32_t gpu, const core::Event& event) {
    recorded_.push_back({gpu, now_, event});
    for (const Action& action : arbiters_[gpu]->On(event, now_)) {
      ++actions_;
      Obey(gpu, action);
    }
  }

  void Obey(uint32_t gpu, const Action& action) {
    if (const auto* grant = std::get_if<core::action::Grant>(&action)) {
      Program& program = programs_[grant->id.value];
      program.epoch = grant->epoch;
      program.credit = grant->credit;
      Arrive(grant->id);
    } else if (const auto* credit = std::get_if<core::action::Credit>(&action)) {
      programs_[credit->id.value].credit = credit->credit;
      Arrive(credit->id);
    } else if (const auto* revoke = std::get_if<core::action::Revoke>(&action)) {
      const bool working = programs_[revoke->id.value].working;
      At(working ? kDrain : kLatency, revoke->id, What::kReleased, revoke->epoch);
    } else if (const auto* evict = std::get_if<core::action::Evict>(&action)) {
      Program& program = programs_[evict->id.value];
      program.target = evict->target;
      if (!program.leaving) Leave(evict->id);
    } else if (const auto* told = std::get_if<core::action::SetContended>(&action)) {
      Program& program = programs_[told->id.value];
      program.contended = told->contended;
      if (told->contended && program.open && !program.working && !program.idle) {
        At(kLatency, told->id, What::kDone, program.epoch);
      }
    } else if (const auto* wake = std::get_if<core::action::WakeAt>(&action)) {
      wakes_[gpu] = wake->instant;
      At(std::max(wake->instant - now_, Duration(1)), SessionId{gpu}, What::kTick,
         static_cast<uint64_t>(wake->instant.ns));
    }
  }

  void Arrive(SessionId id) {
    Program& program = programs_[id.value];
    if (program.arriving || program.credit < program.need) return;
    program.arriving = true;
    At(kLatency + BusTime(SaturatingSubtract(program.need, program.resident)), id, What::kRunning,
       program.epoch);
  }

  // The next step, which may be none.
  void Leave(SessionId id) {
    Program& program = programs_[id.value];
    program.leaving = true;
    const Bytes left = SaturatingSubtract(program.resident, program.target);
    At(kLatency + BusTime(std::min(kStep, left)), id, What::kEvicted);
  }

  void Happen(const Due& due) {
    if (due.what == What::kTick) {
      const auto gpu = static_cast<uint32_t>(due.id.value);
      if (static_cast<uint64_t>(wakes_[gpu].ns) == due.epoch) Tell(gpu, core::event::Tick{});
      return;
    }
    const SessionId id = due.id;
    Program& program = programs_[id.value];
    if (due.what == What::kWork) return Work(id);
    if (due.what == What::kEvicted) {
      const Bytes part = std::min(kStep, SaturatingSubtract(program.resident, program.target));
      program.resident -= part;
      program.leaving = program.resident > program.target;
      if (program.leaving) Leave(id);
      return Send(id, core::event::Evicted{id, program.resident, part});
    }
    if (due.epoch != program.epoch || program.epoch == 0) return;
    if (due.what == What::kRunning) {
      program.arriving = false;
      program.open = true;
      const Bytes in = SaturatingSubtract(program.need, program.resident);
      program.resident = program.need;
      Send(id, core::event::Running{id, program.epoch, in});
      if (program.epoch != 0) Work(id);
    } else if (due.what == What::kDone) {
      if (program.working && now_ < program.until) return;
      if (program.working) At(Draw(kThink), id, What::kWork);
      program.working = false;
      if (!program.contended || !program.open || program.idle) return;
      program.idle = true;
      Send(id, core::event::Idle{id, program.epoch});
    } else if (due.what == What::kReleased) {
      if (program.working) program.left = std::max(program.until - now_, Duration(1));
      const bool wants = program.working;
      const core::Epoch epoch = std::exchange(program.epoch, 0);
      program.open = program.working = program.idle = program.arriving = false;
      Send(id, core::event::Released{id, epoch});
      if (wants) Send(id, core::event::Ready{id, program.need});
    }
  }

  void Work(SessionId id) {
    Program& program = programs_[id.value];
    if (program.working) return;
    if (!program.open) {
      if (program.epoch == 0) Send(id, core::event::Ready{id, program.need});
      return;
    }
    program.working = true;
    if (std::exchange(program.idle, false)) Send(id, core::event::Active{id, program.epoch});
    const Duration length = program.left > Duration() ? program.left : Draw(kBurst);
    program.left = Duration();
    program.until = now_ + length;
    At(length, id, What::kDone, program.epoch);
  }

  std::mt19937_64 random_;
  Instant now_{1};
  std::vector<std::unique_ptr<Arbiter>> arbiters_;
  std::vector<Instant> wakes_;
  std::vector<Program> programs_;
  std::priority_queue<Due> queue_;
  uint64_t order_ = 0;
  std::vector<Recorded> recorded_;
  size_t arrivals_ = 0;
  uint64_t actions_ = 0;
};

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Figures {
  double events_per_second = 0;
  double bytes_per_session = 0;
  uint64_t actions = 0;
};

// What was recorded, once more.
Figures Replay(const Life& life, const std::string& policy, size_t gpus, size_t sessions) {
  const size_t before = mallinfo2().uordblks;
  std::vector<std::unique_ptr<Arbiter>> arbiters;
  for (size_t gpu = 0; gpu < gpus; ++gpu) {
    arbiters.push_back(std::make_unique<Arbiter>(Config(policy, static_cast<int>(gpu))));
  }
  const size_t empty = mallinfo2().uordblks - before;
  Figures figures;
  double began = 0;
  for (size_t i = 0; i < life.recorded().size(); ++i) {
    if (i == life.arrivals()) began = ThreadSeconds();
    const Recorded& event = life.recorded()[i];
    figures.actions += arbiters[event.gpu]->On(event.event, event.at).size();
  }
  const double took = ThreadSeconds() - began;
  figures.events_per_second = static_cast<double>(life.recorded().size() - life.arrivals()) / took;
  figures.bytes_per_session =
      static_cast<double>(mallinfo2().uordblks - before - empty) / static_cast<double>(sessions);
  return figures;
}

int Main(const std::string& policy, bool json, bool quick) {
  const size_t events = quick ? 20'000 : 1'000'000;
  if (!json)
    std::printf("%9s %5s %11s %12s %14s %7s\n", "sessions", "gpus", "policy", "events/s",
                "bytes/session", "spread");
  for (const size_t sessions : {10, 100, 1'000, 10'000, 100'000}) {
    if (quick && sessions > 1'000) break;
    const size_t gpus = sessions < kFewSessions ? 1 : kMostGpus;
    Life life(policy, sessions, gpus, 1);
    life.Run(events);
    std::vector<Figures> rounds;
    for (int round = 0; round < (quick ? 1 : kRounds); ++round) {
      rounds.push_back(Replay(life, policy, gpus, sessions));
      if (rounds.back().actions != life.actions()) {
        std::fprintf(stderr, "the same events had other consequences\n");
        return 1;
      }
    }
    std::sort(rounds.begin(), rounds.end(), [](const Figures& a, const Figures& b) {
      return a.events_per_second < b.events_per_second;
    });
    const Figures& median = rounds[rounds.size() / 2];
    const double spread = (rounds.back().events_per_second - rounds.front().events_per_second) /
                          median.events_per_second;
    const char* const form =
        json
            ? "{\"sessions\": %zu, \"gpus\": %zu, \"policy\": \"%s\", \"events_per_second\": %.0f, "
              "\"bytes_per_session\": %.0f, \"spread\": %.4f, \"rounds\": %zu}\n"
            : "%9zu %5zu %11s %12.0f %14.0f %7.4f\n";
    std::printf(form, sessions, gpus, policy.c_str(), median.events_per_second,
                median.bytes_per_session, spread, rounds.size());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  CLI::App app{"Events a second that the arbiters of a node take.", "./dev bench core"};
  bool json = false, quick = false;
  std::string policy = tandem::core::ArbiterConfig().policy;
  std::vector<std::string> names;
  for (const auto& known : tandem::core::PolicyNames()) names.emplace_back(known.name);
  app.add_flag("--json", json, "JSON, an object a line, and nothing else");
  app.add_flag("--quick", quick, "a second, to see that it works");
  app.add_option("--policy", policy, "the rule that says who is next")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return tandem::bench::Main(policy, json, quick);
}
