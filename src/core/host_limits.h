// HostLimits: how much memory of the host is promised to what may have to leave the cards of one
// daemon, and the most that may be.
//
// Threading: none. Pure, but for what it is given to ask how much the host has.
// Invariant: a promise that Fits keeps the sum within the limit. (What has to be promised in any
// case may break it: what was there before the daemon, or an order to suspend.)
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "src/base/bytes.h"

namespace tandem::core {

class HostLimits {
 public:
  // `available`: what the host could give now, whoever has taken the rest; only asked where a
  // promise is to grow. Without it the limit alone counts.
  explicit HostLimits(Bytes limit, std::function<Bytes()> available = {})
      : limit_(limit), available_(std::move(available)) {}

  // Whether the GPU may have as much promised, or has already.
  bool Fits(int gpu, Bytes bytes) const;
  // From now on so much is the GPU's.
  void Promise(int gpu, Bytes bytes);
  void Raise(Bytes by) { limit_ += by; }

  Bytes limit() const { return limit_; }
  Bytes promised() const;
  Bytes Left() const;  // to be promised

 private:
  Bytes limit_;
  std::function<Bytes()> available_;
  std::map<int, Bytes> promised_;  // by GPU
};

}  // namespace tandem::core
