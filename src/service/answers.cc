// The answers to Query, as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/text.h"
#include "src/core/class_names.h"
#include "src/service/records.h"

namespace tandem::service {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxShown = 256;  // bytes of a name

const char* StateOf(const core::Session& session, Bytes charge, bool waits) {
  if (session.stuck) return "stuck";
  if (session.suspended) {
    return session.holds() || charge > Bytes() ? "suspending" : "suspended";
  }
  switch (session.phase) {
    case core::Phase::kGranted:
      return "restoring";
    case core::Phase::kRunning:
      return "running";
    case core::Phase::kRevoking:
      return "releasing";
    case core::Phase::kAway:
      break;
  }
  return waits ? "waiting" : "idle";
}

double Milli(Duration duration) {
  return duration.seconds() * 1e3;
}

Json Numbers(const std::vector<core::SessionId>& ids) {
  Json list = Json::array();
  for (const core::SessionId id : ids) list.push_back(id.value);
  return list;
}

// What a session waits for first, of what is `waiting` for its GPU; waiting.end() where it does
// not.
std::vector<core::Wish>::const_iterator FirstWish(const std::vector<core::Wish>& waiting,
                                                  core::SessionId id) {
  return std::find_if(waiting.begin(), waiting.end(),
                      [&](const core::Wish& wish) { return wish.id == id; });
}

// What the wish asks for, with all that cannot be swapped already.
Bytes WithFixed(const core::Arbiter& arbiter, const core::Wish& wish) {
  const core::Session& waiter = arbiter.sessions().at(wish.id);
  const Bytes fixed = arbiter.budget().fixed();
  if (wish.kind == core::Wish::Kind::kContext) return fixed + arbiter.config().context;
  if (wish.kind == core::Wish::Kind::kFixed) return fixed + waiter.fixed_wanted.front().bytes;
  return fixed + waiter.need;
}

// Who keeps what the wish would need, and gives no answer: stopped processes as a rule. Nothing
// where the wish fits beside them. For people; begins with a semicolon.
std::string WhoIsStuck(const core::Arbiter& arbiter, const core::Wish& wish) {
  Bytes wanted = WithFixed(arbiter, wish);
  std::string text;
  for (const auto& [id, session] : arbiter.sessions()) {
    const Bytes kept = arbiter.ChargeOf(id);
    if (!session.immovable() || id == wish.id || kept == Bytes()) continue;
    wanted += kept;
    text += (text.empty() ? "; " : ", ") + ("session " + std::to_string(id.value)) +
            (session.stuck ? " does not answer" : " waits in the middle of its work") +
            " and keeps " + FormatBytes(kept);
  }
  return wanted > arbiter.budget().total() ? text : "";
}

// Which session needs the room that the wish is for, or it could never run again: the largest.
// Nothing where there is room beside each. For people; begins with a semicolon.
std::string WhoNeedsIt(const core::Arbiter& arbiter, const core::Wish& wish) {
  const core::Session* largest = nullptr;
  for (const auto& [id, session] : arbiter.sessions()) {
    if (id == wish.id || session.suspended) continue;
    if (largest == nullptr || session.must_hold() > largest->must_hold()) largest = &session;
  }
  if (largest == nullptr) return "";
  const Bytes needs = largest->must_hold();
  if (needs + WithFixed(arbiter, wish) <= arbiter.budget().total()) return "";
  return "; session " + std::to_string(largest->id.value) + " needs " + FormatBytes(needs) +
         " of the card to run at all";
}

// Whether a session would not have room on the card even alone, beside what cannot be swapped.
bool IsKeptOut(const core::Arbiter& arbiter, const core::Session& session) {
  return !session.oversubscribes && session.need > arbiter.MostResident();
}

// What people should know about why a session does not run. Null where it does.
Json WaitsFor(const core::Arbiter& arbiter, const std::vector<core::Wish>& waiting,
              core::SessionId id) {
  const auto at = FirstWish(waiting, id);
  if (at == waiting.end()) return nullptr;
  const core::Session& session = arbiter.sessions().at(id);
  const std::string blame = WhoIsStuck(arbiter, *at);
  if (arbiter.claimant() == id) return "memory that others are giving up" + blame;
  switch (at->kind) {
    case core::Wish::Kind::kContext:
      return "room for one more context" + WhoNeedsIt(arbiter, *at) + blame;
    case core::Wish::Kind::kFixed:
      return "room for " + FormatBytes(session.fixed_wanted.front().bytes) +
             " that cannot be swapped" + WhoNeedsIt(arbiter, *at) + blame;
    case core::Wish::Kind::kGrowth:
      return "more memory" + blame;
    case core::Wish::Kind::kLease:
      break;
  }
  if (IsKeptOut(arbiter, session)) {
    return "others to give back some of the " + FormatBytes(arbiter.budget().fixed()) +
           " that cannot be swapped" + blame;
  }
  if (arbiter.IsBarred(session)) return "a pause of others" + blame;
  return "its turn, as number " + std::to_string(at - waiting.begin() + 1) + blame;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string Printable(const std::string& text) {
  return EscapeText(text, kMaxShown);
}

std::string Service::StatusJson() const {
  Json gpus = Json::array();
  for (const auto& gpu : gpus_) {
    const core::Arbiter& arbiter = gpu->arbiter;
    std::vector<core::SessionId> holders, waiting, suspended;
    Json restoring;
    const std::optional<core::SessionId> nobodys =
        gpu->chaos.has_value() ? std::optional(gpu->chaos->id()) : std::nullopt;
    for (const auto& [id, session] : arbiter.sessions()) {
      if (id == nobodys) continue;
      if (session.holds()) holders.push_back(id);
      if (session.suspended) suspended.push_back(id);
      if (session.phase == core::Phase::kGranted) restoring = id.value;
    }
    for (const core::Wish& wish : arbiter.Waiting()) {
      if (wish.kind == core::Wish::Kind::kLease && wish.id != nobodys) waiting.push_back(wish.id);
    }
    gpus.push_back({
        {"index", gpu->info.index},
        {"uuid", gpu->info.uuid},
        {"name", Printable(gpu->info.name)},
        {"software", gpu->info.software},
        {"card_bytes", gpu->info.card.count},
        {"budget_bytes", arbiter.budget().total().count},
        {"chunk_bytes", gpu->info.chunk.count},
        {"context_bytes", gpu->info.context.count},
        {"charged_bytes", arbiter.budget().charged().count},
        {"free_bytes", arbiter.budget().free().count},
        {"holders", Numbers(holders)},
        {"waiting", Numbers(waiting)},
        {"suspended", Numbers(suspended)},
        {"restoring", restoring},
        {"policy", arbiter.config().policy},
        {"mode", arbiter.taking_turns() ? "turns" : "together"},
        {"quantum_ms", Milli(arbiter.Quantum())},
        {"switch_cost_ms", Milli(arbiter.SwitchEstimate())},
        {"handovers", gpu->handovers},
        {"out_bytes", gpu->out.count},
        {"in_bytes", gpu->in.count},
    });
  }
  Json policies = Json::array();
  for (const core::PolicyName& policy : core::PolicyNames()) {
    policies.push_back({{"name", policy.name}, {"summary", policy.summary}});
  }
  return Dump({{"version", config_.version},
               {"pid", config_.pid},
               {"uptime_seconds", (now_ - config_.started).seconds()},
               {"socket", config_.socket},
               {"host_limit_bytes", host_.limit().count},
               {"host_promised_bytes", host_.promised().count},
               {"spill_limit_bytes", host_.spill_limit().count},
               {"spill_promised_bytes", host_.spilled().count},
               {"spill_directory", config_.spill.directory},
               {"chaos_seed", config_.chaos_seed.has_value() ? Json(*config_.chaos_seed) : Json()},
               {"policies", std::move(policies)},
               {"gpus", std::move(gpus)}});
}

core::Share Service::UserShare(const core::Arbiter& arbiter, const Seat& seat) {
  core::ShareKey key = KeyOf(seat);
  key.session.reset();
  return arbiter.shares().Of(key);
}

// The tokens of others' runs are left out: people have no use for them.
std::string Service::SessionsJson(unsigned viewer) const {
  Json list = Json::array();
  std::map<const Gpu*, std::vector<core::Wish>> wishes;
  for (const auto& gpu : gpus_) wishes[gpu.get()] = gpu->arbiter.Waiting();
  for (const auto& [id, seat] : sessions_) {
    const core::Arbiter& arbiter = seat->gpu->arbiter;
    const core::Session& session = arbiter.sessions().at(id);
    const std::vector<core::Wish>& waiting = wishes.at(seat->gpu);
    const auto wish = FirstWish(waiting, id);
    const bool waits = wish != waiting.end();
    Duration waited = session.waited, held = session.held;
    if (session.holds()) held = held + (now_ - session.granted_at);
    if (!session.holds() && waits) waited = waited + (now_ - wish->since);
    // The session's own claims, as far as they can be true.
    const Bytes allocated = arbiter.limits().allocated(id);
    const wire::ReportsPage& reports = seat->pages->reports();
    const uint64_t resident = std::min(reports.resident_bytes.load(), arbiter.ChargeOf(id).count);
    const uint64_t swapped = std::min(reports.swapped_bytes.load(), allocated.count);
    const auto run = seat->run.has_value() ? runs_.find(*seat->run) : runs_.end();
    const bool theirs = viewer == 0 || viewer == seat->client.uid;
    const bool named = run != runs_.end() && !run->second.name.empty();
    list.push_back({
        {"id", id.value},
        {"run", seat->run.has_value() && theirs ? Json(seat->run->second) : Json()},
        {"name", named ? run->second.name : seat->program},
        {"program", seat->program},
        {"pid", seat->client.pid},
        {"uid", seat->client.uid},
        {"gpu", seat->gpu->info.index},
        {"state", StateOf(session, arbiter.ChargeOf(id), waits)},
        {"allocated_bytes", allocated.count},
        {"resident_bytes", resident},
        {"swapped_bytes", swapped},
        {"exchanged_bytes", reports.exchanged_bytes.load()},
        {"credit_bytes", session.credit.count},
        {"limit_bytes", arbiter.LimitOf(id).count},
        {"contexts", session.contexts},
        {"fixed_bytes", session.fixed.count},
        {"host_share_bytes", arbiter.HostShare(id).count},
        {"host_file_bytes", host_.PlaceOf(seat->gpu->info.index, id).spilled.count},
        {"suspended", session.suspended},
        {"class", core::NameOf(session.of_class)},
        {"share", ShareText(arbiter.shares().Of(KeyOf(*seat)))},
        {"user_share", ShareText(UserShare(arbiter, *seat))},
        {"wait_seconds", waited.seconds()},
        {"held_seconds", held.seconds()},
        {"leases", session.leases},
        {"out_bytes", seat->out.count},
        {"in_bytes", seat->in.count},
        {"waits_for", WaitsFor(arbiter, waiting, id)},
    });
  }
  return Dump({{"sessions", std::move(list)}});
}

// The answer to Control: whom it concerned.
std::string Service::OrderJson(const std::vector<core::SessionId>& ids) const {
  return Dump({{"sessions", Numbers(ids)}});
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
        {"revoked_at_ns", record.revoked_at.ns},
        {"released_at_ns", record.released_at.ns},
        {"running_at_ns", record.running_at.ns},
    });
  }
  return Dump({{"handovers", std::move(list)}});
}

}  // namespace tandem::service
