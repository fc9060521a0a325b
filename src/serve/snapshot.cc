#include "src/serve/snapshot.h"

#include "src/base/json.h"
#include "src/cli/fields.h"
#include "src/history/local_time.h"
#include "src/serve/metrics.h"

namespace tandem::serve {
namespace {

using Json = nlohmann::json;

// The model's rows are its sessions, then its runs, in their order.
void AddUsers(const cli::top::Model& model, Json* now) {
  auto row = model.rows().begin();
  for (const char* list : {"sessions", "runs"}) {
    for (Json& entry : (*now)[list]) {
      entry["user"] = row != model.rows().end() ? row->user : "";
      if (!entry.contains("project")) entry["project"] = "";
      if (row != model.rows().end()) ++row;
    }
  }
}

std::string Part(const Json& now, std::initializer_list<const char*> keys) {
  Json part;
  for (const char* key : keys) {
    if (now.contains(key)) part[key] = now.at(key);
  }
  return AsciiJson(part);
}

}  // namespace

void HideOthers(uid_t viewer, Json* now) {
  for (const char* list : {"sessions", "runs"}) {
    for (Json& entry : (*now)[list]) {
      if (cli::Member(entry, "uid") == viewer) continue;
      for (const char* name : {"name", "program"}) entry[name] = kHidden;
      if (!cli::RawText(entry, "project").empty()) entry["project"] = kHidden;
      for (const char* number : {"pid", "run", "lease"}) entry[number] = nullptr;
    }
  }
}

Snapshot MakeSnapshot(const cli::top::Model& model, int64_t unix_ns, std::optional<uid_t> viewer) {
  Snapshot snapshot;
  Json now = model.ToJson();
  now["at"] = history::UtcTime(unix_ns);
  snapshot.daemon = model.known() && model.lost().empty();
  if (snapshot.daemon) {
    AddUsers(model, &now);
    if (viewer.has_value()) HideOthers(*viewer, &now);
    snapshot.accounts_file = cli::RawText(now, "accounts_file");
    snapshot.events_file = cli::RawText(now, "events_file");
  } else {
    now["error"] = model.lost();
  }
  snapshot.live = AsciiJson(now);
  snapshot.gpus = Part(now, {"at", "gpus", "error"});
  snapshot.sessions = Part(now, {"at", "sessions", "runs", "error"});
  snapshot.open_metrics = MetricsText(now, MetricsFormat::kOpenMetrics);
  snapshot.text_metrics = MetricsText(now, MetricsFormat::kText);
  return snapshot;
}

}  // namespace tandem::serve
