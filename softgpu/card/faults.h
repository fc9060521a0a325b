// Faults: what goes wrong on demand, for tests: calls that fail, launches that take their context
// along, a bus that is slow. One for the process. What is to go wrong comes from the environment
// and, where TANDEM_SOFT_FAULTS_FILE names a file, from that file, as it is just then.
//
// Threading: any thread.
//
// Invariant: a rule counts from where it was set; one that stays as it was goes on counting.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "softgpu/card/options.h"
#include "src/base/mutex.h"

namespace tandem::soft {

class Faults {
 public:
  // `file` empty: there is none.
  Faults(const LiveOptions& options, std::string file);

  // Counts one more of what may fail in this way; true if this one is to.
  bool Due(Fault fault);
  // Counts a copy over the bus; the bandwidth of the bus from this one on, bytes a second and
  // direction.
  uint64_t CopyBegins();

 private:
  // What tells one state of the file from the next. All zero: it is not there.
  struct Stamp {
    uint64_t inode = 0;
    int64_t changed_ns = 0;
    int64_t bytes = 0;
    bool operator==(const Stamp&) const = default;
  };
  static Stamp StampOf(const std::string& file);
  void Refresh() REQUIRES_LOCK(mutex_);
  void Take(const LiveOptions& options) REQUIRES_LOCK(mutex_);

  const LiveOptions environment_;
  const std::string file_;
  const bool idle_;  // nothing is to go wrong, now or later
  Mutex mutex_;
  Stamp seen_ GUARDED_BY(mutex_);
  LiveOptions now_ GUARDED_BY(mutex_);
  std::array<uint64_t, kFaults> counts_ GUARDED_BY(mutex_) = {};
  uint64_t copies_ GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem::soft
