// The answers to Query, as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/base/text.h"
#include "src/core/class_names.h"
#include "src/core/why_names.h"
#include "src/history/local_time.h"
#include "src/service/records.h"
#include "src/service/standing.h"

namespace tandem::service {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxShown = 256;  // bytes of a name

Json Numbers(const std::vector<core::SessionId>& ids) {
  Json list = Json::array();
  for (const core::SessionId id : ids) list.push_back(id.value);
  return list;
}

Json OrNull(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace

std::string Printable(const std::string& text) {
  return EscapeText(text, kMaxShown);
}

void Service::Handle(Connection& from, const wire::Query& m) {
  if (from.role == Connection::Role::kSession) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "Query is not for sessions", true);
  }
  from.role = Connection::Role::kPeople;
  std::string json;
  if (m.what == "status") {
    json = StatusJson();
  } else if (m.what == "sessions") {
    json = SessionsJson(from.client.uid);
  } else if (m.what == "handovers") {
    json = HandoversJson();
  } else if (m.what == "leases") {
    json = LeasesJson(from);
  } else {
    return Refuse(from.id, wire::RefusalCode::kProtocol,
                  "there is nothing called " + Printable(m.what) + " to ask for", false);
  }
  out_.push_back(Outgoing{from.id, wire::Answer{std::move(json)}, {}, false});
}

void Service::Note(const std::string& line) const {
  if (config_.note) config_.note(line);
}

// A line about what a user does, if not too many of them are.
void Service::NoteOf(unsigned uid, const std::string& line) {
  const std::optional<uint64_t> left_out = log_rate_.Take(uid, now_);
  if (!left_out.has_value()) return;
  if (*left_out > 0) {
    Note(std::to_string(*left_out) + " lines about user " + std::to_string(uid) + " were left out");
  }
  Note(line);
}

// For the log: names are Printable already.
std::string Service::Describe(const Seat& seat) const {
  return "session " + std::to_string(seat.id.value) + " (\"" + NameOf(seat) + "\", program \"" +
         seat.program + "\", process " + std::to_string(seat.client.pid) + ", user " +
         std::to_string(seat.client.uid) + ", gpu" + std::to_string(seat.gpu->info.index) + ")";
}

