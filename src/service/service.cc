#include "src/service/service.h"

#include <algorithm>

#include "src/service/events.h"
#include "src/service/records.h"
#include "src/service/standing.h"

namespace tandem::service {
namespace {

core::ArbiterConfig ConfigOf(const GpuInfo& gpu, const ServiceConfig& service,
                             core::HostLimits* host) {
  core::ArbiterConfig config;
  config.turns = service.turns;
  config.policy = service.policy;
  config.fixed_wait = service.fixed_wait;
  config.longest_block = service.longest_block;
  config.bytes_per_second = service.assumed_bytes_per_second;
  if (service.chaos_seed.has_value()) config.deadline = kChaosDeadline;
  config.budget = BudgetOf(gpu, gpu.foreign);
  config.chunk = config.spare = gpu.chunk;
  config.context = gpu.context;
  config.reserved = gpu.reserved_contexts;
  config.host = host;
  config.gpu = gpu.index;
  return config;
}

constexpr uint64_t kLongestBurst =
    uint64_t{1000000} * 86400 * 365;  // µs that a session may declare

// Which sessions runs have, or their limits.
bool ChangesRuns(const core::Event& event) {
  return std::holds_alternative<core::event::SessionAdded>(event) ||
         std::holds_alternative<core::event::SessionGone>(event) ||
         std::holds_alternative<core::event::LimitSet>(event);
}

}  // namespace

Bytes BudgetOf(const GpuInfo& gpu, Bytes foreign) {
  const Bytes kept = Bytes(gpu.context.count * gpu.reserved_contexts) + gpu.chunk + foreign;
  return SaturatingSubtract(gpu.card, kept);
}

Service::Service(ServiceConfig config, std::unique_ptr<PageMaker> pages)
    : config_(std::move(config)),
      pages_(std::move(pages)),
      host_(config_.host_memory, config_.available_host_memory, config_.host_memory_measured),
      leases_(config_.keep_leases, config_.kept_leases) {
  host_.AllowSpilling(config_.spill.limit, config_.spill.available);
  if (config_.shares_host_memory) host_.ShareAmongUsers();
  if (config_.saved != nullptr) last_session_ = config_.saved->last_session().load();
  for (const GpuInfo& gpu : config_.gpus) {
    gpus_.push_back(std::make_unique<Gpu>(gpu, ConfigOf(gpu, config_, &host_)));
    if (gpu.foreign > Bytes()) settles_at_ = config_.started + kSettling;
  }
  now_ = config_.started;
  RecordStart();
  for (const auto& gpu : gpus_) {
    if (config_.chaos_seed.has_value()) StartChaos(*gpu);
  }
  TakeKeptLeases();
  RestoreSessions();
  MeasureWithin(Duration());
}

Service::~Service() = default;

void Service::OnConnected(ConnectionId connection, const Client& client) {
  auto made = std::make_unique<Connection>();
  made->id = connection;
  made->client = client;
  connections_[connection] = std::move(made);
}

std::vector<Outgoing> Service::OnMessage(ConnectionId connection, const wire::Message& message,
                                         Instant now, UniqueFd memory) {
  now_ = now;
  if (settles_at_.has_value() && *settles_at_ <= now) EndSettling();
  const auto at = connections_.find(connection);
  if (at == connections_.end()) return std::move(out_);
  Connection& from = *at->second;
  Take(from, message, memory);
  LetGo(std::move(memory), from.client.uid);
  if (MayEndSettling()) EndSettling();
  return std::move(out_);
}

// What it has no use for stays in `memory`.
void Service::Take(Connection& from, const wire::Message& message, UniqueFd& memory) {
  if (!from.awaits_measurement && NeedsMeasurement(from, message)) AwaitMeasurement(from);
  if (MustWait(from, message)) {
    const size_t most = from.seat != nullptr ? kMaxHeld : kMaxHeldOfOthers;
    if (++from.held <= most) {
      held_.emplace_back(from.id, message);
      return;
    }
    if (from.seat == nullptr) {
      return Refuse(from.id, wire::RefusalCode::kTooMany, "too many messages at once", true);
    }
    EndSettling();  // a busy program is not kept any longer
  }
  memory_ = std::move(memory);
  Dispatch(from, message);
  memory = std::move(memory_);
  if (std::holds_alternative<wire::RunBegin>(message)) ReleaseHeld();
}

// Whether the message could be answered wrongly as long as sessions and runs may still come back.
bool Service::MustWait(const Connection& from, const wire::Message& message) const {
  if (from.held > 0 || from.awaits_file) return true;  // behind those
  if (from.awaits_measurement) return true;
  if (now_ < config_.started + kRunPatience && AwaitsItsRun(from, message)) return true;
  if (!settles_at_.has_value()) return false;
  if (std::holds_alternative<wire::Register>(message)) return !from.client.predates_daemon;
  const auto* begin = std::get_if<wire::RunBegin>(&message);
  if (begin != nullptr) return begin->run == 0;
  if (std::holds_alternative<wire::Control>(message)) return true;
  if (std::holds_alternative<wire::Fetch>(message)) return true;
  return from.seat != nullptr;
}

void Service::EndSettling() {
  settles_at_.reset();
  if (config_.host_memory_measured) host_.Raise(host_.promised() - host_.spilled());
  for (const auto& gpu : gpus_) UpdatePages(*gpu);
  ReleaseHeld();
}

void Service::ReleaseHeld() {
  if (held_.empty()) return;
  for (const auto& [id, connection] : connections_) connection->held = 0;
  for (auto& [id, message] : std::exchange(held_, {})) {
    const auto at = connections_.find(id);
    if (at == connections_.end()) continue;
    if (MustWait(*at->second, message)) {
      ++at->second->held;
      held_.emplace_back(id, std::move(message));
    } else {
      Dispatch(*at->second, message);
    }
  }
}

void Service::Dispatch(Connection& from, const wire::Message& message) {
  std::visit(
      [&](const auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (requires { ToEvent(core::SessionId(), m); }) {
          HandleSession(from, m);
        } else if constexpr (requires { Handle(from, m); }) {
          Handle(from, m);
        } else {
          Refuse(from.id, wire::RefusalCode::kProtocol,
                 "a message of type " + std::to_string(M::kType) + " is the daemon's to send",
                 true);
        }
      },
      message);
}

std::vector<Outgoing> Service::OnBroken(ConnectionId connection, const Error& error) {
  const bool version = error.code == ErrorCode::kVersion;
  Refuse(connection, version ? wire::RefusalCode::kVersion : wire::RefusalCode::kProtocol,
         "tandemd " + config_.version + ": " + error.message, true);
  return std::move(out_);
}

std::vector<Outgoing> Service::OnDisconnected(ConnectionId connection, Instant now) {
  now_ = now;
  const auto at = connections_.find(connection);
  if (at == connections_.end()) return {};
  Connection& gone = *at->second;
  std::erase_if(held_, [&](const auto& entry) { return entry.first == connection; });
  if (gone.seat != nullptr) gone.seat->connection = 0;
  if (gone.run.has_value()) {
    Run& run = runs_.at(*gone.run);
    run.owner = 0;
    if (run.sessions == 0 && !run.open()) runs_.erase(*gone.run);
  }
  watchers_.erase(connection);
  told_.erase(connection);
  const int pid = gone.client.pid;
  const bool has_file = gone.awaits_file || gone.spill_file.has_value();
  if (has_file) LetGo(std::move(gone.spill_file).value_or(UniqueFd()), gone.client.uid);
  connections_.erase(at);
  if (has_file) EndSpillFiles(pid);
  return std::move(out_);
}

std::vector<Outgoing> Service::OnProcessGone(int pid, Instant now) {
  now_ = now;
  std::vector<core::SessionId> gone;
  for (const auto& [id, seat] : sessions_) {
    if (seat->client.pid == pid) gone.push_back(id);
  }
  for (const core::SessionId id : gone) Remove(id, true);
  if (!gone.empty()) EndSpillFiles(pid);
  if (MayEndSettling()) EndSettling();
  return std::move(out_);
}

std::vector<Outgoing> Service::OnTick(Instant now) {
  now_ = now;
  if (settles_at_.has_value() && *settles_at_ <= now) EndSettling();
  if (now >= config_.started + kRunPatience) ReleaseHeld();
  const auto& awaited = awaits_measurement_since_;
  if (awaited.has_value() && now >= *awaited + kMeasurementPatience) EndAwaitingMeasurement();
  for (const auto& gpu : gpus_) {
    if (gpu->wake.has_value() && *gpu->wake <= now) Feed(*gpu, core::event::Tick{});
    if (!gpu->chaos.has_value() || settles_at_.has_value()) continue;
    for (const core::Event& event : gpu->chaos->OnTime(gpu->arbiter, now)) Feed(*gpu, event);
  }
  if (waits_at_.has_value() && *waits_at_ <= now) TellWaits();
  if (usage_at_.has_value() && *usage_at_ <= now) RecordUsages();
  if (leases_at_.has_value() && *leases_at_ <= now) EndLeasesOfGoneJobs();
  if (refusals_at_.has_value() && *refusals_at_ <= now) RefuseCallsThatWait();
  if (moves_at_.has_value() && *moves_at_ <= now) EndLateMoves();
  return std::move(out_);
}

std::optional<Instant> Service::wake() const {
  std::optional<Instant> first = settles_at_;
  if (!first.has_value() && !held_.empty()) first = config_.started + kRunPatience;
  if (waits_at_.has_value()) first = std::min(first.value_or(*waits_at_), *waits_at_);
  if (usage_at_.has_value()) first = std::min(first.value_or(*usage_at_), *usage_at_);
  if (leases_at_.has_value()) first = std::min(first.value_or(*leases_at_), *leases_at_);
  if (refusals_at_.has_value()) first = std::min(first.value_or(*refusals_at_), *refusals_at_);
  if (moves_at_.has_value()) first = std::min(first.value_or(*moves_at_), *moves_at_);
  if (awaits_measurement_since_.has_value()) {
    const Instant until = *awaits_measurement_since_ + kMeasurementPatience;
    first = std::min(first.value_or(until), until);
  }
  if (measure_at_.has_value()) first = std::min(first.value_or(*measure_at_), *measure_at_);
  for (const auto& gpu : gpus_) {
    if (gpu->wake.has_value()) first = std::min(first.value_or(*gpu->wake), *gpu->wake);
    if (!gpu->chaos.has_value() || settles_at_.has_value()) continue;
    const std::optional<Instant> visit = gpu->chaos->wake();
    if (visit.has_value()) first = std::min(first.value_or(*visit), *visit);
  }
  return first;
}

bool Service::HasSessions(int pid) const {
  return std::any_of(sessions_.begin(), sessions_.end(),
                     [&](const auto& entry) { return entry.second->client.pid == pid; });
}

bool Service::registered(ConnectionId connection) const {
  const auto at = connections_.find(connection);
  return at != connections_.end() && at->second->role != Connection::Role::kNew;
}

// ---- Messages

template <typename M>
void Service::HandleSession(Connection& from, const M& m) {
  if (from.seat == nullptr) {
    return Refuse(from.id, wire::RefusalCode::kProtocol,
                  "a message of type " + std::to_string(M::kType) + " needs a session", true);
  }
  Gpu& gpu = *from.seat->gpu;
  if constexpr (std::is_same_v<M, wire::Ready>) {
    // What it has neither been granted nor declared it does not need; it may have freed some since.
    const Seat& seat = *from.seat;
    const Bytes granted = gpu.arbiter.limits().allocated(seat.id);
    const Bytes most = std::max(granted, std::min(seat.declared_memory, MostNeeded(seat)));
    const bool possible = Bytes(m.need_bytes) <= gpu.arbiter.budget().total();
    if (possible && Bytes(m.need_bytes) > most) {
      return Feed(gpu, core::event::Ready{seat.id, most});
    }
  }
  if constexpr (std::is_same_v<M, wire::Evicted>) {
    from.seat->out += Bytes(m.copied_bytes);
    const Bytes swapped(from.seat->pages->reports().swapped_bytes.load());
    return Feed(gpu, core::event::Evicted{from.seat->id, Bytes(m.resident_bytes),
                                          Bytes(m.copied_bytes), swapped, Bytes(m.to_file_bytes)});
  }
  if constexpr (std::is_same_v<M, wire::Running>) from.seat->in += Bytes(m.bytes_in);
  Feed(gpu, ToEvent(from.seat->id, m));
}

// With what it has allocated, the most that its run's limit and the card let it have.
Bytes Service::MostNeeded(const Seat& seat) const {
  const core::Arbiter& arbiter = seat.gpu->arbiter;
  const core::RunLimits& limits = arbiter.limits();
  const Bytes room = SaturatingSubtract(limits.limit(seat.id), limits.run_used(seat.id));
  const Bytes allocated = limits.allocated(seat.id);
  const Bytes most = arbiter.MostNeeded(arbiter.sessions().at(seat.id));
  return std::max(allocated, std::min(allocated + room, most));
}

core::Class Service::ClassOf(const Seat& seat) const {
  if (seat.declared_class.has_value()) return *seat.declared_class;
  return seat.run.has_value() ? runs_.at(*seat.run).of_class : core::Class::kInteractive;
}

void Service::Handle(Connection& from, const wire::Declare& m) {
  if (from.seat == nullptr) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "Declare needs a session", true);
  }
  static_assert(std::size(wire::kClassNames) == core::kClasses);
  Seat& seat = *from.seat;
  const auto of_class = static_cast<core::Class>(m.of_class);
  const bool allowed = of_class != core::Class::kProduction || MayRule(from);
  seat.declared_class.reset();
  if (m.of_class < core::kClasses && allowed) seat.declared_class = of_class;
  seat.declared_memory = Bytes(m.memory_bytes);
  const auto burst = static_cast<int64_t>(std::min(m.burst_us, kLongestBurst));
  Feed(*seat.gpu, core::event::ClassSet{seat.id, ClassOf(seat)});
  Feed(*seat.gpu, core::event::Declared{seat.id, Microseconds(burst)});
}

