#include "src/serve/api.h"

#include <chrono>
#include <memory>
#include <utility>

#include "src/serve/plan_answer.h"
#include "src/serve/report_answer.h"

namespace tandem::serve {
namespace {

constexpr Duration kPatience = Seconds(25);  // two answers of a daemon that is slow
constexpr std::chrono::seconds kHeavyPatience(5);
constexpr const char* kPaths =
    "/metrics and below /api/v1: gpus, sessions, live, report, history, events, plan";
constexpr const char* kOpenMetricsType =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";
constexpr const char* kTextType = "text/plain; version=0.0.4; charset=utf-8";

Answer TooLate() {
  return ErrorAnswer(503, "the daemon gave no answer in time; try again later");
}

}  // namespace

Api::Api(Sampler* sampler, ApiSettings settings)
    : sampler_(sampler), settings_(std::move(settings)) {}

Answer Api::Get(const std::string& path, const Parameters& parameters, std::string_view accept) {
  if (path == "/metrics") return Metrics(parameters, accept);
  if (path == "/api/v1/gpus") return Now(parameters, &Snapshot::gpus);
  if (path == "/api/v1/sessions") return Now(parameters, &Snapshot::sessions);
  for (const char* heavy :
       {"/api/v1/plan", "/api/v1/report", "/api/v1/history", "/api/v1/events"}) {
    if (path == heavy) return Heavy(path, parameters);
  }
  return ErrorAnswer(404, std::string("there is nothing here; there are ") + kPaths);
}

Answer Api::Now(const Parameters& parameters, std::string Snapshot::*part) {
  if (const auto query = Query::Parse(parameters, {}); !query.ok()) {
    return ErrorAnswer(query.error());
  }
  const auto snapshot = sampler_->Latest(kPatience);
  if (snapshot == nullptr) return TooLate();
  return {200, "application/json", (*snapshot).*part, "", false};
}

// A client that names only the older format gets that.
Answer Api::Metrics(const Parameters& parameters, std::string_view accept) {
  if (const auto query = Query::Parse(parameters, {}); !query.ok()) {
    return ErrorAnswer(query.error());
  }
  const auto snapshot = sampler_->Latest(kPatience);
  if (snapshot == nullptr) return TooLate();
  const auto accepts = [&](const char* type) { return accept.find(type) != accept.npos; };
  const bool older = accepts("text/plain") && !accepts("application/openmetrics-text");
  return {200, older ? kTextType : kOpenMetricsType,
          older ? snapshot->text_metrics : snapshot->open_metrics, "", false};
}

Result<Records> Api::FindRecords() {
  const auto snapshot = sampler_->Latest(kPatience);
  if (snapshot == nullptr) return Error{ErrorCode::kUnavailable, "the daemon gave no answer"};
  if (!snapshot->daemon) {
    return Records{settings_.usual_accounts, settings_.usual_events, settings_.viewer};
  }
  return Records{snapshot->accounts_file, snapshot->events_file, settings_.viewer};
}

Answer Api::Heavy(const std::string& path, const Parameters& parameters) {
  if (!heavy_.try_acquire_for(kHeavyPatience)) {
    return ErrorAnswer(503, "other clients' reports are still being made; try again later");
  }
  const std::unique_ptr<std::counting_semaphore<kHeavyAtATime>,
                        void (*)(std::counting_semaphore<kHeavyAtATime>*)>
      release(&heavy_, [](auto* heavy) { heavy->release(); });
  if (path == "/api/v1/plan") return PlanAnswer(parameters);
  const Result<Records> records = FindRecords();
  if (!records.ok()) return ErrorAnswer(records.error());
  if (path == "/api/v1/report") return ReportAnswer(parameters, *records);
  if (path == "/api/v1/history") return HistoryAnswer(parameters, *records);
  return EventsAnswer(parameters, *records);
}

}  // namespace tandem::serve
