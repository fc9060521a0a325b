// Cooperative launches: an Execution made of one for each block.
#include "softgpu/ptx/execute.h"
#include "softgpu/ptx/warp.h"

namespace tandem::ptx {

void Execution::MakeBlocks(const Launch& launch, const MemoryMap& memory, Path path) {
  uint32_t block[3] = {0, 0, 0};
  do {
    blocks_.push_back(Execution(launch, memory, path, block));
  } while (NextBlock(launch.grid, block));
}

// A block's turn ends with its first question, which is then also put to the caller.
Stop Execution::RunTogether(const std::function<bool()>& should_yield) {
  const auto always = [] { return true; };
  for (size_t done = 0; done < blocks_.size();) {
    const Stop stop = blocks_[turn_].Run(always);  // one that is done says so again
    if (stop != Stop::kDone && stop != Stop::kYielded) return stop;
    done = stop == Stop::kDone ? done + 1 : 0;
    turn_ = (turn_ + 1) % blocks_.size();
    if (stop == Stop::kYielded && should_yield()) return Stop::kYielded;
  }
  return Stop::kDone;
}

}  // namespace tandem::ptx
