// ArbiterConfig: what an arbiter of one GPU is made with.
#pragma once

#include <cstdint>
#include <string>

#include "src/core/host_limits.h"
#include "src/core/turns.h"
#include "src/core/types.h"

namespace tandem::core {

struct ArbiterConfig {
  Bytes budget;
  Bytes chunk;    // the unit of swapping
  Bytes spare;    // beside the budget: lent to the arriving session until another one has left
  Bytes context;  // footprint of one context
  uint32_t reserved = 4;  // contexts outside the budget
  std::string policy = "interactive";
  TurnRules turns;
  // Of a bus, until something moves. As fast as there are any: one switch shows what it costs,
  // while a bus that is taken for slow may never be tried.
  double bytes_per_second = 100e9;
  Duration window = Milliseconds(10);  // of work in flight
  Duration deadline = Seconds(2);      // to drain after Revoke; doubled while it proves too short
  Duration silence = Seconds(2);       // without a sign of progress: do not count on it
  Duration busy_backoff = Milliseconds(20);
  // For what cannot be swapped, while no end of a turn would bring room for it.
  Duration fixed_wait = Seconds(60);
  // A session that gives back neither its lease nor its memory while others wait is to be ended
  // after this; zero: never.
  Duration longest_block = Seconds(300);
  // What the host has promised to a session that never used any of it is taken back after this.
  Duration unused_promise = Seconds(300);
  HostLimits* host = nullptr;  // outlives the arbiter; null: the host has room for everything
  int gpu = 0;                 // its name there
};

}  // namespace tandem::core
