// Sampler: asks the daemon on behalf of all clients, at most once in an interval, and only while a
// client wants an answer.
//
// Threading: any thread; a thread of its own asks.
// Invariants
// 1. Between the begins of two questions lies at least the interval.
// 2. While no call of Latest or Next waits, no question begins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "src/base/mutex.h"
#include "src/base/time.h"
#include "src/serve/snapshot.h"

namespace tandem::serve {

class Sampler {
 public:
  // Asks once, for a bounded time. Called by the sampler's thread alone.
  using Ask = std::function<Snapshot()>;

  Sampler(Ask ask, Duration interval);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // A snapshot that is no older than the interval; nothing where none came within `patience`.
  std::shared_ptr<const Snapshot> Latest(Duration patience);
  // One newer than the snapshot `number`; nothing where none came within `patience`, or after Stop.
  std::shared_ptr<const Snapshot> Next(uint64_t number, Duration patience);
  // Waits that long; false once it is stopped.
  bool Sleep(Duration duration);

  // Ends the thread, once its question is answered, and all waits.
  void Stop();

 private:
  void Run();
  bool IsNewerThan(uint64_t number) const REQUIRES_LOCK(mutex_);
  bool IsWanted() const REQUIRES_LOCK(mutex_);

  const Ask ask_;
  const Duration interval_;
  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<const Snapshot> latest_ GUARDED_BY(mutex_);
  uint64_t wanted_ GUARDED_BY(mutex_) = 0;  // the number of the newest snapshot that is waited for
  int waiting_ GUARDED_BY(mutex_) = 0;
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem::serve
