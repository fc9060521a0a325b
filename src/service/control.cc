// Orders about sessions and runs: their targets, the users who may give them, and their effects.
#include <algorithm>
#include <charconv>

#include "src/base/duration.h"
#include "src/service/records.h"

namespace tandem::service {
namespace {

std::optional<uint64_t> Number(const std::string& text) {
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace

std::vector<Service::Seat*> Service::SeatsOf(const RunKey& run) const {
  std::vector<Seat*> seats;
  for (const auto& [id, seat] : sessions_) {
    if (seat->run == run) seats.push_back(seat.get());
  }
  return seats;
}

// A number is a session's, or else a run's; anything else is a name, as listings show it.
std::vector<Service::Target> Service::FindTargets(const std::string& text) const {
  const std::optional<uint64_t> number = Number(text);
  std::vector<Target> targets;
  const auto named = number ? sessions_.find(core::SessionId{*number}) : sessions_.end();
  if (named != sessions_.end()) {
    Seat* const seat = named->second.get();
    return {Target{seat->client.uid, seat->run, false, {seat}}};
  }
  for (const auto& [key, run] : runs_) {
    const bool meant = number ? key.second == *number : run.name == text;
    if (meant) targets.push_back(Target{key.first, key, true, SeatsOf(key)});
  }
  if (number) return targets;
  for (const auto& [id, seat] : sessions_) {
    if (seat->run.has_value() || seat->program != text) continue;
    targets.push_back(Target{seat->client.uid, std::nullopt, false, {seat.get()}});
  }
  return targets;
}

// Nothing, after saying why, where it is not clear who is meant or the user may not order it.
std::optional<Service::Target> Service::ChooseTarget(const Connection& from,
                                                     const std::string& text) {
  std::vector<Target> targets = FindTargets(text);
  const std::string shown = "\"" + Printable(text) + "\"";
  if (targets.empty()) {
    Refuse(from.id, wire::RefusalCode::kUnknownTarget,
           "no session or run is called " + shown + "; `tandem ps` lists those there are", false);
    return std::nullopt;
  }
  const unsigned stranger = targets.front().uid;
  std::erase_if(targets, [&](const Target& target) {
    return from.client.uid != 0 && target.uid != from.client.uid;
  });
  if (targets.empty()) {
    Refuse(from.id, wire::RefusalCode::kNotYours,
           shown + " belongs to user " + std::to_string(stranger) +
               ": only that user and root may do this",
           false);
    return std::nullopt;
  }
  if (targets.size() == 1) return std::move(targets.front());
  RefuseAmbiguous(from, shown, targets);
  return std::nullopt;
}

// Sessions' numbers are the ones that listings show; a run that has none has only its own.
void Service::RefuseAmbiguous(const Connection& from, const std::string& shown,
                              const std::vector<Target>& targets) {
  std::string sessions, runs;
  for (const Target& target : targets) {
    for (const Seat* seat : target.seats) sessions += " " + std::to_string(seat->id.value);
    if (target.seats.empty()) runs += " " + std::to_string(target.run->second);
  }
  std::string reason = std::to_string(targets.size()) + " are called " + shown;
  if (!sessions.empty()) reason += "; name one by the number of a session:" + sessions;
  if (!runs.empty()) reason += "; name one that uses no GPU yet by its run's number:" + runs;
  Refuse(from.id, wire::RefusalCode::kUnknownTarget, std::move(reason), false);
}

// Of its run, or its own where it has none.
const std::optional<LimitOrder>& Service::LimitedBy(const Seat& seat) const {
  return seat.run.has_value() ? runs_.at(*seat.run).limited : seat.limited;
}

// What root has suspended or limited only root resumes, or gives another limit.
bool Service::RefuseToLift(const Connection& from, const Target& target, const wire::Control& m) {
  constexpr unsigned kRoot = 0;
  if (from.client.uid == kRoot) return false;
  const Run* const run = target.run.has_value() ? &runs_.at(*target.run) : nullptr;
  bool bound = false;
  if (m.what == "resume") {
    bound = target.whole_run && run->suspended && run->suspended_by == kRoot;
    for (const Seat* seat : target.seats) {
      const core::Session& session = seat->gpu->arbiter.sessions().at(seat->id);
      bound = bound || (session.suspended && seat->suspended_by == kRoot);
    }
  } else if (m.what == "limit") {
    bound = run != nullptr && run->limited.has_value() && run->limited->by == kRoot;
    for (const Seat* seat : target.seats) {
      const auto& limited = LimitedBy(*seat);
      bound = bound || (limited.has_value() && limited->by == kRoot);
    }
  }
  if (!bound) return false;
  const bool resume = m.what == "resume";
  Refuse(from.id, wire::RefusalCode::kNotYours,
         "root has " + std::string(resume ? "suspended" : "limited") + " \"" + Printable(m.target) +
             "\": only root can " + (resume ? "resume it" : "change its limit"),
         false);
  return true;
}

// Every order is in the log with its result, obeyed or refused.
void Service::Handle(Connection& from, const wire::Control& m) {
  const size_t before = out_.size();
  Obey(from, m);
  std::string result = "obeyed";
  for (size_t i = before; i < out_.size(); ++i) {
    const Outgoing& out = out_[i];
    const auto* refused = out.message ? std::get_if<wire::Refused>(&*out.message) : nullptr;
    if (out.to == from.id && refused != nullptr) result = "refused, " + refused->reason;
  }
  std::string value = m.value.empty() ? "" : " " + Printable(m.value);
  if (m.what == "limit")
    value = m.limit_bytes == 0 ? " all" : " " + FormatBytes(Bytes(m.limit_bytes));
  NoteOf(from.client.uid, "order of user " + std::to_string(from.client.uid) + ", process " +
                              std::to_string(from.client.pid) + ": " + Printable(m.what) + " \"" +
                              Printable(m.target) + "\"" + value + ": " + result);
}

void Service::Obey(Connection& from, const wire::Control& m) {
  if (from.role == Connection::Role::kSession) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "Control is not for sessions", true);
  }
  from.role = Connection::Role::kPeople;
  if (m.what == "policy") return SetPolicy(from, m);
  if (m.what == "share") return SetShare(from, m);
  if (m.what == "lease") return CreateLease(from, m);
  if (m.what == "end-lease") return EndLease(from, m);
  if (m.what == "move-lease") return MoveLease(from, m);
  const bool limit = m.what == "limit";
  if (!limit && m.what != "suspend" && m.what != "resume") {
    return Refuse(from.id, wire::RefusalCode::kProtocol,
                  "there is no order called " + Printable(m.what), false);
  }
  std::optional<Target> target = ChooseTarget(from, m.target);
  if (!target.has_value() || RefuseToLift(from, *target, m)) return;
  const bool oversubscribes = target->run.has_value() && runs_.at(*target->run).oversubscribes;
  if (limit && RefuseTooLarge(from, Bytes(m.limit_bytes), oversubscribes, kOversubscribeHint)) {
    return;
  }
  const bool suspend = m.what == "suspend";
  if (suspend && RefuseForHost(from, target->seats)) return;
  std::optional<Instant> refuses_at;
  if (suspend && !m.value.empty()) {
    const Result<Duration> after = ParseDuration(m.value);
    if (!after.ok() || !target->whole_run || !runs_.at(*target->run).leased) {
      return Refuse(from.id, wire::RefusalCode::kUnknownTarget,
                    after.ok() ? "only calls of a lease's programs, such as a container's, can fail"
                               : Printable(after.error().message),
                    false);
    }
    refuses_at = now_ + *after;
  }
  if (limit) {
    if (target->run.has_value()) target->seats = SeatsOf(*target->run);
    Limit(*target, Bytes(m.limit_bytes), from.client.uid);
  } else {
    Suspend(*target, suspend, from.client.uid, refuses_at);
  }
  std::vector<core::SessionId> ids;
  for (const Seat* seat : target->seats) ids.push_back(seat->id);
  out_.push_back(Outgoing{from.id, wire::Answer{OrderJson(ids)}, {}, false});
}

void Service::Suspend(const Target& target, bool suspended, unsigned by,
                      std::optional<Instant> refuses_at) {
  if (target.whole_run) {
    Run& run = runs_.at(*target.run);
    // Another order to suspend it does not take it from root.
    if (!run.suspended || !suspended || by == 0) run.suspended_by = by;
    if (run.suspended_by == by) run.refuses_at = refuses_at;
    run.refuses = false;
    run.suspended = suspended;
    run.suspension_known = true;
    TellOwner(run);
    if (run.leased) KeepSuspension(*target.run);
  }
  for (Seat* seat : target.seats) {
    seat->follows_run = false;
    const bool already = seat->gpu->arbiter.sessions().at(seat->id).suspended;
    if (!already || !suspended || by == 0) seat->suspended_by = by;
    Feed(*seat->gpu, core::event::Suspended{seat->id, suspended});
  }
}

void Service::Limit(const Target& target, Bytes limit, unsigned by) {
  if (target.run.has_value()) {
    Run& run = runs_.at(*target.run);
    run.limit = limit;
    run.limited = LimitOrder{by, now_};
    run.limit_known = true;
    TellOwner(run);
    return ApplyLimit(run);
  }
  for (Seat* seat : target.seats) {
    seat->limited = LimitOrder{by, now_};
    const Bytes most = limit == Bytes() ? seat->gpu->info.card : limit;
    Feed(*seat->gpu, core::event::LimitSet{seat->core_run, most});
  }
}

}  // namespace tandem::service
