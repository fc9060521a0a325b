// The messages of `tandem`: runs, queries, orders, and what it is told of waits. Part of
// messages.h, whose rules hold here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

namespace tandem::wire {

// Opens a run; it lasts as long as this connection. Answered by RunStarted.
struct RunBegin {
  static constexpr uint16_t kType = 64;
  static constexpr size_t kRequired = 5;  // fields; version 2 had no more
  std::string build;
  std::string name;  // empty: the program's
  std::string program;
  uint64_t limit_bytes = 0;  // 0: the budget
  uint64_t run = 0;          // the token it had with a daemon that is gone; 0: none
  uint8_t suspended = 0;     // with that daemon: what it starts begins suspended
  // The limit may be above the budget: memory beyond the card stays on the host.
  uint8_t oversubscribes = 0;
  std::string of_class = {};  // of its work, by name; empty: the usual one
  auto Fields() {
    return std::tie(build, name, program, limit_bytes, run, suspended, oversubscribes, of_class);
  }
};

struct RunStarted {
  static constexpr uint16_t kType = 65;
  uint64_t run = 0;  // handed to the program in TANDEM_RUN
  uint64_t limit_bytes = 0;
  auto Fields() { return std::tie(run, limit_bytes); }
};

// what: "status", "sessions" or "handovers". Answered by Answer.
struct Query {
  static constexpr uint16_t kType = 66;
  std::string what;
  auto Fields() { return std::tie(what); }
};

struct Answer {
  static constexpr uint16_t kType = 67;
  std::string json;  // up to kMaxAnswer: its length is the header's, it has none of its own
};

// An order about a session or a run, of its user or root. what: "suspend", "resume" or "limit".
// target: a session's number, as listings have it, or a run's name or number. "limit" is always the
// run's. Answered by Answer, with the numbers of the sessions that it concerns, or by Refused.
struct Control {
  static constexpr uint16_t kType = 68;
  std::string what;
  std::string target;
  uint64_t limit_bytes = 0;  // of "limit"; 0: the budget
  static constexpr size_t kRequired = 3;
  std::string value = {};  // of "policy": its name
  auto Fields() { return std::tie(what, target, limit_bytes, value); }
};

// To `tandem run`, which says so in its next RunBegin: what an order has made of its run.
struct RunChanged {
  static constexpr uint16_t kType = 69;
  static constexpr uint16_t kSince = 3;  // not told to older ones
  uint64_t limit_bytes = 0;              // 0: the budget
  uint8_t suspended = 0;
  auto Fields() { return std::tie(limit_bytes, suspended); }
};

// What a run is shown as its GPU, for programs that ask NVML. Answered by RunShown, or by Refused
// where there is no such run of the user's.
struct RunQuery {
  static constexpr uint16_t kType = 70;
  uint64_t run = 0;    // token
  std::string device;  // uuid of the GPU, as FormatUuid prints it
  auto Fields() { return std::tie(run, device); }
};

struct RunShown {
  static constexpr uint16_t kType = 71;
  static constexpr uint16_t kSince = 3;
  uint64_t limit_bytes = 0;
  uint64_t used_bytes = 0;  // by all its sessions there, contexts excluded
  std::string processes;    // a line "PID BYTES" for each of them
  auto Fields() { return std::tie(limit_bytes, used_bytes, processes); }
};

// "Tell me while a session of this run waits." run 0: a session of the asking process. The daemon
// sends Waiting, once the wait has lasted for a second, until the connection ends.
struct WatchWaits {
  static constexpr uint16_t kType = 76;
  static constexpr uint16_t kSince = 11;
  uint64_t run = 0;  // token
  auto Fields() { return std::tie(run); }
};

// What the session that has waited the longest waits for: at first, then where something has
// changed, at most once a second; and once, with an empty state, when the wait is over.
struct Waiting {
  static constexpr uint16_t kType = 77;
  static constexpr uint16_t kSince = 11;
  static constexpr uint64_t kUnknown = UINT64_MAX;
  std::string state;   // code of a state (service/standing.h), or "ended"; empty: nothing waits
  std::string reason;  // code of why it waits; empty: none
  std::string name;    // of its run, or of its program
  std::string gpu;     // "gpu0"
  uint64_t session = 0;
  uint64_t pid = 0;
  uint64_t waited_ms = 0;
  uint64_t place = 0;                // in line, from 1; 0: in none
  uint64_t expected_ms = kUnknown;   // until it goes on
  std::string holder;                // the name of one that holds the GPU; empty: none does
  uint64_t holders = 0;              // how many do
  uint64_t suspended_by = kUnknown;  // uid of the user who suspended it
  auto Fields() {
    return std::tie(state, reason, name, gpu, session, pid, waited_ms, place, expected_ms, holder,
                    holders, suspended_by);
  }
};

// "The user wants the program to end, and it waits": each of the run's sessions that waits is sent
// EndProgram.
struct EndWait {
  static constexpr uint16_t kType = 78;
  static constexpr uint16_t kSince = 11;
  uint64_t run = 0;  // token
  auto Fields() { return std::tie(run); }
};

}  // namespace tandem::wire
