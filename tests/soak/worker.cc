// soak_worker DEVICE SEED BYTES SECONDS: a program that uses that GPU in many ways at random,
// holding up to BYTES, knows what every byte it has there should be, and looks. Prints one line, a
// JSON object of counts. Status: 0 if every byte was right, 1 if not, 2 if a call failed.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "tests/soak/blocks.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "soak_worker DEVICE SEED BYTES SECONDS\n");
    return 2;
  }
  soak::Device device(std::atoi(argv[1]));
  soak::Counts counts;
  {
    soak::Blocks blocks(&device, static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10)),
                        std::strtoull(argv[3], nullptr, 10));
    const auto lasts = tandem::Duration(static_cast<int64_t>(std::atof(argv[4]) * 1e9));
    const tandem::Instant end = tandem::MonotonicNow() + lasts;
    do {
      blocks.Step();
    } while (tandem::MonotonicNow() < end);
    blocks.Finish();
    counts = blocks.counts();
  }
  const std::pair<const char*, uint64_t> shown[] = {
      {"operations", counts.operations},
      {"allocations", counts.allocations},
      {"out_of_memory", counts.out_of_memory},
      {"launches", counts.launches},
      {"copies", counts.copies},
      {"graphs", counts.graphs},
      {"contexts", counts.contexts},
      {"arrays", counts.arrays},
      {"moved_bytes", counts.moved_bytes},
      {"verified_bytes", counts.verified_bytes},
      {"wrong_bytes", counts.wrong_bytes},
      {"again", device.again()},
      {"broken", device.broken()},
  };
  const char* separator = "{";
  for (const auto& [name, count] : shown) {
    std::printf("%s\"%s\": %" PRIu64, separator, name, count);
    separator = ", ";
  }
  std::printf("}\n");
  return counts.wrong_bytes == 0 ? 0 : 1;
}
