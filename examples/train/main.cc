// train: a small network, trained by plain CUDA driver calls. An example of a program that knows
// nothing of Tandem, and a load whose every byte counts.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "kernels_ptx.h"
#include "network.h"
#include "src/base/time.h"

namespace {

using tandem::Duration;
using tandem::Instant;
using tandem::MonotonicNow;
using train::Result;
using train::Status;

constexpr int kLinesOfCurve = 10;

struct Arguments {
  train::Options options;
  int device = 0;
  int steps = 50;
  int pause_ms = 0;
  std::string hold, until;  // files' names
  bool json = false;
};

struct Outcome {
  std::vector<float> losses;
  std::vector<double> step_ms;
  uint64_t checksum = 0;
  double seconds = 0;  // from the first step's begin to the last one's end
};

Result<Outcome> Train(const Arguments& arguments) {
  auto device = train::Device::Open(arguments.device, train::kKernelsPtx);
  if (!device.ok()) return device.error();
  auto network = train::Network::Create(device->get(), arguments.options);
  if (!network.ok()) return network.error();
  Outcome outcome;
  const Instant begin = MonotonicNow();
  for (int step = 1; step <= arguments.steps; ++step) {
    const Instant step_begin = MonotonicNow();
    ASSIGN_OR_RETURN(const float loss, (*network)->Step());
    outcome.step_ms.push_back((MonotonicNow() - step_begin).seconds() * 1e3);
    outcome.losses.push_back(loss);
    const bool shown =
        step == 1 || step == arguments.steps ||
        step * kLinesOfCurve / arguments.steps != (step - 1) * kLinesOfCurve / arguments.steps;
    if ((shown || !arguments.until.empty()) && !arguments.json) {
      // Nine digits tell every float from its neighbours.
      std::printf("step %5d  loss %.9g\n", step, static_cast<double>(loss));
      std::fflush(stdout);
    }
    if (!arguments.until.empty() && std::filesystem::exists(arguments.until)) break;
    if (step < arguments.steps && arguments.pause_ms > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(arguments.pause_ms));
    }
  }
  outcome.seconds = (MonotonicNow() - begin).seconds();
  while (!arguments.hold.empty() && !std::filesystem::exists(arguments.hold)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSIGN_OR_RETURN(outcome.checksum, (*network)->Checksum());
  return outcome;
}

void PrintJson(const Arguments& arguments, Outcome outcome) {
  std::printf("{\"memory_bytes\": %" PRIu64 ", \"steps\": %d, \"passes\": %u, \"pause_ms\": %d, ",
              arguments.options.memory.count, arguments.steps, arguments.options.passes,
              arguments.pause_ms);
  std::printf("\"losses\": [");
  for (size_t i = 0; i < outcome.losses.size(); ++i) {
    std::printf("%s%.9g", i == 0 ? "" : ", ", static_cast<double>(outcome.losses[i]));
  }
  auto& times = outcome.step_ms;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  std::printf("], \"checksum\": \"%016" PRIx64 "\", \"step_ms\": %.3f, \"seconds\": %.6f}\n",
              outcome.checksum, *middle, outcome.seconds);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  std::string memory = "160M";
  CLI::App app{"Trains a small network on a GPU, by plain CUDA driver calls."};
  app.add_option("--memory", memory, "Device memory to hold, all of it used by every step")
      ->capture_default_str();
  app.add_option("--device", arguments.device, "Ordinal of the GPU")->capture_default_str();
  app.add_option("--steps", arguments.steps, "Training steps")
      ->check(CLI::Range(1, 1000000000))
      ->capture_default_str();
  app.add_option("--passes", arguments.options.passes, "Passes over the memory in each step")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--pause-ms", arguments.pause_ms, "Pause on the host between two steps")
      ->check(CLI::Range(0, 3600000))
      ->capture_default_str();
  app.add_option("--hold", arguments.hold, "After the last step, keep the memory until FILE exists")
      ->type_name("FILE");
  app.add_option("--until", arguments.until, "Print every step, and stop early once FILE exists")
      ->type_name("FILE");
  app.add_flag("--json", arguments.json,
               "One JSON object: every loss, the checksum, the median time of a step");
  app.footer(
      "The losses and the checksum of the device memory are the same, bit for bit, in every run\n"
      "with the same options, whatever else happens on the GPU.\n\n"
      "Examples:\n"
      "  tandem run -- train --memory 160M --steps 100\n"
      "  train --steps 20 --pause-ms 5 --json");
  CLI11_PARSE(app, argc, argv);

  const auto fail = [](const tandem::Error& error) {
    std::fprintf(stderr, "train: %s\n", error.message.c_str());
    return 1;
  };
  const Result<tandem::Bytes> size = tandem::ParseBytes(memory);
  if (!size.ok()) return fail(size.error());
  // Whole vectors of four words.
  arguments.options.memory = tandem::Bytes(size->count / 16 * 16);
  Result<Outcome> outcome = Train(arguments);
  if (!outcome.ok()) return fail(outcome.error());
  if (arguments.json) {
    PrintJson(arguments, std::move(outcome).value());
  } else {
    std::printf("checksum %016" PRIx64 "\n", outcome->checksum);
  }
  return 0;
}
