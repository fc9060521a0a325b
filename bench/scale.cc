// bench_scale: a cluster in virtual time. Jobs of a published trace (scale_trace.h) come to nodes
// with GPUs; the extender's code places them, and each node's daemon shares its GPUs (src/sim).
//
// Four ways to give out GPUs: a whole GPU for each job; a part of its memory, as asked; replicas of
// each GPU, with no regard to memory; and Tandem, which offers the memory more than once.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "bench/scale_trace.h"
#include "integrations/kubernetes/room.h"
#include "src/sim/node.h"

namespace tandem::bench {
namespace {

using kubernetes::Placement;
using kubernetes::Room;

constexpr int kUnits = 100;  // of a GPU's memory
const Bytes kCard = GiB(80);

struct Options {
  int nodes = 500, gpus = 8, jobs = 10'000;
  double hours = 4;  // in which they come
  double oversubscribe = 2;
  int replicas = 4;
  double burst = 10;  // seconds of work on the GPU at a time, on average
  uint64_t seed = 1;
};

struct Job {
  Instant comes;
  int units = 0;   // of memory
  Duration lasts;  // as traced
  Duration drawn;  // what it has drawn to do, so far
  Duration alone;  // from start to end, by itself
  double utilisation = 0;
  Instant started, ended;
  int node = 0, gpu = 0;
  Duration left;  // of its work on the GPU
  uint64_t program = 0;
  int failures = 0;
};

double Seconds(Duration duration) {
  return static_cast<double>(duration.ns) / 1e9;
}
Duration OfSeconds(double seconds) {
  return Duration(std::llround(seconds * 1e9));
}

std::vector<Job> DrawJobs(const Options& options) {
  std::mt19937_64 random(options.seed);
  std::uniform_real_distribution<> uniform;
  std::vector<Job> jobs(static_cast<size_t>(options.jobs));
  for (Job& job : jobs) {
    job.comes = Instant(1) + OfSeconds(uniform(random) * options.hours * 3600);
    const TracedJob& traced = kTrace[random() % kTrace.size()];
    job.units = std::max(traced.milli * kUnits / 1000, 1);
    job.lasts = OfSeconds(traced.seconds);
    const double at = uniform(random);
    const auto upper = std::find_if(kUtilisation.begin() + 1, kUtilisation.end() - 1,
                                    [&](const Quantile& point) { return point.of_jobs >= at; });
    const Quantile& lower = *(upper - 1);
    job.utilisation = std::lerp(lower.utilisation, upper->utilisation,
                                (at - lower.of_jobs) / (upper->of_jobs - lower.of_jobs));
    job.left = OfSeconds(traced.seconds * job.utilisation);
  }
  std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.comes < b.comes; });
  return jobs;
}

// How a way counts: units that a GPU has, and that a job takes; and which GPU it prefers.
struct Way {
  std::string name;
  int gpu_units;
  bool whole = false, by_count = false;
  Placement placement = Placement::kBestFit;

  int Takes(const Job& job) const { return whole ? gpu_units : by_count ? 1 : job.units; }
};

class Cluster {
 public:
  Cluster(const Options& options, const Way& way)
      : options_(options), way_(way), random_(options.seed + 1), jobs_(DrawJobs(options)) {
    sim::NodeConfig config;
    config.gpus = options.gpus;
    config.card = kCard;
    for (int i = 0; i < options.nodes; ++i) {
      nodes_.push_back({std::make_unique<sim::Node>(&timeline_, config),
                        Room(static_cast<size_t>(options.gpus), way.gpu_units),
                        std::vector<Use>(static_cast<size_t>(options.gpus))});
    }
    for (size_t i = 0; i < jobs_.size(); ++i) {
      timeline_.At(jobs_[i].comes, [=, this] { Come(i); });
    }
  }