// ---- Around the arbiters

void Service::Feed(Gpu& gpu, const core::Event& event) {
  gpu.wake.reset();
  RecordEvent(gpu, event);
  std::vector<core::Event> answers;  // of the session that no program has
  for (const core::Action& action : gpu.arbiter.On(event, now_)) {
    RecordAction(gpu, action);
    std::visit([&](const auto& what) { Apply(gpu, what); }, action);
    if (!gpu.chaos.has_value()) continue;
    for (core::Event& answer : gpu.chaos->OnAction(action, now_)) answers.push_back(answer);
  }
  RecordEviction(gpu, event);
  if (ChangesRuns(event)) ++runs_revision_;
  UpdatePages(gpu);
  EndWaits();
  ExpectWaits(gpu);
  MeasureWhileWaiting(gpu);
  if (gpu.chaos.has_value()) gpu.chaos->OnChange(gpu.arbiter, now_);
  for (const core::Event& answer : answers) Feed(gpu, answer);
}

void Service::StartChaos(Gpu& gpu) {
  core::event::SessionAdded arrival;
  arrival.id = NextSession();
  arrival.run = core::RunId{++last_run_};
  arrival.limit = gpu.info.card;
  const uint64_t seed = *config_.chaos_seed + static_cast<uint64_t>(gpu.info.index);
  gpu.chaos.emplace(arrival, seed, config_.started);
  Feed(gpu, arrival);
}

