#include "src/history/usage_series.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>

#include "src/base/json.h"
#include "src/history/accounts_reader.h"
#include "src/history/local_time.h"

namespace tandem::history {
namespace {

using Json = nlohmann::json;

// The daemon records what sessions use every ten seconds.
constexpr int64_t kPeriod = 10;
constexpr size_t kMostPoints = 720;

double NumberOf(const Json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_number() ? at->get<double>() : 0;
}

uint64_t WholeOf(const Json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

std::string TextOf(const Json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_string() ? at->get<std::string>() : "";
}

// Nanoseconds of Unix time, of UtcTime or LocalTime; nothing where it is neither.
std::optional<int64_t> UnixNs(const std::string& text) {
  std::tm parts{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  int64_t unix_ns = int64_t{timegm(&parts)} * kNsInSecond;
  if (*rest == '.') {
    int64_t unit = kNsInSecond / 10;
    for (++rest; *rest >= '0' && *rest <= '9'; ++rest, unit /= 10) unix_ns += (*rest - '0') * unit;
  }
  if (*rest == 'Z') return unix_ns;
  int hours = 0, minutes = 0;
  char sign = 0;
  if (std::sscanf(rest, "%c%2d:%2d", &sign, &hours, &minutes) != 3) return std::nullopt;
  const int64_t offset_ns = (int64_t{hours} * 60 + minutes) * 60 * kNsInSecond;
  return sign == '-' ? unix_ns + offset_ns : unix_ns - offset_ns;
}

Amounts AmountsOfLine(const Json& line) {
  Usage usage;
  usage.held_s = NumberOf(line, "held_s");
  usage.active_s = NumberOf(line, "active_s");
  usage.waited_s = NumberOf(line, "waited_s");
  usage.allocated_byte_s = NumberOf(line, "allocated_byte_s");
  usage.resident_byte_s = NumberOf(line, "resident_byte_s");
  usage.swapped_byte_s = NumberOf(line, "swapped_byte_s");
  return AmountsOf(usage);
}

// The length of a step: the shortest of `steps` of which there are few enough.
int64_t StepFor(const SeriesQuery& query, const std::vector<int64_t>& steps) {
  const int64_t seconds = (query.until_ns - query.since_ns) / kNsInSecond + 1;
  const auto points = static_cast<int64_t>(std::clamp<size_t>(query.points, 1, kMostPoints));
  for (const int64_t step : steps) {
    if (seconds / step < points) return step;
  }
  const int64_t last = steps.back();
  return (seconds / points / last + 1) * last;
}

// Reads usage lines, and of whom they are.
class UsageLines {
 public:
  UsageLines(const SeriesQuery& query, const std::function<std::string(unsigned)>& user_name,
             UsageSeries* series)
      : query_(query), user_name_(user_name), series_(series) {}

  bool Take(std::string_view line) {
    if (!begun_ns_.has_value()) NoteBegin(line);
    if (line.find("\"event\":\"session\"") != std::string_view::npos) TakeSession(line);
    if (line.find("\"event\":\"usage\"") != std::string_view::npos) TakeUsage(line);
    return true;
  }

  // When the log begins; nothing: it is empty.
  std::optional<int64_t> begun_ns() const { return begun_ns_; }

 private:
  struct Owner {
    unsigned uid = 0;
    std::string project;
  };

  void NoteBegin(std::string_view text) {
    const Json line = ParseJson(text);
    if (!line.is_object()) return;
    begun_ns_ = UnixNs(TextOf(line, "at"));
  }

  void TakeSession(std::string_view text) {
    const Json line = ParseJson(text);
    if (!line.is_object()) return;
    owners_[WholeOf(line, "session")] = {static_cast<unsigned>(WholeOf(line, "uid")),
                                         TextOf(line, "project")};
  }

  void TakeUsage(std::string_view text) {
    const Json line = ParseJson(text);
    if (!line.is_object()) return;
    const auto at = UnixNs(TextOf(line, "at"));
    if (!at.has_value()) return;
    const int64_t to = *at;
    const int64_t from = to - static_cast<int64_t>(NumberOf(line, "seconds") * 1e9);
    if (to <= query_.since_ns || from >= query_.until_ns) return;
    series_->Add(KeyOf(line), from, to, AmountsOfLine(line));
  }

  std::string KeyOf(const Json& line) const {
    if (query_.by == SeriesQuery::By::kGpu) return "gpu" + std::to_string(WholeOf(line, "gpu"));
    const auto owner = owners_.find(WholeOf(line, "session"));
    if (owner == owners_.end()) return "";
    return query_.by == SeriesQuery::By::kUser ? user_name_(owner->second.uid)
                                               : owner->second.project;
  }

  const SeriesQuery& query_;
  const std::function<std::string(unsigned)>& user_name_;
  UsageSeries* const series_;
  std::map<uint64_t, Owner> owners_;
  std::optional<int64_t> begun_ns_;
};

Json Answer(const SeriesQuery& query, const UsageSeries& series,
            const std::optional<int64_t>& known_since_ns) {
  Json answer = series.ToJson();
  answer["since"] = UtcTime(query.since_ns);
  answer["until"] = UtcTime(query.until_ns);
  answer["step_s"] = series.step_s();
  answer["complete_since"] = known_since_ns.has_value() ? Json(UtcTime(*known_since_ns)) : Json();
  constexpr const char* kNames[] = {"gpu", "user", "project"};
  answer["by"] = kNames[static_cast<size_t>(query.by)];
  return answer;
}

Result<Json> FromEvents(const std::string& path, SeriesQuery query,
                        const std::function<std::string(unsigned)>& user_name) {
  ASSIGN_OR_RETURN(const EventReader reader, EventReader::Open(path));
  // What sessions use now is recorded up to a period later.
  query.until_ns = std::min(query.until_ns, NowUnixNs() - kPeriod * kNsInSecond);
  query.until_ns = std::max(query.until_ns, query.since_ns + kNsInSecond);
  UsageSeries series(query.since_ns, query.until_ns, StepFor(query, {10, 20, 30, 60, 120, 300}));
  if (query.by == SeriesQuery::By::kGpu) series.CapActive();
  UsageLines lines(query, user_name, &series);
  reader.Visit([&](std::string_view line) { return lines.Take(line); });
  series.BeginsAt(lines.begun_ns().value_or(query.until_ns));
  return Answer(query, series, lines.begun_ns());
}

Result<Json> FromAccounts(const std::string& path, const SeriesQuery& query) {
  constexpr int64_t kHours[] = {1, 2, 3, 4, 6, 12, 24};
  std::vector<int64_t> steps;
  for (const int64_t hours : kHours) steps.push_back(hours * kHour);
  UsageSeries series(query.since_ns, query.until_ns, StepFor(query, steps));
  if (query.by == SeriesQuery::By::kGpu) series.CapActive();
  AccountsQuery rows{query.since_ns, query.until_ns, {AccountsKey::kHour}, {}, ""};
  rows.by.push_back(query.by == SeriesQuery::By::kGpu    ? AccountsKey::kGpu
                    : query.by == SeriesQuery::By::kUser ? AccountsKey::kUser
                                                         : AccountsKey::kProject);
  ASSIGN_OR_RETURN(const AccountsAnswer answer, ReadAccounts(path, rows));
  for (const AccountsRow& row : answer.rows) {
    const auto hour = UnixNs(row.keys.at(0));
    if (!hour.has_value()) continue;
    std::string key = row.keys.at(1);
    for (size_t i = 0; query.by == SeriesQuery::By::kGpu && i < answer.gpus.size(); ++i) {
      if (answer.gpus[i] == key) key = "gpu" + std::to_string(answer.gpu_indices[i]);
    }
    const int64_t from = std::max(*hour, query.since_ns);
    const int64_t to = std::min(*hour + kHour * kNsInSecond, query.until_ns);
    if (from < to) series.Add(key, from, to, row.amounts);
  }
  series.BeginsAt(answer.begin_ns);
  return Answer(query, series, std::max(answer.begin_ns, query.since_ns));
}

}  // namespace

UsageSeries::UsageSeries(int64_t since_ns, int64_t until_ns, int64_t step_s)
    : since_ns_(since_ns),
      until_ns_(until_ns),
      step_s_(step_s),
      first_s_(since_ns / kNsInSecond / step_s * step_s) {}

size_t UsageSeries::steps() const {
  const int64_t length = until_ns_ - first_s_ * kNsInSecond;
  const int64_t step = step_s_ * kNsInSecond;
  return static_cast<size_t>(std::max<int64_t>((length + step - 1) / step, 1));
}

double UsageSeries::LengthOf(size_t step) const {
  const int64_t begin = (first_s_ + static_cast<int64_t>(step) * step_s_) * kNsInSecond;
  const int64_t from = std::max(begin, since_ns_);
  const int64_t to = std::min(begin + step_s_ * kNsInSecond, until_ns_);
  return static_cast<double>(std::max<int64_t>(to - from, 1)) / kNsInSecond;
}

void UsageSeries::Add(const std::string& key, int64_t from_ns, int64_t to_ns,
                      const Amounts& amounts) {
  if (to_ns <= from_ns) return;
  std::vector<Amounts>& sums = of_.try_emplace(key, steps()).first->second;
  const auto whole = static_cast<double>(to_ns - from_ns);
  const int64_t step_ns = step_s_ * kNsInSecond, first_ns = first_s_ * kNsInSecond;
  const int64_t begin = std::max(from_ns, since_ns_), end = std::min(to_ns, until_ns_);
  for (int64_t at = begin; at < end;) {
    const int64_t step = (at - first_ns) / step_ns;
    const int64_t next = std::min(first_ns + (step + 1) * step_ns, end);
    sums.at(static_cast<size_t>(step)) += Part(amounts, static_cast<double>(at - from_ns) / whole,
                                               static_cast<double>(next - from_ns) / whole);
    at = next;
  }
}

Json UsageSeries::ToJson() const {
  Json times = Json::array(), series = Json::array();
  for (size_t step = 0; step < steps(); ++step) {
    times.push_back(first_s_ + static_cast<int64_t>(step) * step_s_);
  }
  for (const auto& entry : of_) {
    const std::vector<Amounts>& sums = entry.second;
    Json one = {{"key", entry.first}};
    const auto add = [&](const char* name, auto value) {
      Json values = Json::array();
      for (size_t step = 0; step < sums.size(); ++step) {
        const int64_t end_s = first_s_ + static_cast<int64_t>(step + 1) * step_s_;
        const bool known = end_s * kNsInSecond > known_since_ns_;
        values.push_back(known ? Json(value(sums[step], LengthOf(step))) : Json());
      }
      one[name] = std::move(values);
    };
    const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) / kNsInSecond; };
    add("held_s", [&](const Amounts& sum, double) { return seconds(sum.held_ns); });
    add("active_s", [&](const Amounts& sum, double length) {
      return caps_active_ ? std::min(seconds(sum.active_ns), length) : seconds(sum.active_ns);
    });
    add("waited_s", [&](const Amounts& sum, double) { return seconds(sum.waited_ns); });
    add("allocated_bytes",
        [](const Amounts& sum, double length) { return sum.allocated_byte_s / length; });
    add("resident_bytes",
        [](const Amounts& sum, double length) { return sum.resident_byte_s / length; });
    add("swapped_bytes",
        [](const Amounts& sum, double length) { return sum.swapped_byte_s / length; });
    series.push_back(std::move(one));
  }
  return {{"times", std::move(times)}, {"series", std::move(series)}};
}

std::optional<SeriesQuery::By> SeriesKeyNamed(const std::string& text) {
  if (text == "gpu") return SeriesQuery::By::kGpu;
  if (text == "user") return SeriesQuery::By::kUser;
  if (text == "project") return SeriesQuery::By::kProject;
  return std::nullopt;
}

Result<Json> ReadSeries(const std::string& events, const std::string& accounts,
                        const SeriesQuery& query,
                        const std::function<std::string(unsigned uid)>& user_name) {
  if (query.since_ns >= query.until_ns) {
    return Error{ErrorCode::kInvalid, "the interval ends before it begins"};
  }
  const bool fine = (query.until_ns - query.since_ns) / kNsInSecond <= kLongestFine;
  if (fine && !events.empty()) return FromEvents(events, query, user_name);
  if (!accounts.empty()) return FromAccounts(accounts, query);
  return Error{ErrorCode::kNotFound,
               fine ? "the daemon writes no event log" : "the daemon keeps no accounts"};
}

}  // namespace tandem::history
