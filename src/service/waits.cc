// Who waits, told to those who asked for it: `tandem run`, which shows it, and programs that do so
// themselves.
//
// Looked at once a second while something waits and is watched. The end of a wait is told at once.
#include <algorithm>

#include "src/service/records.h"
#include "src/service/standing.h"

namespace tandem::service {
namespace {

constexpr Duration kPeriod = Seconds(1);  // also how long a wait lasts before it is told

uint64_t Milli(Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(duration.ns, 0) / 1000000);
}

}  // namespace

void Service::Handle(Connection& from, const wire::WatchWaits& m) {
  if (from.role == Connection::Role::kSession) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "WatchWaits is not for sessions", true);
  }
  from.role = Connection::Role::kPeople;
  watchers_.insert(from.id);
  from.watch = Watch{};
  told_.erase(from.id);
  if (m.run != 0) from.watch->run = RunKey{from.client.uid, m.run};
  for (const auto& gpu : gpus_) ExpectWaits(*gpu);
}

void Service::Handle(Connection& from, const wire::EndWait& m) {
  if (from.role == Connection::Role::kSession) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "EndWait is not for sessions", true);
  }
  from.role = Connection::Role::kPeople;
  for (const Seat* seat : SeatsOf(RunKey{from.client.uid, m.run})) {
    if (seat->gpu->arbiter.IsHeldBack(seat->id)) SendTo(seat->id, wire::EndProgram{});
  }
}

bool Service::Watches(const Connection& connection, const Seat& seat) {
  if (!connection.watch.has_value()) return false;
  const auto& run = connection.watch->run;
  if (run.has_value()) return seat.run == run;
  return seat.client.pid == connection.client.pid && seat.client.uid == connection.client.uid;
}

void Service::ExpectWaits(const Gpu& gpu) {
  const bool expects = !watchers_.empty() && !waits_at_.has_value() && gpu.arbiter.AnyHeldBack();
  if (expects) waits_at_ = now_ + kPeriod;
}

wire::Waiting Service::WaitOf(const Seat& seat, const Standing& standing) const {
  wire::Waiting waiting;
  waiting.state = CodeOf(standing.state);
  waiting.reason = CodeOf(standing.reason);
  waiting.name = NameOf(seat);
  waiting.gpu = "gpu" + std::to_string(seat.gpu->info.index);
  waiting.session = seat.id.value;
  waiting.pid = static_cast<uint64_t>(seat.client.pid);
  waiting.waited_ms = Milli(now_ - *standing.held_back_since);
  waiting.place = standing.place;
  const auto expected = seat.gpu->arbiter.ExpectedWait(seat.id, now_);
  if (expected.has_value()) waiting.expected_ms = Milli(*expected);
  for (const core::SessionId id : HoldersOf(*seat.gpu)) {
    if (id == seat.id) continue;
    if (waiting.holders++ == 0) waiting.holder = NameOf(*sessions_.at(id));
  }
  if (seat.suspended_by.has_value()) waiting.suspended_by = *seat.suspended_by;
  return waiting;
}

// To those that watch it: its program is about to be ended.
void Service::TellEnded(const Seat& seat) {
  wire::Waiting ended;
  ended.state = "ended";
  ended.name = NameOf(seat);
  ended.gpu = "gpu" + std::to_string(seat.gpu->info.index);
  ended.session = seat.id.value;
  ended.pid = static_cast<uint64_t>(seat.client.pid);
  ended.waited_ms = Milli(config_.longest_block);
  for (const ConnectionId number : watchers_) {
    if (!Watches(*connections_.at(number), seat)) continue;
    out_.push_back(Outgoing{number, ended, {}, false});
  }
}

// To each that watches, of what it watches the session that has been held back the longest.
void Service::TellWaits() {
  waits_at_.reset();
  std::map<const Gpu*, Surroundings> around;
  for (const auto& gpu : gpus_) around[gpu.get()] = SurroundingsOf(*gpu);
  std::map<ConnectionId, std::pair<const Seat*, Standing>> longest;
  for (const auto& [id, seat] : sessions_) {
    if (!seat->gpu->arbiter.IsHeldBack(id)) continue;
    const Standing standing = StandingOf(seat->gpu->arbiter, around.at(seat->gpu), id);
    if (now_ - *standing.held_back_since < kPeriod) continue;
    for (const ConnectionId number : watchers_) {
      if (!Watches(*connections_.at(number), *seat)) continue;
      const auto at = longest.try_emplace(number, seat.get(), standing).first;
      const bool longer = standing.held_back_since < at->second.second.held_back_since;
      if (longer) at->second = {seat.get(), standing};
    }
  }
  for (const ConnectionId number : watchers_) {
    const auto at = longest.find(number);
    const bool none = at == longest.end();
    TellWait(*connections_.at(number),
             none ? wire::Waiting{} : WaitOf(*at->second.first, at->second.second));
  }
  for (const auto& gpu : gpus_) ExpectWaits(*gpu);
}

// Sends nothing where only the time waited has changed since the last message.
void Service::TellWait(Connection& to, const wire::Waiting& waiting) {
  std::optional<wire::Waiting>& told = to.watch->told;
  if (waiting.state.empty() && !told.has_value()) return;
  if (told.has_value()) {
    told->waited_ms = waiting.waited_ms;
    wire::Waiting same = waiting;
    if (told->Fields() == same.Fields()) return;
  }
  out_.push_back(Outgoing{to.id, waiting, {}, false});
  if (waiting.state.empty()) {
    told.reset();
    told_.erase(to.id);
  } else {
    told = waiting;
    told_.insert(to.id);
  }
}

// Those that are not held back any more.
void Service::EndWaits() {
  for (auto at = told_.begin(); at != told_.end();) {
    Connection& connection = *connections_.at(*at++);  // which may be taken out
    const auto seat = sessions_.find(core::SessionId{connection.watch->told->session});
    const bool gone = seat == sessions_.end();
    if (gone || !seat->second->gpu->arbiter.IsHeldBack(seat->second->id)) {
      TellWait(connection, wire::Waiting{});
    }
  }
}

}  // namespace tandem::service