std::string Service::StatusJson() const {
  Json gpus = Json::array();
  for (const auto& gpu : gpus_) {
    const core::Arbiter& arbiter = gpu->arbiter;
    std::vector<core::SessionId> waiting, suspended;
    Json restoring;
    for (const auto& [id, session] : arbiter.sessions()) {
      if (sessions_.count(id) == 0) continue;  // chaos
      if (session.suspended) suspended.push_back(id);
      if (session.phase == core::Phase::kGranted) restoring = id.value;
    }
    for (const core::Wish& wish : arbiter.Waiting()) {
      const bool known = std::find(waiting.begin(), waiting.end(), wish.id) != waiting.end();
      if (!known && sessions_.count(wish.id) != 0) waiting.push_back(wish.id);
    }
    std::vector<core::SessionId> blocking;
    for (const auto& [since, id] : arbiter.roster().counted().blocking) {
      const bool blocks = BlocksSince(arbiter.sessions().at(id), now_).has_value();
      if (blocks && !waiting.empty()) blocking.push_back(id);
    }
    gpus.push_back({
        {"index", gpu->info.index},
        {"uuid", gpu->info.uuid},
        {"name", Printable(gpu->info.name)},
        {"software", gpu->info.software},
        {"healthy", gpu->healthy},
        {"card_bytes", gpu->info.card.count},
        {"budget_bytes", arbiter.budget().total().count},
        {"chunk_bytes", gpu->info.chunk.count},
        {"context_bytes", gpu->info.context.count},
        {"charged_bytes", arbiter.budget().charged().count},
        {"free_bytes", arbiter.budget().free().count},
        {"foreign_bytes", gpu->foreign.count},
        {"holders", Numbers(HoldersOf(*gpu))},
        {"waiting", Numbers(waiting)},
        {"blocked_by", Numbers(blocking)},
        {"suspended", Numbers(suspended)},
        {"restoring", restoring},
        {"policy", arbiter.config().policy},
        {"mode", arbiter.taking_turns() ? "turns" : "together"},
        {"quantum_s", arbiter.Quantum().seconds()},
        {"switch_cost_s", arbiter.SwitchEstimate().seconds()},
        {"held_s", arbiter.held().Until(now_).seconds()},
        {"busy_s", arbiter.busy().Until(now_).seconds()},
        {"handovers", gpu->handovers},
        {"out_bytes", gpu->out.count},
        {"in_bytes", gpu->in.count},
    });
  }
  Json policies = Json::array();
  for (const core::PolicyName& policy : core::PolicyNames()) {
    policies.push_back({{"name", policy.name}, {"summary", policy.summary}});
  }
  return JsonText(
      {{"version", config_.version},
       {"pid", config_.pid},
       {"uptime_s", (now_ - config_.started).seconds()},
       {"socket", config_.socket},
       {"events_file", OrNull(config_.events_file)},
       {"accounts_file", OrNull(config_.accounts_file)},
       {"host_limit_bytes", host_.limit().count},
       {"host_promised_bytes", host_.promised().count},
       {"spill_limit_bytes", host_.spill_limit().count},
       {"spill_promised_bytes", host_.spilled().count},
       {"spill_directory", config_.spill.directory},
       {"chaos_seed",
        config_.chaos_seed.has_value() ? Json(std::to_string(*config_.chaos_seed)) : Json()},
       {"policies", std::move(policies)},
       {"gpus", std::move(gpus)}});
}

// Who may submit work, or will as soon as its memory is there: not who waits under its lease.
std::vector<core::SessionId> Service::HoldersOf(const Gpu& gpu) const {
  std::vector<core::SessionId> holders;
  for (const core::SessionId id : gpu.arbiter.roster().counted().holders) {
    const core::Session& session = gpu.arbiter.sessions().at(id);
    const bool waits = session.wants_lease || session.wants_growth;
    if (!waits && sessions_.count(id) != 0) holders.push_back(id);
  }
  return holders;
}

std::string Service::TimeText(Instant instant) const {
  const int64_t offset = config_.unix_ns_at_zero ? config_.unix_ns_at_zero() : 0;
  return history::UtcTime(instant.ns + offset);
}

// The answer to Control: whom it concerned.
std::string Service::OrderJson(const std::vector<core::SessionId>& ids) const {
  return JsonText({{"sessions", Numbers(ids)}});
}

std::string Service::HandoversJson() const {
  Json list = Json::array();
  for (const auto& [gpu, record] : handovers_) {
    const GpuInfo& info = gpus_.at(static_cast<size_t>(gpu))->info;
    list.push_back({
        {"gpu", gpu},
        {"epoch", record.epoch},
        {"to", record.to.value},
        {"from", Numbers(record.from)},
        {"lacked_bytes", record.lacked.count},
        {"free_bytes", record.free.count},
        {"out_bytes", record.out.count},
        {"evicted_bytes", record.evicted.count},
        {"in_bytes", record.in.count},
        {"chunk_bytes", info.chunk.count},
        {"reason_code", record.why.has_value() ? Json(core::NameOf(*record.why).code) : Json()},
        {"reason", record.why.has_value() ? Json(core::NameOf(*record.why).text) : Json()},
        {"given_up", record.given_up},
        {"at", TimeText(record.revoked_at)},
        {"release_s", (record.released_at - record.revoked_at).seconds()},
        {"took_s", (record.running_at - record.revoked_at).seconds()},
    });
  }
  return JsonText({{"handovers", std::move(list)}});
}

}  // namespace tandem::service
