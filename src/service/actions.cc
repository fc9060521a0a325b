// What an arbiter's actions mean for connections, pages and records.
#include <algorithm>

#include "src/service/records.h"
#include "src/service/service.h"

namespace tandem::service {
namespace {

uint64_t InMicroseconds(Duration duration) {
  return static_cast<uint64_t>(duration.ns / 1000);
}

uint8_t Flag(bool granted) {
  return granted ? 1 : 0;
}

}  // namespace

void Service::Apply(Gpu& /*gpu*/, const core::action::Grant& grant) {
  SendTo(grant.id, wire::Grant{grant.epoch, grant.credit.count, InMicroseconds(grant.window)});
}

void Service::Apply(Gpu& /*gpu*/, const core::action::Credit& credit) {
  SendTo(credit.id, wire::Credit{credit.credit.count});
}

void Service::Apply(Gpu& /*gpu*/, const core::action::Revoke& revoke) {
  SendTo(revoke.id, wire::Revoke{revoke.epoch, InMicroseconds(revoke.deadline)});
}

void Service::Apply(Gpu& /*gpu*/, const core::action::Evict& evict) {
  SendTo(evict.id, wire::Evict{evict.target.count});
}

void Service::Apply(Gpu& /*gpu*/, const core::action::ContextReserved& context) {
  SendTo(context.id, wire::ContextReserved{Flag(context.granted)});
}

void Service::Apply(Gpu& /*gpu*/, const core::action::FixedReserved& fixed) {
  SendTo(fixed.id, wire::FixedReserved{fixed.sequence, Flag(fixed.granted)});
}

void Service::Apply(Gpu& /*gpu*/, const core::action::Reserved& reserved) {
  SendTo(reserved.id, wire::Reserved{reserved.sequence, Flag(reserved.granted)});
}

void Service::Apply(Gpu& /*gpu*/, const core::action::HostFull& full) {
  const auto at = sessions_.find(full.id);
  if (at != sessions_.end()) at->second->pages->decisions().host_refusals.fetch_add(1);
}

void Service::Apply(Gpu& /*gpu*/, const core::action::SetContended& contended) {
  const auto at = sessions_.find(contended.id);
  if (at != sessions_.end()) {
    at->second->pages->decisions().contended.store(contended.contended ? 1 : 0);
    at->second->pages->decisions().watched.store(contended.watched ? 1 : 0);
  }
  if (contended.contended || contended.watched) SendTo(contended.id, wire::Contended{});
}

void Service::Apply(Gpu& gpu, const core::action::HandoverDone& done) {
  ++gpu.handovers;
  gpu.out += done.record.out;
  gpu.in += done.record.in;
  const auto newcomer = sessions_.find(done.record.to);
  if (newcomer != sessions_.end()) ++newcomer->second->handovers;
  handovers_.emplace_back(gpu.info.index, done.record);
  if (handovers_.size() > kKeptHandovers) handovers_.pop_front();
}

void Service::Apply(Gpu& gpu, const core::action::WakeAt& wake) {
  gpu.wake = wake.instant;
}

void Service::Apply(Gpu& /*gpu*/, const core::action::Breach& breach) {
  const ConnectionId connection = sessions_.at(breach.id)->connection;
  Refuse(connection, wire::RefusalCode::kProtocol, breach.reason, true);
}

// Only its end frees what it keeps. It cannot be asked to end: it does not do what it is asked to.
void Service::Apply(Gpu& gpu, const core::action::Overdue& overdue) {
  const auto at = sessions_.find(overdue.id);
  if (at == sessions_.end()) return;
  const Seat& seat = *at->second;
  Note(Describe(seat) + " is ended: it has kept gpu" + std::to_string(gpu.info.index) +
       " from others for " + std::to_string(config_.longest_block.ns / 1000000000) +
       " s (--longest-block)");
  TellEnded(seat);
  Outgoing end;
  end.end_process = seat.client.pid;
  out_.push_back(std::move(end));
}

// Those of the sessions that the last event has changed, of others of their runs, or of all.
void Service::UpdatePages(Gpu& gpu) {
  const core::Arbiter& arbiter = gpu.arbiter;
  const PageBasis basis{BudgetShown(gpu), arbiter.MostResident(), arbiter.roster().sums().immovable,
                        arbiter.excess(), host_.limit(),          runs_revision_};
  bool all = gpu.shown != basis;
  gpu.shown = basis;
  for (const core::SessionId id : arbiter.roster().changed()) {
    all = all || UpdatePage(gpu, arbiter.roster().at(id));
  }
  if (!all) return;
  for (const auto& [id, session] : arbiter.sessions()) UpdatePage(gpu, session);
}

// Writes only what has changed: other processors read these pages. Returns whether others of its
// run must be shown that, too.
bool Service::UpdatePage(const Gpu& gpu, const core::Session& session) {
  const core::SessionId id = session.id;
  const auto at = sessions_.find(id);
  if (at == sessions_.end()) return false;
  Seat& seat = *at->second;
  wire::DecisionsPage& page = seat.pages->decisions();
  const auto show = [](std::atomic<uint64_t>& field, uint64_t value) {
    const bool changes = field.load(std::memory_order_relaxed) != value;
    if (changes) field.store(value);
    return changes;
  };
  const core::RunLimits& limits = gpu.arbiter.limits();
  const Bytes limit = limits.limit(id);
  const Bytes bound = session.oversubscribes ? limit : std::min(limit, gpu.shown->budget);
  show(page.limit_bytes, bound.count);
  const Bytes most = gpu.arbiter.MostResident(session);
  show(page.most_resident_bytes, session.oversubscribes ? std::max<uint64_t>(most.count, 1) : 0);
  show(page.most_needed_bytes, MostNeeded(seat).count);
  const Bytes alone = SaturatingSubtract(gpu.shown->budget, gpu.arbiter.budget().fixed());
  show(page.most_allocated_bytes, session.oversubscribes ? 0 : std::max<uint64_t>(alone.count, 1));
  const bool run_changes = show(page.run_used_bytes, limits.run_used(id).count);
  show(page.run_others_used_bytes, (limits.run_used(id) - limits.used(id)).count);
  const uint64_t others = limits.run_sessions(id) - 1;
  show(page.run_others, others);
  show(page.host_limit_bytes, host_.limit().count);
  show(page.fixed_wait_ms, static_cast<uint64_t>(config_.fixed_wait.ns / 1000000));
  const Bytes in_file = host_.PlaceOf(gpu.info.index, id).spilled;
  show(page.host_file_bytes, in_file.count);
  seat.spill_quota.OnPromise(in_file, now_);
  show(page.host_share_bytes, gpu.arbiter.HostShare(id).count);
  const bool asked = seat.run.has_value() && runs_.at(*seat.run).oversubscribes;
  show(page.run_oversubscribes, asked ? 1 : 0);
  if (page.suspended.load() != session.suspended) page.suspended.store(session.suspended);
  if (page.refuses.load() != session.refuses) {
    page.refuses.store(session.refuses);
    SendTo(id, wire::Contended{});  // so that it looks
  }
  Save(seat);
  return run_changes && others > 0;
}

// Bounds the limits that sessions are shown. While sessions come back after a restart, no limit
// shrinks because others are still away.
Bytes Service::BudgetShown(const Gpu& gpu) const {
  return settles_at_.has_value() ? BudgetOf(gpu.info, Bytes()) : gpu.arbiter.budget().total();
}

}  // namespace tandem::service
