// EventReader: the lines of an event log, over all of its files (event_log.h).
//
// A line has a place that stays the same when its file is renamed: readers go on from there.
//
// Threading: any thread; a daemon may write at the same time.
// Invariants
// 1. Only whole lines are read. The copies at the head of a newer file are read as no lines of
// their
//    own, where the file before is there.
// 2. A reading takes memory for its result and one block, whatever the size of the log.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/base/unique_fd.h"

namespace tandem::history {

// Behind a line.
struct LogPlace {
  uint64_t file = 0;  // its inode
  uint64_t offset = 0;

  // "FILE-OFFSET".
  std::string Text() const;
  static std::optional<LogPlace> Parse(const std::string& text);
  bool operator==(const LogPlace&) const = default;
};

struct EventFilter {
  std::set<std::string> events;  // empty: all
  std::optional<uint64_t> session;
  std::optional<int> gpu;
};

struct EventPage {
  std::vector<std::string> lines;  // JSON objects
  LogPlace next;                   // where to go on
  bool gap = false;                // the place to go on from is not there any more
};

class EventReader {
 public:
  // kNotFound: there is no log. kRefused: this user may not read it.
  static Result<EventReader> Open(const std::string& path);

  // The newest lines that the filter takes, at most `limit`, the oldest of these first. Looks at
  // the last kMostScanned bytes.
  EventPage Newest(const EventFilter& filter, size_t limit) const;
  // The first lines behind `place`, in the same way; from the oldest file on where it is not there.
  EventPage After(const LogPlace& place, const EventFilter& filter, size_t limit) const;

  // Every line, from the oldest on. `visit` returns whether to go on.
  void Visit(const std::function<bool(std::string_view line)>& visit) const;

  static constexpr uint64_t kMostScanned = uint64_t{64} << 20;

 private:
  struct File {
    UniqueFd fd;
    uint64_t inode = 0;
    uint64_t size = 0;
    uint64_t head = 0;  // where lines of its own begin
  };
  explicit EventReader(std::vector<File> files) : files_(std::move(files)) {}
  static void MeasureHead(const File& before, File* file);
  // `visit` is given each line of `file` from `offset` on, and the place behind it.
  static bool VisitFile(const File& file, uint64_t offset,
                        const std::function<bool(std::string_view line, uint64_t end)>& visit);
  std::vector<File> files_;  // from the oldest on
};

}  // namespace tandem::history
