// Progress: how far a launch has come, for who runs it and for its clocks.
#pragma once

#include <cstdint>

namespace tandem::ptx {

// How far a launch has come, and what its clocks show: the host's time, or began_ns plus a fixed
// time for each instruction.
struct Progress {
  int64_t instructions = 0;  // of warps, counted at back-edges and at the ends of blocks
  int64_t began_ns = 0;
  int64_t instruction_ns = 0;  // 0: the host's clocks
};

}  // namespace tandem::ptx
