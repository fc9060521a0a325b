// Memory of programs outside Tandem, and how often the cards are asked for it.
#include <algorithm>
#include <utility>

#include "src/service/records.h"

namespace tandem::service {
namespace {

constexpr Duration kPauseAfterAnEnd = Milliseconds(200);  // between two measurements
constexpr Duration kPauseWhileWaiting = Seconds(5);
constexpr Duration kPauseAfterAChange = Seconds(5);
constexpr Duration kUsualPause = Seconds(10);
constexpr uint64_t kShareWorthALine = 100;  // of the card, in the log

}  // namespace

// At the latest `pause` after the last time.
void Service::MeasureWithin(Duration pause) {
  if (!config_.measures) return;
  const Instant at = std::max(now_, last_measured_ + pause);
  measure_at_ = std::min(measure_at_.value_or(at), at);
}

void Service::MeasureAfterAnEnd() {
  last_end_ = now_;
  MeasureWithin(kPauseAfterAnEnd);
}

void Service::MeasureWhileWaiting(const Gpu& gpu) {
  if (gpu.arbiter.AnyHeldBack()) MeasureWithin(kPauseWhileWaiting);
}

bool Service::WantsMeasurement(Instant now) const {
  return measure_at_.has_value() && *measure_at_ <= now;
}

void Service::OnMeasuring(Instant now) {
  last_measured_ = now;
  measure_at_ = now + kUsualPause;
}

std::vector<Outgoing> Service::OnMeasured(const CardUses& uses, Instant now) {
  now_ = now;
  // What ended since may be in the figures and may not.
  if (last_end_.has_value() && *last_end_ >= uses.asked_at) {
    MeasureWithin(kPauseAfterAnEnd);
    return std::move(out_);
  }
  for (const auto& gpu : gpus_) {
    const auto use = uses.of.find(gpu->info.uuid);
    if (use != uses.of.end()) CountForeign(*gpu, use->second);
    NoteHealth(*gpu, use != uses.of.end());
    MeasureWhileWaiting(*gpu);
  }
  measured_ = true;
  if (MayEndSettling()) EndSettling();
  if (awaits_measurement_since_.has_value()) {
    if (uses.asked_at >= *awaits_measurement_since_) {
      EndAwaitingMeasurement();
    } else {
      MeasureWithin(Duration());
    }
  }
  return std::move(out_);
}

// Whether the message is about a limit that other programs' memory lowers, which may have ended
// since it was measured: a session begins, a lease is made of what can be shared, or a run, a lease
// or memory would be refused.
bool Service::NeedsMeasurement(const Connection& from, const wire::Message& message) {
  if (!config_.measures || !measured_) return false;
  if (const auto* const m = std::get_if<wire::Register>(&message)) {
    const Gpu* const gpu = FindGpu(m->device);
    return gpu != nullptr && gpu->foreign > Bytes();
  }
  const bool any_foreign = std::any_of(gpus_.begin(), gpus_.end(),
                                       [](const auto& gpu) { return gpu->foreign > Bytes(); });
  if (const auto* const m = std::get_if<wire::RunBegin>(&message)) {
    return any_foreign && m->run == 0 && Bytes(m->limit_bytes) > MostShared();
  }
  if (const auto* const m = std::get_if<wire::Control>(&message)) {
    return any_foreign && m->what == "lease";
  }
  if (const auto* const m = std::get_if<wire::Query>(&message)) {
    return any_foreign && m->what == "leases";
  }
  const auto* const m = std::get_if<wire::Reserve>(&message);
  if (m == nullptr || from.seat == nullptr || from.seat->gpu->foreign == Bytes()) return false;
  const core::Arbiter& arbiter = from.seat->gpu->arbiter;
  const core::Session& session = arbiter.sessions().at(from.seat->id);
  const Bytes total(m->total_bytes);
  return !session.oversubscribes && total > session.allocated && total > arbiter.MostResident();
}

void Service::AwaitMeasurement(Connection& from) {
  from.awaits_measurement = true;
  if (!awaits_measurement_since_.has_value()) awaits_measurement_since_ = now_;
  MeasureWithin(Duration());
}

// The card has said it, or does not answer: what waited goes by what is known.
void Service::EndAwaitingMeasurement() {
  awaits_measurement_since_.reset();
  for (const auto& [id, connection] : connections_) connection->awaits_measurement = false;
  ReleaseHeld();
}

// What sessions have there: all that their processes have. Nothing where NVML does not tell it of
// one that has a context, as in a container, where its numbers of processes are the host's.
std::optional<CardUse::Range> Service::UsedBySessions(const Gpu& gpu, const CardUse& use) const {
  CardUse::Range sum;
  for (const auto& [id, seat] : sessions_) {
    if (seat->gpu != &gpu) continue;
    const auto process = use.processes.find(seat->client.pid);
    if (process != use.processes.end()) {
      sum.least += process->second.least;
      sum.most += process->second.most;
    } else if (gpu.arbiter.sessions().at(id).contexts > 0) {
      return std::nullopt;
    }
  }
  return sum;
}

// A GPU that the driver has lost is no longer among those whose use it tells. Some, such as parts
// of a GPU, never are.
void Service::NoteHealth(Gpu& gpu, bool answers) {
  gpu.measured = gpu.measured || answers;
  const bool healthy = answers || !gpu.measured;
  if (std::exchange(gpu.healthy, healthy) == healthy) return;
  Note("gpu" + std::to_string(gpu.info.index) +
       (healthy ? ": the driver answers for it again"
                : ": the driver has lost it, and runs nothing on it"));
}

void Service::CountForeign(Gpu& gpu, const CardUse& use) {
  const std::optional<CardUse::Range> ours = UsedBySessions(gpu, use);
  if (!ours.has_value()) return;
  const Bytes used = SaturatingSubtract(gpu.info.card, use.free);
  const Bytes before = gpu.foreign;
  gpu.foreign = std::clamp(before, SaturatingSubtract(used, ours->most),
                           SaturatingSubtract(used, ours->least));
  if (gpu.foreign == before) return;
  MeasureWithin(kPauseAfterAChange);
  Feed(gpu, core::event::BudgetSet{gpu.budget()});
  const Bytes noted = gpu.foreign_noted;
  const Bytes change = std::max(gpu.foreign, noted) - std::min(gpu.foreign, noted);
  if (change.count < gpu.info.card.count / kShareWorthALine) return;
  gpu.foreign_noted = gpu.foreign;
  Note("gpu" + std::to_string(gpu.info.index) + ": programs outside Tandem hold " +
       FormatBytes(gpu.foreign) + ", before " + FormatBytes(noted));
}

}  // namespace tandem::service
