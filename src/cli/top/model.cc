#include "src/cli/top/model.h"

#include <algorithm>
#include <utility>

#include "src/base/json.h"
#include "src/cli/fields.h"

namespace tandem::cli::top {
namespace {

uint64_t Id(const Json& json, const char* key) {
  const Json& value = Member(json, key);
  return value.is_number_unsigned() ? value.get<uint64_t>() : 0;
}

Json OrNull(const std::optional<double>& number) {
  return number.has_value() ? Json(*number) : Json();
}

void AddRates(const Rates& rates, Json* to) {
  (*to)["utilisation"] = OrNull(rates.active);
  (*to)["handovers_per_minute"] = OrNull(rates.handovers_per_minute);
}

}  // namespace

Status Model::Take(const std::string& status, const std::string& sessions) {
  ASSIGN_OR_RETURN(Json of_daemon, Parse(status));
  ASSIGN_OR_RETURN(Json of_sessions, Parse(sessions));
  const bool same = Member(of_daemon, "pid") == Member(status_, "pid") &&
                    Member(of_daemon, "socket") == Member(status_, "socket");
  if (!same) samples_.clear();
  status_ = std::move(of_daemon);
  sessions_ = std::move(of_sessions);
  lost_.clear();
  Sample sample;
  sample.at_s = Number(Member(status_, "uptime_s"));
  for (const Json& gpu : List(status_, "gpus")) {
    sample.gpus[Id(gpu, "index")] = {Number(Member(gpu, "busy_s")), Number(Member(gpu, "held_s")),
                                     Number(Member(gpu, "handovers"))};
  }
  for (const Json& session : List(sessions_, "sessions")) {
    sample.sessions[Id(session, "id")] = {Number(Member(session, "active_s")),
                                          Number(Member(session, "held_s")),
                                          Number(Member(session, "handovers"))};
  }
  Keep(std::move(sample));
  ListRows();
  return {};
}

void Model::Lose(std::string reason) {
  lost_ = std::move(reason);
}

void Model::Keep(Sample sample) {
  if (!samples_.empty() && sample.at_s < samples_.back().at_s) samples_.clear();
  if (!samples_.empty() && sample.at_s == samples_.back().at_s) samples_.pop_back();
  samples_.push_back(std::move(sample));
  const double begin = samples_.back().at_s - kMinuteS;
  while (samples_.size() > 2 && samples_[1].at_s <= begin) samples_.pop_front();
}

const std::string& Model::UserOf(const Json& uid) {
  const auto [at, is_new] = users_.emplace(JsonText(uid), "");
  if (is_new) at->second = UserName(uid);
  return at->second;
}

void Model::ListRows() {
  rows_.clear();
  for (const Json& session : List(sessions_, "sessions")) {
    const uint64_t id = Id(session, "id");
    rows_.push_back({"session " + std::to_string(id), std::to_string(id),
                     UserOf(Member(session, "uid")), Id(session, "gpu"),
                     RatesOf(&Sample::sessions, id), &session});
  }
  for (const Json& run : List(sessions_, "runs")) {
    rows_.push_back({"run of process " + Text(Member(run, "pid")),
                     RawText(run, "name"),
                     UserOf(Member(run, "uid")),
                     0,
                     {},
                     &run});
  }
}

Rates Model::OfGpu(uint64_t index) const {
  return RatesOf(&Sample::gpus, index);
}

// A session that began within the minute counts from the first sample that has it.
Rates Model::RatesOf(Part part, uint64_t id) const {
  Rates rates;
  if (samples_.size() < 2) return rates;
  const Sample &last = samples_.back(), &before = samples_[samples_.size() - 2];
  const auto first = std::find_if(samples_.begin(), samples_.end(), [&](const Sample& sample) {
    return (sample.*part).count(id) != 0;
  });
  if (first == samples_.end() || &*first == &last || (last.*part).count(id) == 0) return rates;
  const Counters& now = (last.*part).at(id);
  const Counters& begin = ((*first).*part).at(id);
  const double seconds = last.at_s - first->at_s;
  rates.held = std::clamp((now.held_s - begin.held_s) / seconds, 0.0, 1.0);
  rates.handovers_per_minute = std::max(now.handovers - begin.handovers, 0.0) / seconds * kMinuteS;
  const auto then = (before.*part).find(id);
  if (then == (before.*part).end()) return rates;
  rates.active =
      std::clamp((now.active_s - then->second.active_s) / (last.at_s - before.at_s), 0.0, 1.0);
  return rates;
}

// busy_s at that time, as if it had grown evenly between two samples.
std::optional<double> Model::BusyAt(uint64_t index, double at_s) const {
  const auto after = std::find_if(samples_.begin(), samples_.end(),
                                  [&](const Sample& sample) { return sample.at_s >= at_s; });
  if (after == samples_.end() || after->gpus.count(index) == 0) return std::nullopt;
  const double later = after->gpus.at(index).active_s;
  if (after->at_s == at_s) return later;
  if (after == samples_.begin() || (after - 1)->gpus.count(index) == 0) return std::nullopt;
  const auto before = after - 1;
  const double earlier = before->gpus.at(index).active_s;
  return earlier + (later - earlier) * (at_s - before->at_s) / (after->at_s - before->at_s);
}

std::vector<std::optional<double>> Model::History(uint64_t index, size_t slots) const {
  std::vector<std::optional<double>> history(slots);
  if (samples_.empty() || slots == 0) return history;
  const double end = samples_.back().at_s, length = kMinuteS / static_cast<double>(slots);
  for (size_t i = 0; i < slots; ++i) {
    const double from_end = static_cast<double>(slots - i - 1) * length;
    const auto later = BusyAt(index, end - from_end);
    // Of the slot in which the samples begin, what there is of it.
    const double from = std::max(end - from_end - length, samples_.front().at_s);
    const auto earlier = BusyAt(index, from);
    if (!earlier.has_value() || !later.has_value() || end - from_end <= from) continue;
    history[i] = std::clamp((*later - *earlier) / (end - from_end - from), 0.0, 1.0);
  }
  return history;
}

Json Model::ToJson() const {
  if (!lost_.empty() || !known()) {
    return {{"pid", nullptr},
            {"gpus", Json::array()},
            {"sessions", Json::array()},
            {"runs", Json::array()}};
  }
  Json all = status_;
  all.update(sessions_);
  for (Json& gpu : all["gpus"]) AddRates(OfGpu(Id(gpu, "index")), &gpu);
  for (Json& session : all["sessions"]) {
    AddRates(RatesOf(&Sample::sessions, Id(session, "id")), &session);
  }
  return all;
}

}  // namespace tandem::cli::top
