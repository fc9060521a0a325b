// SavedSessions: what a daemon has granted to each session, kept where the next daemon finds it if
// this one is killed. The next one then counts the memory of programs that have not come back yet,
// and believes no program more than was granted to it.
//
// Threading: the service's.
// Invariants
// 1. A session's entry changes before the session is told, so that it never has more than that.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::service {

// Plain memory, so that it may lie in a file. An update that was cut short leaves each number as it
// was or as it should be.
struct SavedSession {
  static constexpr int64_t kNoUser = -1;

  std::atomic<uint64_t> id;  // of the session; 0: the entry is free. Written last
  uint64_t started_ticks;    // when its process started; with `pid` that names the process
  int64_t started_ns;        // the session, on the monotonic clock
  uint64_t run;              // token of its run; 0: none
  uint64_t limit_bytes;      // of its run, 0: none; or its own
  uint64_t allocated_bytes;
  uint64_t charged_bytes;  // it may have as much on the card, without contexts and fixed memory
  uint64_t fixed_bytes;
  int64_t suspended_by;  // uid; kNoUser: unknown
  int64_t limited_by;    // uid of the last order about the limit; kNoUser: there was none
  int64_t limited_ns;    // when, on the monotonic clock
  uint32_t pid;
  uint32_t uid;
  uint32_t contexts;
  uint8_t suspended;
  uint8_t oversubscribes;
  uint8_t spills;
  uint8_t of_class;  // by its number
  char device[48];   // uuid of the GPU
  char program[128];
};

class SavedSessions {
 public:
  virtual ~SavedSessions() = default;
  // Of a daemon before this one, of processes that are alive. They keep their places.
  virtual std::vector<SavedSession*> found() = 0;
  // Whether a daemon before this one has left its sessions, if only to say that it had none.
  virtual bool complete() const = 0;
  // A free entry, all zero; null where there is no room. It is taken once its id is set.
  virtual SavedSession* Add() = 0;
  // The numbers of sessions go on from here.
  virtual std::atomic<uint64_t>& last_session() = 0;
};

}  // namespace tandem::service
