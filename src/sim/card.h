// Card: the hardware of one GPU in virtual time: a bus that copies both ways at once, and one
// engine that divides itself evenly among those who have work on it (processor sharing, which is
// what time slices between processes come to).
//
// Threading: none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "src/base/bytes.h"
#include "src/base/time.h"
#include "src/sim/timeline.h"

namespace tandem::sim {

class Card {
 public:
  enum class Way { kIn, kOut };

  Card(Timeline* timeline, double bytes_per_second)
      : timeline_(timeline), bytes_per_second_(bytes_per_second) {}
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  // Of copies that begin from now on.
  void SetBytesPerSecond(double bytes_per_second) { bytes_per_second_ = bytes_per_second; }
  // `done` is called when the copy is; copies of one way follow each other.
  void Copy(Way way, Bytes bytes, Timeline::Call done);

  // Work that takes `work` if it runs alone. Returns a number for Interrupt.
  uint64_t Run(Duration work, Timeline::Call done);
  // `done` is not called any more. Returns what is left of it.
  Duration Interrupt(uint64_t number);
  // How long the engine has had something to do.
  Duration busy();

 private:
  struct Work {
    double left_ns;
    Timeline::Call done;
  };

  void Advance();
  void Schedule();

  Timeline* const timeline_;
  double bytes_per_second_;
  Instant free_at_[2];  // each way of the bus
  std::map<uint64_t, Work> works_;
  uint64_t last_ = 0;
  uint64_t schedule_ = 0;  // which of those that were made counts
  Instant advanced_at_;
  Duration busy_;
};

}  // namespace tandem::sim
