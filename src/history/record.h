// Record: what a daemon tells about itself, for the event log (line.h) and the accounts (usage.h).
//
// One daemon's records are in the order of their instants. They hold all that its arbiters were
// told, but for the progress of copies.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/core/types.h"
#include "src/history/usage.h"

namespace tandem::history {

struct GpuFacts {
  int index = 0;
  std::string uuid;
  std::string name;
  bool software = false;
  Bytes card;
  Bytes budget;   // that sessions can share, at the start
  Bytes context;  // of one
  Bytes chunk;
};

// The first record of a daemon.
struct DaemonStarted {
  std::string version;
  int pid = 0;
  std::string policy;
  std::vector<GpuFacts> gpus;
};

// Comes before what its GPU's arbiter is told of it; again where it registers again.
struct SessionIdentified {
  std::shared_ptr<const SessionIdentity> who;
};

// What an arbiter is told.
struct Told {
  int gpu = 0;
  core::Event event;
};

// What an arbiter decides.
struct Decided {
  int gpu = 0;
  core::Action action;
};

struct HandedOver {
  int gpu = 0;
  core::Handover handover;
  // What those that took part in it are charged with afterwards.
  std::vector<std::pair<core::SessionId, Bytes>> resident;
};

// Records that were not kept, since they came faster than they could be written.
struct Lost {
  uint64_t count = 0;
};

struct Record {
  Instant at;
  int64_t unix_ns = 0;  // the same on the wall
  std::variant<DaemonStarted, SessionIdentified, Told, Decided, HandedOver, Usage, Lost> what;
};

}  // namespace tandem::history