  nlohmann::json Run() {
    const auto start = std::chrono::steady_clock::now();
    while (ended_ < jobs_.size() && timeline_.Step()) ++events_;
    return Results(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }

 private:
  // Of a GPU.
  struct Use {
    int jobs = 0;
    int units = 0;  // of memory
    Instant since;  // when the first of these jobs came
  };
  struct Node {
    std::unique_ptr<sim::Node> sim;
    Room free;              // by GPU
    std::vector<Use> used;  // by GPU
  };

  // The GPU of that node that the plugin would choose, and what it would have left.
  struct Chosen {
    size_t gpu = 0;
    int spare = 0;
  };
  std::optional<Chosen> ChooseGpu(const Node& node, int takes) const {
    Room room = node.free;
    std::sort(room.begin(), room.end(), std::greater<>());
    const std::optional<kubernetes::Placed> placed = Place(room, {takes}, way_.placement);
    if (!placed.has_value()) return std::nullopt;
    const auto gpu = std::find(node.free.begin(), node.free.end(), placed->spare + takes);
    return Chosen{static_cast<size_t>(gpu - node.free.begin()), placed->spare};
  }

  // As the scheduler does with the extender's scores: one of the best, drawn.
  std::optional<size_t> NodeFor(int takes) {
    std::map<std::string, int> spare;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (const auto chosen = ChooseGpu(nodes_[i], takes)) spare[std::to_string(i)] = chosen->spare;
    }
    if (spare.empty()) return std::nullopt;
    std::vector<size_t> best;
    int best_score = -1;
    for (const auto& [node, score] : Scores(spare, way_.placement)) {
      if (score > best_score) best.clear(), best_score = score;
      if (score == best_score) best.push_back(std::stoul(node));
    }
    return best[random_() % best.size()];
  }

  void Come(size_t number) {
    if (const std::optional<size_t> node = NodeFor(way_.Takes(jobs_[number]))) {
      return Start(number, *node);
    }
    waiting_.push_back(number);
    CountStranded();
  }

  // While a job waits: the part of all memory units that are free, and too small for it on each
  // GPU.
  void CountStranded() {
    int64_t free = 0;
    for (const Node& node : nodes_) {
      for (const int units : node.free) free += units;
    }
    const double all = static_cast<double>(options_.nodes) * options_.gpus * way_.gpu_units;
    stranded_.push_back(static_cast<double>(free) / all);
  }

  void Start(size_t number, size_t on) {
    Job& job = jobs_[number];
    Node& node = nodes_[on];
    const int takes = way_.Takes(job);
    const size_t gpu = ChooseGpu(node, takes)->gpu;
    // With replicas, memory is not counted: a job that finds too little dies, and its user tries
    // again.
    if (way_.by_count && node.used[gpu].units + job.units > kUnits) {
      ++job.failures;
      timeline_.After(OfSeconds(300), [=, this] { Come(number); });
      return;
    }
    node.free[gpu] -= takes;
    Use& use = node.used[gpu];
    if (use.jobs++ == 0) use.since = timeline_.now();
    use.units += job.units;
    job.node = static_cast<int>(on);
    job.gpu = static_cast<int>(gpu);
    job.started = timeline_.now();
    const double think = options_.burst * (1 - job.utilisation) / job.utilisation;
    const auto draw = std::make_shared<std::mt19937_64>(options_.seed * 1'000'003 + number);
    const auto exponential = [draw](double mean) {
      return OfSeconds(std::exponential_distribution<>(1 / mean)(*draw));
    };
    sim::Habits habits;
    const auto alone = [=, this](Duration drawn) {
      jobs_[number].drawn = jobs_[number].drawn + drawn;
      return drawn;
    };
    habits.think = [=] { return alone(think > 0 ? exponential(think) : Duration()); };
    habits.burst = [=, this] {
      return alone(
          std::min(std::max(exponential(options_.burst), Milliseconds(1)), jobs_[number].left));
    };
    habits.memory = Bytes(kCard.count / kUnits * static_cast<uint64_t>(job.units));
    job.program = node.sim->Start(job.gpu, 1000 + static_cast<unsigned>(number % 300), habits,
                                  [=, this](const sim::Burst& done) { OnBurst(number, done); });
  }

  void OnBurst(size_t number, const sim::Burst& done) {
    Job& job = jobs_[number];
    job.left = job.left - done.work;
    if (job.left > Duration() || job.ended != Instant()) return;
    job.ended = timeline_.now();
    job.alone = job.drawn;
    timeline_.After(Duration(), [=, this] { End(number); });
  }

  void End(size_t number) {
    const Job& job = jobs_[number];
    Node& node = nodes_[static_cast<size_t>(job.node)];
    node.sim->Kill(job.program);
    node.free[static_cast<size_t>(job.gpu)] += way_.Takes(job);
    Use& use = node.used[static_cast<size_t>(job.gpu)];
    use.units -= job.units;
    if (--use.jobs == 0) occupied_ += Seconds(timeline_.now() - use.since);
    ++ended_;
    // Only this node has more room than before.
    for (auto next = waiting_.begin(); next != waiting_.end();) {
      if (ChooseGpu(node, way_.Takes(jobs_[*next])).has_value()) {
        const size_t started = *next;
        next = waiting_.erase(next);
        Start(started, static_cast<size_t>(job.node));
      } else {
        ++next;
      }
    }
  }

