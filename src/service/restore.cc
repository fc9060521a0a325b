// Sessions of a daemon before this one: taken from what it left, or believed as far as the card
// bears them out.
#include <algorithm>
#include <cstring>
#include <utility>

#include "src/service/records.h"

namespace tandem::service {
namespace {

template <size_t kSize>
void Copy(const std::string& text, char (&to)[kSize]) {
  const size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), length);
  std::memset(to + length, 0, kSize - length);
}

template <size_t kSize>
std::string TextOf(const char (&from)[kSize]) {
  return {from, strnlen(from, kSize)};
}

// What it was granted, as far as the card has it.
core::event::SessionAdded GrantedTo(const SavedSession& saved, const GpuInfo& gpu) {
  core::event::SessionAdded added;
  added.id = core::SessionId{saved.id.load()};
  added.oversubscribes = saved.oversubscribes != 0;
  added.spills = saved.spills != 0;
  const uint64_t cards = added.oversubscribes ? kMostCards : 1;
  added.allocated = std::min(Bytes(saved.allocated_bytes), Bytes(gpu.card.count * cards));
  added.resident = std::min(Bytes(saved.charged_bytes), gpu.card);
  added.fixed = std::min(Bytes(saved.fixed_bytes), gpu.card);
  added.contexts = std::min(saved.contexts, kMostContexts);
  added.limit = Bytes(saved.limit_bytes);
  added.of_class = static_cast<core::Class>(
      std::min<uint8_t>(saved.of_class, static_cast<uint8_t>(core::kClasses - 1)));
  return added;
}

}  // namespace

void Service::RestoreSessions() {
  if (config_.saved == nullptr || !config_.saved->complete()) return;
  settles_at_.reset();
  now_ = config_.started;
  for (SavedSession* saved : config_.saved->found()) Restore(saved);
  if (!sessions_.empty()) settles_at_ = config_.started + kSettling;
}

// As one whose connection broke. What its GPU is to take from it waits until it is back.
void Service::Restore(SavedSession* saved) {
  Gpu* const gpu = FindGpu(TextOf(saved->device));
  Result<std::unique_ptr<SessionPages>> pages = pages_->Make();
  const core::SessionId id{saved->id.load()};
  if (gpu == nullptr || !pages.ok() || sessions_.count(id) != 0) {
    saved->id = 0;
    return;
  }
  auto seat = std::make_unique<Seat>();
  seat->id = id;
  seat->gpu = gpu;
  seat->client = {static_cast<int>(saved->pid), saved->uid, true, saved->started_ticks};
  seat->program = Printable(TextOf(saved->program));
  seat->started = Instant(saved->started_ns);
  seat->pages = std::move(*pages);
  seat->saved = saved;
  if (saved->suspended_by != SavedSession::kNoUser) {
    seat->suspended_by = static_cast<unsigned>(saved->suspended_by);
  }
  std::optional<LimitOrder> limited;
  if (saved->limited_by != SavedSession::kNoUser) {
    limited = LimitOrder{static_cast<unsigned>(saved->limited_by), Instant(saved->limited_ns)};
  }
  core::event::SessionAdded added = GrantedTo(*saved, gpu->info);
  added.tenant = TenantOf(seat->client);
  if (saved->run != 0) {
    seat->run = RunKey{saved->uid, saved->run};
    Run& run = FindRun(saved->uid, saved->run);
    if (++run.sessions == 1) run.of_class = added.of_class;
    run.limit = added.limit;
    run.limited = limited;
    run.limit_known = true;  // `tandem run` may not have heard of the last order
    run.oversubscribes = run.oversubscribes || added.oversubscribes;
    added.run = run.id;
    added.limit = LimitOn(*gpu, run, added.oversubscribes);
  } else {
    seat->limited = limited;
    added.run = core::RunId{++last_run_};
  }
  seat->core_run = added.run;
  const Bytes had = added.resident + added.fixed + Bytes(added.contexts * gpu->info.context.count);
  gpu->foreign = SaturatingSubtract(gpu->foreign, had);
  added.budget = gpu->budget();
  const bool suspended = saved->suspended != 0;
  Note(Describe(*seat) + " is expected back");
  RecordIdentity(*seat);
  sessions_[id] = std::move(seat);
  ExpectUsage();
  Feed(*gpu, added);
  if (suspended) Feed(*gpu, core::event::Suspended{id});
}

