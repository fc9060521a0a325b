// Usage: what one session used of one GPU in one interval, as the daemon counts it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tandem::history {

// Whose work it is. Does not change in a session's life.
struct SessionIdentity {
  uint64_t session = 0;  // its number, unique for one daemon's state directory
  std::string gpu;       // the UUID
  int gpu_index = 0;
  unsigned uid = 0;
  std::string user;
  std::string project;  // empty: none
  std::string run;      // the run's name; empty: none
  std::string program;
  int pid = 0;
  int64_t started_unix_ns = 0;
};

struct Usage {
  std::shared_ptr<const SessionIdentity> of;
  int64_t from_unix_ns = 0;  // the interval; at most ten seconds, never across an hour's begin
  int64_t to_unix_ns = 0;
  double held_s = 0;    // with the lease
  double active_s = 0;  // of it, with work in flight as far as Tandem sees
  double waited_s = 0;  // held back: waiting for a turn, for memory, suspended
  double allocated_byte_s = 0;
  double resident_byte_s = 0;
  double swapped_byte_s = 0;
  uint64_t handovers = 0;  // to it
  uint64_t out_bytes = 0;  // copied to the host
  uint64_t in_bytes = 0;   // copied back
  bool last = false;       // the session has ended
};

}  // namespace tandem::history
