// ByteTime: how many bytes there were, for how long, in all. Pure. Threading: none.
#pragma once

#include "src/base/bytes.h"
#include "src/base/time.h"

namespace tandem::core {

class ByteTime {
 public:
  // From `now` on there are `bytes`.
  void Set(Bytes bytes, Instant now) {
    if (bytes == bytes_) return;
    total_ = Until(now);
    since_ = now;
    bytes_ = bytes;
  }
  // Byte-seconds.
  double Until(Instant now) const {
    return total_ + static_cast<double>(bytes_.count) * (now - since_).seconds();
  }

 private:
  double total_ = 0;
  Bytes bytes_;
  Instant since_;
};

}  // namespace tandem::core
