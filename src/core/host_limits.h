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
  // promise is to grow. Without it the limit alone counts. `measured`: nobody has set the limit; it
  // was measured, and grows where there is more later on.
  explicit HostLimits(Bytes limit, std::function<Bytes()> available = {}, bool measured = false)
      : limit_(limit), available_(std::move(available)), measured_(measured) {}
  // The limit where so much is available: some of it is for everybody else.
  static Bytes Measured(Bytes available) { return available - Bytes(available.count / 10); }

  // Whether the GPU may have as much promised, or has already.
  bool Fits(int gpu, Bytes bytes);
  // From now on so much is the GPU's.
  void Promise(int gpu, Bytes bytes);
  void Raise(Bytes by) { limit_ += by; }

  Bytes limit() const { return limit_; }
  Bytes promised() const;
  Bytes Left();  // to be promised

 private:
  Bytes limit_;
  std::function<Bytes()> available_;
  bool measured_;
  std::map<int, Bytes> promised_;  // by GPU
};

}  // namespace tandem::core