  nlohmann::json Results(double wall) {
    std::vector<double> waits, runs, slowdowns;
    double work = 0, last = 0, failures = 0;
    for (const Job& job : jobs_) {
      waits.push_back(Seconds(job.started - job.comes));
      runs.push_back(Seconds(job.ended - job.started) / Seconds(job.alone));
      slowdowns.push_back(Seconds(job.ended - job.comes) / Seconds(job.alone));
      work += Seconds(job.lasts) * job.utilisation;
      last = std::max(last, Seconds(job.ended - Instant(1)));
      failures += job.failures;
    }
    const auto at = [](std::vector<double>& values, double part) {
      const auto index = static_cast<size_t>(part * static_cast<double>(values.size() - 1));
      std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                       values.end());
      return values[index];
    };
    const auto mean = [](const std::vector<double>& values) {
      double sum = 0;
      for (const double value : values) sum += value;
      return values.empty() ? 0 : sum / static_cast<double>(values.size());
    };
    double busy = 0, until_last_came = 0;
    for (Node& node : nodes_) {
      for (int gpu = 0; gpu < options_.gpus; ++gpu) busy += Seconds(node.sim->card(gpu).busy());
    }
    until_last_came = Seconds(jobs_.back().comes - Instant(1));
    return {{"way", way_.name},
            {"wait_mean_s", mean(waits)},
            {"wait_p50_s", at(waits, 0.5)},
            {"wait_p99_s", at(waits, 0.99)},
            {"run_over_alone_mean", mean(runs)},
            {"run_over_alone_p99", at(runs, 0.99)},
            {"time_over_alone_mean", mean(slowdowns)},
            {"time_over_alone_p50", at(slowdowns, 0.5)},
            {"time_over_alone_p99", at(slowdowns, 0.99)},
            {"failures", failures},
            {"stranded_mean", mean(stranded_)},
            {"jobs_that_waited", stranded_.size()},
            {"last_ended_s", last},
            {"last_came_s", until_last_came},
            {"gpu_busy_s", busy},
            {"gpu_occupied_s", occupied_},
            {"utilisation", busy / occupied_},
            {"work_s", work},
            {"events", events_},
            {"wall_s", wall}};
  }

  const Options options_;
  const Way way_;
  std::mt19937_64 random_;
  sim::Timeline timeline_;
  std::vector<Job> jobs_;
  std::vector<Node> nodes_;
  std::deque<size_t> waiting_;  // in the order in which they came
  std::vector<double> stranded_;
  double occupied_ = 0;  // seconds in which a GPU has a job, of all GPUs together
  size_t ended_ = 0;
  uint64_t events_ = 0;
};

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  using tandem::bench::Way;
  using tandem::kubernetes::Placement;
  tandem::bench::Options options;
  std::string only;
  bool json = false;
  CLI::App app{"Jobs of a trace on a simulated cluster, with GPUs given out in four ways.",
               "bench_scale"};
  app.add_option("--nodes", options.nodes)->check(CLI::Range(1, 100'000))->capture_default_str();
  app.add_option("--gpus", options.gpus, "of each node")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--jobs", options.jobs)->check(CLI::Range(1, 10'000'000))->capture_default_str();
  app.add_option("--hours", options.hours, "in which the jobs come")->capture_default_str();
  app.add_option("--oversubscribe", options.oversubscribe, "Tandem's, of memory")
      ->capture_default_str();
  app.add_option("--replicas", options.replicas, "of each GPU, for time-slicing")
      ->capture_default_str();
  app.add_option("--burst", options.burst, "mean seconds of work at a time")->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--way", only, "whole, fractions, replicas, tandem or tandem-spread; default: all")
      ->check(CLI::IsMember({"whole", "fractions", "replicas", "tandem", "tandem-spread"}));
  app.add_flag("--json", json, "lines of JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const int units = tandem::bench::kUnits;
  const int offered = static_cast<int>(units * options.oversubscribe);
  const std::vector<Way> ways = {{"whole", units, true},
                                 {"fractions", units},
                                 {"replicas", options.replicas, false, true, Placement::kMostRoom},
                                 {"tandem", offered},
                                 {"tandem-spread", offered, false, false, Placement::kMostRoom}};
  for (const Way& way : ways) {
    if (!only.empty() && way.name != only) continue;
    const nlohmann::json row = tandem::bench::Cluster(options, way).Run();
    std::printf("%s\n", row.dump(json ? -1 : 2).c_str());
    std::fflush(stdout);
  }
  return 0;
}