// Then no program has memory of sessions but those that are listed.
bool Service::KnowsAllFromBefore() const {
  return config_.saved != nullptr && config_.saved->complete();
}

// All are back, and the cards have said what the others hold.
bool Service::MayEndSettling() const {
  return settles_at_.has_value() && KnowsAllFromBefore() && (measured_ || !config_.measures) &&
         std::all_of(sessions_.begin(), sessions_.end(),
                     [](const auto& entry) { return entry.second->connection != 0; });
}

bool Service::AddSaved(Seat& seat) const {
  if (config_.saved == nullptr) return true;
  seat.saved = config_.saved->Add();
  if (seat.saved == nullptr) return false;
  SavedSession& saved = *seat.saved;
  saved.pid = static_cast<uint32_t>(seat.client.pid);
  saved.uid = seat.client.uid;
  saved.started_ticks = seat.client.started_ticks;
  saved.started_ns = seat.started.ns;
  Copy(seat.gpu->info.uuid, saved.device);
  Copy(seat.program, saved.program);
  return true;
}

// With every event of its GPU, before anything is said of it.
void Service::Save(const Seat& seat) const {
  if (seat.saved == nullptr) return;
  const core::Arbiter& arbiter = seat.gpu->arbiter;
  const core::Session& session = arbiter.sessions().at(seat.id);
  SavedSession& saved = *seat.saved;
  const auto by = [](bool known, unsigned uid) {
    return known ? int64_t{uid} : SavedSession::kNoUser;
  };
  const bool has_run = seat.run.has_value();
  const Bytes limit = has_run ? runs_.at(*seat.run).limit : arbiter.limits().limit(seat.id);
  const auto& limited = LimitedBy(seat);
  // Only what has changed: a page that is written may have to be written to a disk.
  const auto set = [](auto& field, auto value) {
    if (field != value) field = value;
  };
  set(saved.run, has_run ? seat.run->second : 0);
  set(saved.limit_bytes, limit.count);
  set(saved.allocated_bytes, session.allocated.count);
  set(saved.charged_bytes, (session.charge + session.excess).count);
  set(saved.fixed_bytes, session.fixed.count);
  set(saved.contexts, session.contexts);
  set(saved.suspended, static_cast<uint8_t>(session.suspended));
  set(saved.suspended_by, by(seat.suspended_by.has_value(), seat.suspended_by.value_or(0)));
  set(saved.limited_by, by(limited.has_value(), limited.has_value() ? limited->by : 0));
  set(saved.limited_ns, limited.has_value() ? limited->at.ns : 0);
  set(saved.oversubscribes, static_cast<uint8_t>(session.oversubscribes));
  set(saved.spills, static_cast<uint8_t>(session.spills));
  set(saved.of_class, static_cast<uint8_t>(session.of_class));
  if (saved.id.load(std::memory_order_relaxed) != seat.id.value) saved.id = seat.id.value;
}

// A program that claims memory from before a restart of which nothing was left. All such claims
// together are bounded by what was in use then.
void Service::Believe(Gpu& gpu, core::event::SessionAdded* claims) {
  const auto take = [&](Bytes claimed) {
    const Bytes believed = std::min(claimed, gpu.claimable);
    gpu.claimable -= believed;
    return believed;
  };
  claims->resident = take(claims->resident);
  claims->fixed = take(claims->fixed);
  const Bytes context = gpu.info.context;
  if (context == Bytes()) return;
  claims->contexts =
      static_cast<uint32_t>(take(Bytes(claims->contexts * context.count)).count / context.count);
}

// What looked like other programs' memory at the start was partly this session's: up to all it has
// allocated, since it may have gone on swapping out between then and now.
void Service::CountAsNotForeign(Gpu& gpu, core::event::SessionAdded* claims) {
  const Bytes had = std::max(std::min(claims->allocated, gpu.info.card), claims->resident) +
                    claims->fixed + Bytes(claims->contexts * gpu.info.context.count);
  gpu.foreign = SaturatingSubtract(gpu.foreign, had);
  claims->budget = gpu.budget();
}

}  // namespace tandem::service
