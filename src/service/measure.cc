// Memory of programs outside Tandem, and how often the cards are asked for it.
#include <algorithm>

#include "src/service/records.h"

namespace tandem::service {
namespace {

constexpr Duration kShortestPause = Milliseconds(200);  // between two measurements
constexpr Duration kPauseWhileWaiting = Seconds(5);
constexpr Duration kPauseAfterAChange = Seconds(5);
constexpr Duration kUsualPause = Seconds(60);

}  // namespace

// At the latest `pause` after the last time.
void Service::MeasureWithin(Duration pause) {
  if (!config_.measures) return;
  const Instant at = std::max(now_, last_measured_ + pause);
  measure_at_ = std::min(measure_at_.value_or(at), at);
}

void Service::MeasureAfterAnEnd() {
  last_end_ = now_;
  MeasureWithin(kShortestPause);
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
    MeasureWithin(kShortestPause);
    return std::move(out_);
  }
  for (const auto& gpu : gpus_) {
    const auto use = uses.of.find(gpu->info.uuid);
    if (use != uses.of.end()) CountForeign(*gpu, use->second);
    MeasureWhileWaiting(*gpu);
  }
  measured_ = true;
  if (MayEndSettling()) EndSettling();
  return std::move(out_);
}

// All that the processes of sessions have there is theirs.
void Service::CountForeign(Gpu& gpu, const CardUse& use) {
  Bytes least, most;  // of sessions
  for (const auto& [id, seat] : sessions_) {
    const auto process = use.processes.find(seat->client.pid);
    if (seat->gpu != &gpu || process == use.processes.end()) continue;
    least += process->second.least;
    most += process->second.most;
  }
  const Bytes used = SaturatingSubtract(gpu.info.card, use.free);
  const Bytes before = gpu.foreign;
  gpu.foreign = std::clamp(before, SaturatingSubtract(used, most), SaturatingSubtract(used, least));
  const Bytes budget = BudgetOf(gpu.info, gpu.foreign);
  if (gpu.foreign == before) return;
  MeasureWithin(kPauseAfterAChange);
  Feed(gpu, core::event::BudgetSet{budget});
  Note("gpu" + std::to_string(gpu.info.index) + ": programs outside Tandem hold " +
       FormatBytes(gpu.foreign) + ", before " + FormatBytes(before));
}

}  // namespace tandem::service
