// EventLog: lines appended to a file that is bounded: when it is full it becomes FILE.1, FILE.1
// becomes FILE.2, and so on; the last one is removed.
//
// A line is there whole or not at all, also after a full disk or a kill. What cannot be written is
// lost and counted; the next lines are tried again.
//
// Threading: one thread, which may wait for the file system.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "src/base/result.h"
#include "src/base/time.h"
#include "src/base/unique_fd.h"

namespace tandem::history {

struct EventLogOptions {
  std::string path;
  uint64_t most_bytes = uint64_t{64} << 20;  // of one file
  int older_files = 3;
  bool everybody_reads = false;
};

class EventLog {
 public:
  // `note` takes lines for the daemon's log. `head` gives the lines that each file begins with
  // but the first, whose own lines they are.
  EventLog(EventLogOptions options, std::function<void(const std::string&)> note,
           std::function<std::string()> head);

  // `lines`: `count` of them, each with its end.
  void Append(const std::string& lines, uint64_t count, Instant now);

  uint64_t lost_lines() const { return lost_; }

 private:
  Status Open();
  Status MakeRoomFor(size_t bytes);
  Status Write(const std::string& lines);
  void Fail(const Error& error, uint64_t lines, Instant now);

  const EventLogOptions options_;
  const std::function<void(const std::string&)> note_;
  const std::function<std::string()> head_;
  UniqueFd file_;
  uint64_t size_ = 0;
  uint64_t lost_ = 0;
  uint64_t lost_since_ = 0;  // the failure that `failed_` tells of
  bool begun_ = false;
  bool failed_ = false;
  Instant retry_at_;
};

}  // namespace tandem::history
