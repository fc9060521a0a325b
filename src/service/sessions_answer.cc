// The answer to Query "sessions", as JSON: the sessions, and the runs that have none.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/core/class_names.h"
#include "src/core/share_text.h"
#include "src/service/records.h"
#include "src/service/standing.h"

namespace tandem::service {
namespace {

using Json = nlohmann::json;

Json OrNull(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json OrNull(uint64_t number) {
  return number == 0 ? Json() : Json(number);
}

std::string BlockText(Duration so_far, Duration most) {
  const auto seconds = [](Duration d) { return std::to_string(d.ns / 1000000000) + " s"; };
  return "keeps others waiting for " + seconds(so_far) +
         (most > Duration() ? "; it is ended after " + seconds(most) : "");
}

}  // namespace

core::Share Service::UserShare(const core::Arbiter& arbiter, const Seat& seat) {
  core::ShareKey key = KeyOf(seat);
  key.session.reset();
  return arbiter.shares().Of(key);
}

std::string Service::NameOf(const Seat& seat) const {
  const auto run = seat.run.has_value() ? runs_.find(*seat.run) : runs_.end();
  return run != runs_.end() && !run->second.name.empty() ? run->second.name : seat.program;
}

Surroundings Service::SurroundingsOf(const Gpu& gpu) const {
  return {gpu.arbiter.Waiting(), gpu.foreign, settles_at_.has_value()};
}

// Whose it is, and how it stands.
Json Service::StandingJson(const Seat& seat, const Surroundings& around) const {
  const core::Arbiter& arbiter = seat.gpu->arbiter;
  const core::Session& session = arbiter.sessions().at(seat.id);
  Standing standing = StandingOf(arbiter, around, seat.id);
  const std::optional<Instant> blocks =
      around.waiting.empty() ? std::nullopt : BlocksSince(session, now_);
  const bool waits_for_others = standing.reason != Reason::kNone && !IsRefusal(standing.reason);
  if (blocks.has_value() && !waits_for_others) {
    standing.reason = Reason::kBlocks;
    standing.reason_text = BlockText(now_ - *blocks, config_.longest_block);
  }
  const bool waits = standing.state == State::kWaiting || standing.state == State::kRestoring;
  const auto expected = waits ? arbiter.ExpectedWait(seat.id, now_) : std::nullopt;
  Json held_by = Json::array();
  if (standing.state == State::kWaiting) {
    for (const core::SessionId id : HoldersOf(*seat.gpu)) {
      if (id != seat.id) held_by.push_back(id.value);
    }
  }
  const std::optional<LimitOrder>& limited = LimitedBy(seat);
  return {
      {"id", seat.id.value},
      {"name", NameOf(seat)},
      {"program", seat.program},
      {"pid", seat.client.pid},
      {"uid", seat.client.uid},
      {"gpu", seat.gpu->info.index},
      {"state", CodeOf(standing.state)},
      {"state_text", TextOf(standing.state)},
      {"since", TimeText(standing.since)},
      {"reason_code", OrNull(std::string(CodeOf(standing.reason)))},
      {"reason", OrNull(standing.reason_text)},
      {"place", OrNull(standing.place)},
      {"expected_wait_s", expected.has_value() ? Json(expected->seconds()) : Json()},
      {"held_by", std::move(held_by)},
      {"blocks_since", blocks.has_value() ? Json(TimeText(*blocks)) : Json()},
      {"suspended", session.suspended},
      {"suspended_by_uid",
       session.suspended && seat.suspended_by.has_value() ? Json(*seat.suspended_by) : Json()},
      {"limited_by_uid", limited.has_value() ? Json(limited->by) : Json()},
      {"limited_since", limited.has_value() ? Json(TimeText(limited->at)) : Json()},
      {"waited_s", WaitedOf(session, standing, now_).seconds()},
      {"held_s", HeldOf(session, now_).seconds()},
      {"active_s", session.active.Until(now_).seconds()},
      {"elapsed_s", (now_ - seat.started).seconds()},
      {"leases", session.leases},
      {"handovers", seat.handovers},
  };
}

// What it has where. Resident and swapped are its own claims, as far as they can be true.
Json Service::MemoryJson(const Seat& seat) const {
  const core::Arbiter& arbiter = seat.gpu->arbiter;
  const core::Session& session = arbiter.sessions().at(seat.id);
  const Bytes allocated = arbiter.limits().allocated(seat.id);
  const wire::ReportsPage& reports = seat.pages->reports();
  return {
      {"allocated_bytes", allocated.count},
      {"resident_bytes", std::min(reports.resident_bytes.load(), arbiter.ChargeOf(seat.id).count)},
      {"swapped_bytes", std::min(reports.swapped_bytes.load(), allocated.count)},
      {"exchanged_bytes", reports.exchanged_bytes.load()},
      {"credit_bytes", session.credit.count},
      {"limit_bytes", arbiter.LimitOf(seat.id).count},
      {"contexts", session.contexts},
      {"fixed_bytes", session.fixed.count},
      {"host_share_bytes", arbiter.HostShare(seat.id).count},
      {"host_file_bytes", host_.PlaceOf(seat.gpu->info.index, seat.id).spilled.count},
      {"out_bytes", seat.out.count},
      {"in_bytes", seat.in.count},
  };
}

// The numbers of others' runs are left out: people have no use for them.
std::string Service::SessionsJson(unsigned viewer) const {
  const auto visible = [viewer](unsigned uid) { return viewer == 0 || viewer == uid; };
  std::map<const Gpu*, Surroundings> around;
  for (const auto& gpu : gpus_) around[gpu.get()] = SurroundingsOf(*gpu);
  Json sessions = Json::array(), runs = Json::array();
  for (const auto& [id, seat] : sessions_) {
    const core::Arbiter& arbiter = seat->gpu->arbiter;
    Json session = StandingJson(*seat, around.at(seat->gpu));
    session.update(MemoryJson(*seat));
    const bool shown = seat->run.has_value() && visible(seat->client.uid);
    session["run"] = shown ? Json(seat->run->second) : Json();
    const Lease* const lease =
        seat->run.has_value() ? leases_.OfToken(seat->run->first, seat->run->second) : nullptr;
    session["lease"] = lease == nullptr ? Json() : Json(Printable(lease->terms.job));
    session["project"] = lease == nullptr ? "" : Printable(lease->terms.project);
    session["class"] = core::NameOf(arbiter.sessions().at(id).of_class);
    session["share"] = core::ShareText(arbiter.shares().Of(KeyOf(*seat)));
    session["user_share"] = core::ShareText(UserShare(arbiter, *seat));
    sessions.push_back(std::move(session));
  }
  for (const auto& [key, run] : runs_) {
    if (run.sessions != 0 || run.owner == 0) continue;
    runs.push_back({
        {"run", visible(key.first) ? Json(key.second) : Json()},
        {"name", run.name},
        {"program", run.program},
        {"pid", connections_.at(run.owner)->client.pid},
        {"uid", key.first},
        {"class", core::NameOf(run.of_class)},
        {"state", CodeOf(State::kUnused)},
        {"state_text", TextOf(State::kUnused)},
        {"suspended", run.suspended},
        {"limit_bytes", run.limit == Bytes() ? MostShared().count : run.limit.count},
        {"since", TimeText(run.unused_since)},
        {"elapsed_s", (now_ - run.started).seconds()},
    });
  }
  return JsonText(Json{{"sessions", std::move(sessions)}, {"runs", std::move(runs)}});
}

}  // namespace tandem::service
