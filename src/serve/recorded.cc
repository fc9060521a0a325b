#include "src/serve/recorded.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "src/base/json.h"
#include "src/base/user_name.h"
#include "src/cli/fields.h"
#include "src/cli/report/when.h"
#include "src/history/event_reader.h"
#include "src/history/local_time.h"
#include "src/history/usage_series.h"
#include "src/serve/snapshot.h"

namespace tandem::serve {
namespace {

using Json = nlohmann::json;

constexpr int kMostPoints = 720;
constexpr int kMostEvents = 10000;

Result<history::SeriesQuery> SeriesQueryOf(const Query& query) {
  std::string since = "1h", until = "now", by = "gpu";
  query.Read("since", &since);
  query.Read("until", &until);
  query.Read("by", &by);
  history::SeriesQuery asked;
  const int64_t now_ns = history::NowUnixNs();
  ASSIGN_OR_RETURN(asked.since_ns, cli::ParseWhen(since, now_ns));
  ASSIGN_OR_RETURN(asked.until_ns, cli::ParseWhen(until, now_ns));
  asked.until_ns = std::min(asked.until_ns, now_ns);
  if (asked.since_ns >= asked.until_ns) {
    return Error{ErrorCode::kInvalid, "since is not before until"};
  }
  const auto key = history::SeriesKeyNamed(by);
  if (!key.has_value()) return Error{ErrorCode::kInvalid, "by must be gpu, user or project"};
  asked.by = *key;
  ASSIGN_OR_RETURN(const int points, query.Number("points", 360, 1, kMostPoints));
  asked.points = static_cast<size_t>(points);
  return asked;
}

Result<history::EventFilter> FilterOf(const Query& query) {
  history::EventFilter filter;
  std::string events;
  query.Read("event", &events);
  std::istringstream names(events);
  for (std::string name; std::getline(names, name, ',');) filter.events.insert(name);
  constexpr int kMost = 2147483647;
  if (query.Has("session")) {
    ASSIGN_OR_RETURN(const int session, query.Number("session", 0, 0, kMost));
    filter.session = static_cast<uint64_t>(session);
  }
  if (query.Has("gpu")) {
    ASSIGN_OR_RETURN(filter.gpu, query.Number("gpu", 0, 0, kMost));
  }
  return filter;
}

// Others' names, as HideOthers.
void HideNames(uid_t viewer, Json* event) {
  if (event->value("event", "") != "session" || cli::Member(*event, "uid") == viewer) return;
  for (const char* name : {"name", "program", "project"}) (*event)[name] = kHidden;
  (*event)["pid"] = nullptr;
}

}  // namespace

Answer HistoryAnswer(const Parameters& parameters, const Records& records) {
  const auto query = Query::Parse(parameters, {"since", "until", "by", "points"});
  if (!query.ok()) return ErrorAnswer(query.error());
  const auto asked = SeriesQueryOf(*query);
  if (!asked.ok()) return ErrorAnswer(asked.error());
  auto series = history::ReadSeries(records.events_file, records.accounts_file, *asked, UserNameOf);
  if (!series.ok()) return ErrorAnswer(series.error());
  return {200, "application/json", AsciiJson(*series), "", false};
}

Answer EventsAnswer(const Parameters& parameters, const Records& records) {
  const auto query = Query::Parse(parameters, {"after", "limit", "event", "session", "gpu"});
  if (!query.ok()) return ErrorAnswer(query.error());
  const auto limit = query->Number("limit", 1000, 1, kMostEvents);
  if (!limit.ok()) return ErrorAnswer(limit.error());
  const auto filter = FilterOf(*query);
  if (!filter.ok()) return ErrorAnswer(filter.error());
  std::string after;
  query->Read("after", &after);
  const auto place = history::LogPlace::Parse(after);
  if (!after.empty() && !place.has_value()) {
    return ErrorAnswer(400, "after must be the `next` of an earlier answer");
  }
  if (records.events_file.empty()) {
    return ErrorAnswer(404, "the daemon writes no event log; start it without --events none");
  }
  const auto reader = history::EventReader::Open(records.events_file);
  if (!reader.ok()) return ErrorAnswer(reader.error());
  const auto most = static_cast<size_t>(*limit);
  const history::EventPage page =
      place.has_value() ? reader->After(*place, *filter, most) : reader->Newest(*filter, most);
  Json events = Json::array();
  for (const std::string& line : page.lines) {
    Json event = ParseJson(line);
    if (!event.is_object()) continue;
    if (records.viewer.has_value()) HideNames(*records.viewer, &event);
    events.push_back(std::move(event));
  }
  const Json answer = {
      {"events", std::move(events)}, {"next", page.next.Text()}, {"gap", page.gap}};
  return {200, "application/json", AsciiJson(answer), "", false};
}

}  // namespace tandem::serve
