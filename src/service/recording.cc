// What the daemon records of itself: all that the arbiters are told and what they decide, and what
// each session has used, every ten seconds and at its end.
#include <algorithm>

#include "src/service/records.h"
#include "src/service/standing.h"

namespace tandem::service {
namespace {

constexpr Duration kUsagePeriod = Seconds(10);
constexpr int64_t kHourNs = int64_t{3600} * 1000000000;

}  // namespace

int64_t Service::UnixNs(Instant instant) const {
  return instant.ns + (config_.unix_ns_at_zero ? config_.unix_ns_at_zero() : 0);
}

void Service::Record(decltype(history::Record::what) what) const {
  if (config_.record) config_.record(history::Record{now_, UnixNs(now_), std::move(what)});
}

void Service::RecordStart() const {
  history::DaemonStarted started{config_.version, config_.pid, config_.policy, {}};
  for (const auto& gpu : gpus_) {
    const GpuInfo& info = gpu->info;
    started.gpus.push_back({info.index, info.uuid, info.name, info.software, info.card,
                            gpu->arbiter.budget().total(), info.context, info.chunk});
  }
  Record(std::move(started));
}

// REQUIRES: the arbiter is told of it afterwards.
void Service::RecordIdentity(Seat& seat) const {
  if (!config_.record) return;
  auto who = std::make_shared<history::SessionIdentity>();
  who->session = seat.id.value;
  who->gpu = seat.gpu->info.uuid;
  who->gpu_index = seat.gpu->info.index;
  who->uid = seat.client.uid;
  who->run = seat.run.has_value() ? runs_.at(*seat.run).name : "";
  const Lease* const lease =
      seat.run.has_value() ? leases_.OfToken(seat.run->first, seat.run->second) : nullptr;
  if (lease != nullptr) who->project = Printable(lease->terms.project);
  who->program = seat.program;
  who->pid = seat.client.pid;
  who->started_unix_ns = UnixNs(seat.started);
  seat.recorded.to_unix_ns = UnixNs(now_);
  seat.identity = std::move(who);
  Record(history::SessionIdentified{seat.identity});
}

void Service::RecordEvent(const Gpu& gpu, const core::Event& event) const {
  if (config_.record && !std::holds_alternative<core::event::Evicted>(event)) {
    Record(history::Told{gpu.info.index, event});
  }
}

// Once it has given what it was asked for: there is one message for each chunk.
void Service::RecordEviction(const Gpu& gpu, const core::Event& event) const {
  const auto* const evicted = std::get_if<core::event::Evicted>(&event);
  if (!config_.record || evicted == nullptr) return;
  const auto session = gpu.arbiter.sessions().find(evicted->id);
  const bool goes_on =
      session != gpu.arbiter.sessions().end() && session->second.yields_to.has_value();
  if (!goes_on) Record(history::Told{gpu.info.index, event});
}

void Service::RecordAction(const Gpu& gpu, const core::Action& action) const {
  if (!config_.record) return;
  const auto* const done = std::get_if<core::action::HandoverDone>(&action);
  if (done == nullptr) return Record(history::Decided{gpu.info.index, action});
  history::HandedOver handed{gpu.info.index, done->record, {}};
  handed.resident.emplace_back(done->record.to, gpu.arbiter.ChargeOf(done->record.to));
  for (const core::SessionId id : done->record.from) {
    handed.resident.emplace_back(id, gpu.arbiter.ChargeOf(id));
  }
  Record(std::move(handed));
}

// What it has used since it began.
history::Usage Service::TotalsOf(const Seat& seat, const Surroundings& around) const {
  const core::Arbiter& arbiter = seat.gpu->arbiter;
  const core::Session& session = arbiter.sessions().at(seat.id);
  history::Usage totals;
  totals.of = seat.identity;
  totals.to_unix_ns = UnixNs(now_);
  totals.held_s = HeldOf(session, now_).seconds();
  totals.active_s = session.active.Until(now_).seconds();
  totals.waited_s = WaitedOf(session, StandingOf(arbiter, around, seat.id), now_).seconds();
  totals.allocated_byte_s = session.allocated_for.Until(now_);
  totals.resident_byte_s = session.resident_for.Until(now_);
  totals.swapped_byte_s = session.swapped_for.Until(now_);
  totals.handovers = seat.handovers;
  totals.out_bytes = seat.out.count;
  totals.in_bytes = seat.in.count;
  return totals;
}

void Service::RecordUsage(Seat& seat, const Surroundings& around, bool last) {
  if (seat.identity == nullptr) return;
  const history::Usage totals = TotalsOf(seat, around);
  const history::Usage& before = seat.recorded;
  history::Usage usage = totals;
  // The clock on the wall may have been set back.
  usage.from_unix_ns = std::min(before.to_unix_ns, totals.to_unix_ns);
  usage.held_s -= before.held_s;
  usage.active_s -= before.active_s;
  // A wait that was given up counts no longer.
  usage.waited_s = std::max(usage.waited_s - before.waited_s, 0.0);
  usage.allocated_byte_s -= before.allocated_byte_s;
  usage.resident_byte_s -= before.resident_byte_s;
  usage.swapped_byte_s -= before.swapped_byte_s;
  usage.handovers -= before.handovers;
  usage.out_bytes -= before.out_bytes;
  usage.in_bytes -= before.in_bytes;
  usage.last = last;
  seat.recorded = totals;
  Record(std::move(usage));
}

void Service::RecordUsages() {
  usage_at_.reset();
  for (const auto& gpu : gpus_) {
    const Surroundings around = SurroundingsOf(*gpu);
    for (const auto& [id, seat] : sessions_) {
      if (seat->gpu == gpu.get()) RecordUsage(*seat, around, false);
    }
  }
  ExpectUsage();
}

void Service::OnEnding(Instant now) {
  now_ = now;
  RecordUsages();
}

// Never later than the next hour begins, so that an hour's use is its own.
void Service::ExpectUsage() {
  if (!config_.record || sessions_.empty() || usage_at_.has_value()) return;
  const int64_t to_next_hour = kHourNs - UnixNs(now_) % kHourNs;
  usage_at_ = now_ + std::min(kUsagePeriod, Duration(to_next_hour));
}

}  // namespace tandem::service
