// bench_users: what `./dev bench interactive` measures, simulated: the same users with the same
// draws, by the code of the daemon's scheduler in virtual time (src/sim).
//
// A file for each user: lines "THINK_NS WORK_NS". On standard output "USER WAIT_NS" of each of
// their jobs, those of one user in their order.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "src/sim/node.h"

namespace {

using tandem::Bytes;
using tandem::Duration;

struct Draw {
  Duration think, work;
};

std::vector<Draw> Read(const std::string& file) {
  std::ifstream lines(file);
  std::vector<Draw> draws;
  for (int64_t think = 0, work = 0; lines >> think >> work;) {
    draws.push_back({Duration(think), Duration(work)});
  }
  return draws;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"What users of one card wait for it, simulated.", "bench_users"};
  tandem::sim::NodeConfig config;
  std::vector<std::string> files;
  uint64_t memory = 0, latency_us = 0;
  app.add_option("--policy", config.policy, "the rule that says who is next");
  app.add_option("--time-scale", config.turns.time_scale, "as tandemd has it");
  app.add_option("--card", config.card.count, "bytes to hand out");
  app.add_option("--chunk", config.chunk.count, "bytes, the unit of swapping");
  app.add_option("--memory", memory, "bytes that each needs");
  app.add_option("--bus", config.bus_bytes_per_second, "bytes a second, each way");
  app.add_option("--latency-us", latency_us, "of a message");
  app.add_option("files", files, "of the users' draws")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  config.latency = tandem::Microseconds(static_cast<int64_t>(latency_us));
  tandem::sim::Timeline timeline;
  tandem::sim::Node node(&timeline, config);
  for (size_t user = 0; user < files.size(); ++user) {
    const auto draws = std::make_shared<const std::vector<Draw>>(Read(files[user]));
    const auto next = std::make_shared<size_t>(0);
    // A user without further draws thinks for longer than all of this takes.
    const auto think = [=] {
      return *next < draws->size() ? (*draws)[*next].think : Duration(int64_t{1} << 60);
    };
    const auto burst = [=] { return (*draws)[(*next)++].work; };
    node.Start(0, 1000 + static_cast<unsigned>(user), {think, burst, Bytes(memory)},
               [user](const tandem::sim::Burst& done) {
                 const auto wait_ns = static_cast<long long>((done.started - done.ready).ns);
                 std::printf("%zu %lld\n", user, wait_ns);
               });
  }
  timeline.RunUntil(timeline.now() + Duration(int64_t{1} << 58));
  return 0;
}
