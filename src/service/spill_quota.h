// SpillQuota: how much a session's spill file may hold. It grows only as far as the session was
// promised room lately. It keeps what it holds when the promise shrinks, since chunks leave it
// when their program needs them on the card.
//
// Threading: none.
#pragma once

#include <algorithm>

#include "src/base/bytes.h"
#include "src/base/time.h"

namespace tandem::service {

class SpillQuota {
 public:
  // A promise that has shrunk still counts for this long, at most twice: the program may not have
  // seen that yet.
  static constexpr Duration kGrace = Seconds(10);

  void OnPromise(Bytes promised, Instant now) {
    Age(now);
    promised_ = promised;
    most_ = std::max(most_, promised);
  }

  // The file holds `bytes`. Returns how much it may hold.
  Bytes OnMeasured(Bytes bytes, Instant now) {
    Age(now);
    const Bytes allowed = std::max({most_, most_before_, kept_});
    kept_ = std::min(bytes, allowed);
    return allowed;
  }

 private:
  void Age(Instant now) {
    if (now - since_ < kGrace) return;
    most_before_ = most_;
    most_ = promised_;
    since_ = now;
  }

  Bytes promised_;
  Bytes most_;         // promised since `since_`
  Bytes most_before_;  // in the time before that
  Instant since_;
  Bytes kept_;  // of what it held last, as much as it was allowed to
};

}  // namespace tandem::service
