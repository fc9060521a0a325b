// bench_worker: the program that benchmarks run, bare and under Tandem. Plain driver API, like any
// other program; it does as the lines on its standard input say and answers each with a line. Where
// the answer is one number it is the time that took, in nanoseconds of the monotonic clock.
//
//   launches N              N empty kernels, and waits for them
//   memory BYTES            holds BYTES, in pieces as programs allocate them        "ok"
//   rewrite N               N passes over all of that memory, and waits
//   work SECONDS            passes over it until the time is up                     PASSES
//   copies up|down BYTES N  N copies between that memory and pinned memory of the host
//   job PHASES PASSES PAUSE_NS   in each phase: passes over the memory, then a pause
//   burst NS                a kernel, "begun", and kernels without a pause for NS from then;
//                           the device notes when each began and ended            "ended"
//   unit N                  N of the kernels that cells are made of, and waits
//   cells FILE              for each line "THINK_NS KERNELS" a pause, then a cell of KERNELS
//                           that writes to all of its memory       READY BEGIN READY BEGIN ...
//   serve STEPS KERNELS ROUNDS PAUSE_NS   in each step: kernels of ROUNDS rounds of a loop, whose
//                           times the device notes, and then a pause              "ended"
//   stamps                  those times, of all since the last answer  BEGIN END BEGIN END ...
//   allocations BYTES COUNT THREADS KEPT   by each thread, each freed at once, beside KEPT others
//   mappings BYTES COUNT PIECE   the same by way of the driver's virtual memory calls, in pieces
//
// With --no-kernels it loads none, for a driver that has no compiler. With --device N it uses that
// one instead of the first. With --echo COUNT PAUSE_NS it touches no GPU, but prints how long COUNT
// round trips to another process take, each with a thread to wake.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "bench/worker_device.h"
#include "bench/worker_echo.h"

namespace {

using bench::Device;

void Say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

// Each reads its words and returns what is to be answered; no more words, no answer.
std::string Answer(Device& device, const std::string& command, std::istringstream& words) {
  const auto number = [&words] {
    uint64_t value = 0;
    words >> value;
    return value;
  };
  if (command == "launches") return std::to_string(device.Launches(number()));
  if (command == "memory") {
    device.Hold(number());
    return "ok";
  }
  if (command == "rewrite") return std::to_string(device.Rewrite(number()));
  if (command == "work") {
    double seconds = 0;
    words >> seconds;
    return std::to_string(device.Work(seconds));
  }
  if (command == "copies") {
    std::string direction;
    words >> direction;
    const uint64_t bytes = number(), count = number();
    return std::to_string(device.Copies(direction == "up", bytes, count));
  }
  if (command == "job") {
    const uint64_t phases = number(), passes = number(), pause_ns = number();
    return std::to_string(device.Job(phases, passes, pause_ns));
  }
  if (command == "burst") {
    device.Burst(number(), [] { Say("begun"); });
    return "ended";
  }
  if (command == "serve") {
    const uint64_t steps = number(), kernels = number(), rounds = number(), pause_ns = number();
    device.Serve(steps, kernels, rounds, pause_ns);
    return "ended";
  }
  if (command == "unit") return std::to_string(device.Unit(number()));
  if (command == "cells") {
    std::string file;
    words >> file;
    return device.Cells(file);
  }
  if (command == "stamps") return device.Stamps();
  if (command == "allocations") {
    const uint64_t bytes = number(), count = number(), threads = number(), kept = number();
    return std::to_string(device.Allocations(bytes, count, threads, kept));
  }
  if (command == "mappings") {
    const uint64_t bytes = number(), count = number(), piece = number();
    return std::to_string(device.Mappings(bytes, count, piece));
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string option = argc > 1 ? argv[1] : "";
  if (option == "--echo" && argc == 4) {
    const auto count = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
    std::puts(bench::Echo(count, std::strtoull(argv[3], nullptr, 10)).c_str());
    return 0;
  }
  const bool kernels = option != "--no-kernels";
  const int index = option == "--device" && argc > 2 ? std::atoi(argv[2]) : 0;
  Device device(kernels, index);
  Say("ready");
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    const std::string answer = Answer(device, command, words);
    if (answer.empty()) {
      std::fprintf(stderr, "bench_worker: cannot do '%s'\n", line.c_str());
      return 2;
    }
    Say(answer);
  }
}
