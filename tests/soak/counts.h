// What a soak_worker has done, by its name in the line that it prints.
#pragma once

#include <cstdint>

namespace soak {

struct Counts {
  uint64_t operations = 0, allocations = 0, out_of_memory = 0, launches = 0, copies = 0;
  uint64_t graphs = 0, contexts = 0, arrays = 0;
  // Memory shared with another worker: offered to it, opened by it, refused when it was to be
  // offered or opened, not given back by one that was killed or whose context broke.
  uint64_t lent = 0, borrowed = 0, refused = 0, lost = 0;
  uint64_t moved_bytes = 0, verified_bytes = 0, wrong_bytes = 0;
};

}  // namespace soak
