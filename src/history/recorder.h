// Recorder: writes a daemon's records on a thread of its own, so that a slow or full disk stops
// nothing else. Records that come faster than they can be written are dropped and counted.
//
// Threading: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/history/accounts_writer.h"
#include "src/history/event_log.h"
#include "src/history/record.h"

namespace tandem::history {

struct RecorderConfig {
  EventLogOptions events;                        // no path: no event log
  std::function<void(const std::string&)> note;  // a line for the daemon's log; any thread
  std::string accounts_file = {};                // empty: no accounts
  AccountsOptions accounts = {};
  std::function<std::string(unsigned uid)> user_name = {};  // called on the recorder's thread
  size_t most_queued = 65536;
};

class Recorder {
 public:
  explicit Recorder(RecorderConfig config);
  // Writes the queued records. A file system that hangs delays it by two seconds at most.
  ~Recorder();

  void Put(Record record);
  uint64_t lost() const;

 private:
  class Work;
  std::shared_ptr<Work> work_;  // the thread's, too: it may outlive the recorder
  std::thread thread_;
};

}  // namespace tandem::history
