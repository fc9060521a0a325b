// Model: what `tandem top` knows of the GPUs and their sessions: the daemon's last answers, and of
// the minute before them the counters, from which rates follow.
//
// Pure, but for UserName: answers and times go in. Threading: none.
// Invariant: the samples are of one daemon, each later than the one before.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/cli/fields.h"

namespace tandem::cli::top {

using Json = nlohmann::json;

inline constexpr double kMinuteS = 60;

// Of a GPU or a session, since the daemon started or the session began.
struct Counters {
  double active_s = 0;  // of a GPU: busy_s
  double held_s = 0;
  double handovers = 0;
};

// What they grew by.
struct Rates {
  std::optional<double> active;  // part of the time since the sample before
  std::optional<double> held;    // part of the last minute
  std::optional<double> handovers_per_minute;
};

// A session, or a run that has none.
struct Row {
  std::string key;     // the same as long as it lives
  std::string target;  // of an order
  std::string user;
  uint64_t gpu = 0;
  Rates rates;
  const Json* json = nullptr;  // its entry in the answer
};

class Model {
 public:
  // The daemon's answers to "status" and "sessions". Error: they are no JSON; nothing changes.
  Status Take(const std::string& status, const std::string& sessions);
  // No daemon answers, for this reason.
  void Lose(std::string reason);

  bool known() const { return status_.is_object(); }
  const std::string& lost() const { return lost_; }  // empty: the last answers are of now
  const Json& status() const { return status_; }
  const std::vector<Json>& sessions() const { return List(sessions_, "sessions"); }
  // In the daemon's order. Valid until the next Take or Lose.
  const std::vector<Row>& rows() const { return rows_; }

  Rates OfGpu(uint64_t index) const;
  // How busy a GPU was in each of `slots` equal parts of the last minute, the oldest first; nothing
  // where that was not seen.
  std::vector<std::optional<double>> History(uint64_t index, size_t slots) const;
  // Both answers and the rates as one object (docs/json.md).
  Json ToJson() const;

 private:
  struct Sample {
    double at_s = 0;  // the daemon's uptime
    std::map<uint64_t, Counters> gpus, sessions;
  };
  using Part = std::map<uint64_t, Counters> Sample::*;

  Rates RatesOf(Part part, uint64_t id) const;
  std::optional<double> BusyAt(uint64_t index, double at_s) const;
  void Keep(Sample sample);
  void ListRows();
  const std::string& UserOf(const Json& uid);

  Json status_, sessions_;
  std::string lost_;
  std::deque<Sample> samples_;  // of the last minute, and one before that
  std::vector<Row> rows_;
  std::map<std::string, std::string> users_;  // by number: their directory may be far
};

}  // namespace tandem::cli::top
