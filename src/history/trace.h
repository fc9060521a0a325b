// Trace: lines of the event log as a trace in Chrome's format, which Perfetto and chrome://tracing
// show ("Trace Event Format", Google): one process for each GPU, one track for its hand-overs and
// one for each session, and a counter of the memory on the GPU.
//
// Threading: none.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

namespace tandem::history {

class Trace {
 public:
  // A line, in the order of the log. One that is not of this format, or cut short, is skipped.
  void Add(const std::string& line);

  // What happened in the last `span` of what was added. Adds nothing afterwards.
  nlohmann::json Finish(int64_t span_ns);

  size_t sessions() const { return tracks_.size(); }
  size_t skipped() const { return skipped_; }

 private:
  using Json = nlohmann::json;
  // A stretch of time with a name, on a track.
  struct Slice {
    int gpu = 0;
    uint64_t track = 0;  // 0: hand-overs
    std::string name;
    int64_t begin = 0, end = 0;
    Json args = Json::object();
  };
  struct Sample {
    int gpu = 0;
    int64_t at = 0;
    std::map<std::string, uint64_t> bytes;  // by session
  };
  // Of a session, by what it shows: begun and not ended.
  struct Track {
    int gpu = 0;
    std::string name;
    std::map<std::string, Slice> open;
    uint64_t resident = 0;
    bool present = false;
  };

  void OnDaemon(const Json& line);
  void OnSession(const Json& line);
  void OnHandover(const Json& line);
  void OnChange(const std::string& event, uint64_t session, const Json& line);
  void Begin(uint64_t session, const std::string& what, Json args = Json::object());
  void End(uint64_t session, const std::string& what);
  void EndAll(uint64_t session);
  void SetResident(uint64_t session, uint64_t bytes);
  void AppendMemory(int64_t begin, Json* events) const;
  std::string Label(uint64_t session) const;
  Json HoldersOf(int gpu, uint64_t but) const;

  int64_t now_ = 0;
  std::optional<std::pair<int64_t, int64_t>> daemon_;  // its pid, and when it began
  std::map<int, std::string> gpus_;                    // names
  std::map<uint64_t, Track> tracks_;
  std::vector<Slice> slices_;
  std::vector<Sample> samples_;
  size_t skipped_ = 0;
};

}  // namespace tandem::history
