// The barriers of one thread block: bar.sync, bar.red and bar.arrive.
//
// A barrier for a number of threads releases them the moment that many have come, so that a thread
// that comes later belongs to its next generation. One for the whole block waits for every thread
// that has not left, which is looked at when no warp can go on.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "softgpu/ptx/warp.h"

namespace tandem::ptx {

class Barriers {
 public:
  static constexpr uint32_t kCount = 16;

  // A block starts: no thread has come.
  void Start(size_t warps);
  // bar.arrive by lanes of a warp, at a barrier for `expected` threads. True: it let threads go.
  bool Arrive(std::vector<Warp>& warps, const Code& code, uint32_t warp, uint32_t lanes,
              uint32_t barrier, uint32_t expected);
  // Lets go of a barrier that is complete, of all that are. True: some thread may go on.
  bool Look(std::vector<Warp>& warps, const Code& code, uint32_t barrier, uint32_t expected = 0);
  bool LookAtAll(std::vector<Warp>& warps, const Code& code);

 private:
  // Who waits at a barrier.
  struct Waiting {
    uint32_t threads = 0;  // each
    uint32_t counted = 0;  // a whole warp as 32, even where the block's last one has fewer
    uint32_t expected = 0;
    uint32_t votes = 0;
    bool everybody = true;  // with those that have arrived
  };
  bool LookAtOnly(std::vector<Warp>& warps, const Code& code) const;
  Waiting Count(const std::vector<Warp>& warps, uint32_t barrier) const;
  static void Release(std::vector<Warp>& warps, const Code& code, uint32_t barrier,
                      const Waiting& waiting);

  // bar.arrive since each barrier last let go: threads, and the lanes of each warp.
  uint32_t arrivals_[kCount] = {};
  std::vector<std::array<uint32_t, kCount>> arrived_;
};

}  // namespace tandem::ptx
