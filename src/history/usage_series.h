// UsageSeries: what sessions used, over time, for charts.
//
// Threading: any thread, as long as none changes the time zone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/history/amounts.h"
#include "src/history/event_reader.h"

namespace tandem::history {

struct SeriesQuery {
  enum class By { kGpu, kUser, kProject };
  int64_t since_ns = 0;  // Unix time
  int64_t until_ns = 0;
  By by = By::kGpu;
  size_t points = 360;  // most steps
};

// Sums in steps of the same length. What spans two steps counts in both, in proportion.
class UsageSeries {
 public:
  // The steps cover the interval; the last one may end after it. `step_s`: of Unix time, a multiple
  // begins each step.
  UsageSeries(int64_t since_ns, int64_t until_ns, int64_t step_s);

  void Add(const std::string& key, int64_t from_ns, int64_t to_ns, const Amounts& amounts);
  // Nothing is known of steps that begin before.
  void BeginsAt(int64_t unix_ns) { known_since_ns_ = unix_ns; }
  // In a key no more is active than the time that passes: sessions of a GPU may share it.
  void CapActive() { caps_active_ = true; }

  // `times` in seconds of Unix time; of each key `held_s`, `active_s`, `waited_s`, seconds in the
  // step; `allocated_bytes`, `resident_bytes`, `swapped_bytes`, means over the step. null: unknown.
  nlohmann::json ToJson() const;

  int64_t step_s() const { return step_s_; }

 private:
  size_t steps() const;
  double LengthOf(size_t step) const;  // that lies within the interval, in seconds

  const int64_t since_ns_, until_ns_, step_s_, first_s_;
  int64_t known_since_ns_ = 0;
  bool caps_active_ = false;
  std::map<std::string, std::vector<Amounts>> of_;
};

// Up to kLongestFine from the event log, else from the accounts; empty paths: there is none.
// `user_name`: of a uid. kNotFound: neither has anything.
inline constexpr int64_t kLongestFine = int64_t{3} * 3600;  // seconds
Result<nlohmann::json> ReadSeries(const std::string& events, const std::string& accounts,
                                  const SeriesQuery& query,
                                  const std::function<std::string(unsigned uid)>& user_name);

// "gpu", "user" or "project".
std::optional<SeriesQuery::By> SeriesKeyNamed(const std::string& text);

}  // namespace tandem::history
