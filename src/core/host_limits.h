// HostLimits: how much memory of the host is promised to what may have to leave the cards of one
// daemon, and the most that may be.
//
// Threading: none. Pure.
// Invariant: a promise that Fits keeps the sum within the limit. (What has to be promised in any
// case may break it: what was there before the daemon, or an order to suspend.)
#pragma once

#include <map>

#include "src/base/bytes.h"

namespace tandem::core {

class HostLimits {
 public:
  explicit HostLimits(Bytes limit) : limit_(limit) {}

  // Whether the GPU may have as much promised, or has already.
  bool Fits(int gpu, Bytes bytes) const;
  // From now on so much is the GPU's.
  void Promise(int gpu, Bytes bytes);
  void Raise(Bytes by) { limit_ += by; }

  Bytes limit() const { return limit_; }
  Bytes promised() const;
  Bytes free() const { return SaturatingSubtract(limit_, promised()); }

 private:
  Bytes limit_;
  std::map<int, Bytes> promised_;  // by GPU
};

}  // namespace tandem::core