void Service::Refuse(ConnectionId to, wire::RefusalCode code, std::string reason, bool close) {
  if (to == 0) return;
  out_.push_back(
      Outgoing{to,
               wire::Refused{wire::kVersion, static_cast<uint16_t>(code), std::move(reason)},
               {},
               close});
}

void Service::SendTo(core::SessionId session, wire::Message message) {
  const auto at = sessions_.find(session);
  if (at == sessions_.end() || at->second->connection == 0) return;
  out_.push_back(Outgoing{at->second->connection, std::move(message), {}, false});
}

void Service::Remove(core::SessionId session, bool tell_arbiter) {
  const std::unique_ptr<Seat> seat = std::move(sessions_.at(session));
  RecordUsage(*seat, SurroundingsOf(*seat->gpu), true);
  if (tell_arbiter) NoteOf(seat->client.uid, Describe(*seat) + " has ended");
  sessions_.erase(session);
  if (seat->saved != nullptr) seat->saved->id = 0;
  DropOffers(session);
  const auto connection = connections_.find(seat->connection);
  if (connection != connections_.end()) connection->second->seat = nullptr;
  if (seat->run.has_value()) {
    Run& run = runs_.at(*seat->run);
    if (--run.sessions == 0) run.unused_since = now_;
    if (run.sessions == 0 && !run.open()) runs_.erase(*seat->run);
  }
  EndMove(*seat);
  if (!tell_arbiter) return;
  Feed(*seat->gpu, core::event::SessionGone{session});
  MeasureAfterAnEnd();
}

core::SessionId Service::NextSession() {
  ++last_session_;
  if (config_.saved != nullptr) config_.saved->last_session() = last_session_;
  return core::SessionId{last_session_};
}

Service::Gpu* Service::FindGpu(const std::string& uuid) {
  const auto at = std::find_if(gpus_.begin(), gpus_.end(),
                               [&](const auto& gpu) { return gpu->info.uuid == uuid; });
  return at == gpus_.end() ? nullptr : at->get();
}

// A number may have become another user's process's since the client connected.
Service::Seat* Service::FindSeat(const Client& client, const Gpu& gpu) {
  for (const auto& [id, seat] : sessions_) {
    const Client& theirs = seat->client;
    if (theirs.pid == client.pid && theirs.uid == client.uid && seat->gpu == &gpu) {
      return seat.get();
    }
  }
  return nullptr;
}

size_t Service::SessionsOf(unsigned uid) const {
  return static_cast<size_t>(
      std::count_if(sessions_.begin(), sessions_.end(),
                    [&](const auto& entry) { return entry.second->client.uid == uid; }));
}

}  // namespace tandem::service
