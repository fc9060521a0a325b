// The names of Why: codes for programs, words for people.
#pragma once

#include "src/core/types.h"

namespace tandem::core {

struct WhyName {
  const char *code, *text;
};

constexpr WhyName NameOf(Why why) {
  switch (why) {
    case Why::kTurnEnded:
      return {"turn_ended", "its turn was over"};
    case Why::kMadeWay:
      return {"made_way", "it ran in a gap that ended"};
    case Why::kPaused:
      return {"paused", "it had no work"};
    case Why::kInterrupted:
      return {"interrupted", "more urgent work came"};
    case Why::kHeldUp:
      return {"held_up", "it waited for memory itself"};
    case Why::kOrdered:
      return {"ordered", "an order, or its class"};
  }
  return {"", ""};
}

}  // namespace tandem::core
