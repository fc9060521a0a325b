// CardUse: what a card says of its memory.
#pragma once

#include <map>
#include <string>

#include "src/base/bytes.h"
#include "src/base/time.h"

namespace tandem::service {

struct CardUse {
  struct Range {
    Bytes least, most;
  };
  Bytes free;
  std::map<int, Range> processes;  // what each has there, by pid
};

struct CardUses {
  Instant asked_at;
  std::map<std::string, CardUse> of;  // by uuid
};

}  // namespace tandem::service
