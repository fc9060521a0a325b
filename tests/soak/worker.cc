// soak_worker DEVICES SEED BYTES SECONDS [ROLE]: a program that uses GPUs in many ways at random,
// holding up to BYTES, knows what every byte it has there should be, and looks. DEVICES are numbers
// with commas between them, each with a thread and a context of its own; the same one may be there
// twice. BYTES may be LEAST-MOST, for large blocks that are LEAST at least. ROLE is "lend:PATH" or
// "borrow:PATH": the first thread shares memory with that of another worker, which has the other
// role at the same PATH. Prints one line, a JSON object of counts. Status: 0 if every byte was
// right, 1 if not, 2 if a call failed.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/soak/blocks.h"

namespace {

struct Order {
  uint32_t seed = 0;
  soak::Blocks::Size size;
  tandem::Instant end;
  std::string role;  // empty: none
};

struct Outcome {
  soak::Counts counts;
  uint64_t again = 0, broken = 0;
};

Outcome Work(int ordinal, const Order& order) {
  Outcome outcome;
  soak::Device device(ordinal);
  {
    soak::Blocks blocks(&device, order.seed, order.size);
    if (!order.role.empty()) blocks.ShareAs(order.role);
    do {
      blocks.Step();
    } while (tandem::MonotonicNow() < order.end);
    blocks.Finish();
    outcome.counts = blocks.counts();
  }
  outcome.again = device.again();
  outcome.broken = device.broken();
  return outcome;
}

// Each thread has its part.
soak::Blocks::Size ParseSize(const std::string& text, size_t threads) {
  const size_t dash = text.find('-');
  const bool least = dash != std::string::npos;
  return {least ? std::stoull(text) / threads : 0,
          std::stoull(least ? text.substr(dash + 1) : text) / threads};
}

// Returns how many bytes were wrong.
uint64_t Print(const std::vector<Outcome>& outcomes) {
  using Counter = uint64_t soak::Counts::*;
  const std::pair<const char*, Counter> counters[] = {
      {"operations", &soak::Counts::operations},
      {"allocations", &soak::Counts::allocations},
      {"out_of_memory", &soak::Counts::out_of_memory},
      {"launches", &soak::Counts::launches},
      {"copies", &soak::Counts::copies},
      {"graphs", &soak::Counts::graphs},
      {"contexts", &soak::Counts::contexts},
      {"arrays", &soak::Counts::arrays},
      {"lent", &soak::Counts::lent},
      {"borrowed", &soak::Counts::borrowed},
      {"refused", &soak::Counts::refused},
      {"lost", &soak::Counts::lost},
      {"moved_bytes", &soak::Counts::moved_bytes},
      {"verified_bytes", &soak::Counts::verified_bytes},
      {"wrong_bytes", &soak::Counts::wrong_bytes},
  };
  uint64_t again = 0, broken = 0, sum = 0;
  for (const Outcome& outcome : outcomes) {
    again += outcome.again;
    broken += outcome.broken;
  }
  std::printf("{\"again\": %" PRIu64 ", \"broken\": %" PRIu64, again, broken);
  for (const auto& [name, counter] : counters) {
    sum = 0;
    for (const Outcome& outcome : outcomes) sum += outcome.counts.*counter;
    std::printf(", \"%s\": %" PRIu64, name, sum);
  }
  std::printf("}\n");
  return sum;  // the last
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) {
    std::fprintf(stderr, "soak_worker DEVICES SEED BYTES SECONDS [ROLE]\n");
    return 2;
  }
  std::vector<int> devices;
  std::istringstream list(argv[1]);
  for (std::string one; std::getline(list, one, ',');) devices.push_back(std::atoi(one.c_str()));
  const auto seed = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
  const auto lasts = tandem::Duration(static_cast<int64_t>(std::atof(argv[4]) * 1e9));
  Order order = {seed, ParseSize(argv[3], devices.size()), tandem::MonotonicNow() + lasts,
                 argc == 6 ? argv[5] : ""};
  std::vector<Outcome> outcomes(devices.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < devices.size(); ++i, ++order.seed, order.role.clear()) {
    threads.emplace_back(
        [&outcomes, &devices, i, order] { outcomes[i] = Work(devices[i], order); });
  }
  for (std::thread& thread : threads) thread.join();
  return Print(outcomes) == 0 ? 0 : 1;
}
