#include "src/daemon/server.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "src/daemon/closing.h"
#include "src/daemon/process.h"

namespace tandem::daemon {
namespace {

// What epoll says became ready: a kind in the top byte, a number in the rest.
enum Tag : uint64_t { kListener, kSignals, kTimer, kClient, kProcess, kMeter, kSpill };
constexpr int kTagShift = 56;
constexpr int kMaxAcceptedAtOnce = 64;  // then others have their turn
// Of one round: more than one user may have connections, so that others are among them.
constexpr size_t kMaxEvents = 2048;
// That a connection may leave unread, whatever its user's others do: a program is slow now and
// then.
constexpr size_t kUsualUnread = 4096;

uint64_t MakeTag(Tag tag, uint64_t number = 0) {
  return (static_cast<uint64_t>(tag) << kTagShift) | number;
}

// The process at the other end. From the socket itself where the kernel can (6.5): the number alone
// may be another process's by now. Nothing where it is another user's.
UniqueFd PeerProcess(int socket, int pid, unsigned uid) {
  constexpr int kPeerPidFd = 77;  // SO_PEERPIDFD
  int fd = -1;
  socklen_t length = sizeof(fd);
  if (getsockopt(socket, SOL_SOCKET, kPeerPidFd, &fd, &length) == 0) return UniqueFd(fd);
  UniqueFd process = OpenProcess(pid);
  return MayBelongTo(pid, uid) ? std::move(process) : UniqueFd();
}

// A descriptor to give up when there are no others.
UniqueFd OpenSpare() {
  return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

ucred PeerOf(int socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return {};
  return credentials;
}

}  // namespace

Server::Server(Listener listener, UniqueFd signals, std::unique_ptr<service::Service> service,
               const ServerLimits& limits)
    : listener_(std::move(listener)),
      signals_(std::move(signals)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      spare_(OpenSpare()),
      service_(std::move(service)),
      limits_(limits),
      started_ticks_(TicksNow()) {}

Result<std::unique_ptr<Server>> Server::Make(Listener listener, UniqueFd signals,
                                             std::unique_ptr<service::Service> service,
                                             const ServerLimits& limits,
                                             std::map<int, UniqueFd>&& processes,
                                             std::unique_ptr<Meter> meter,
                                             std::unique_ptr<SpillStore> spill) {
  std::unique_ptr<Server> server(
      new Server(std::move(listener), std::move(signals), std::move(service), limits));
  TRY(server->Watch(server->listener_.fd(), MakeTag(kListener), EPOLLIN));
  TRY(server->Watch(server->timer_.get(), MakeTag(kTimer), EPOLLIN));
  if (server->signals_) TRY(server->Watch(server->signals_.get(), MakeTag(kSignals), EPOLLIN));
  server->meter_ = std::move(meter);
  server->spill_ = std::move(spill);
  for (auto& [pid, process] : processes) {
    TRY(server->Watch(process.get(), MakeTag(kProcess, static_cast<uint64_t>(pid)), EPOLLIN));
    server->processes_[pid] = std::move(process);
  }
  server->OnTime();  // idle from the beginning
  server->SetTimer();
  return server;
}

Status Server::Watch(int fd, uint64_t tag, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return Error{ErrorCode::kFailed, std::string("epoll: ") + std::strerror(errno)};
}

void Server::Run() {
  while (!finished_) RunOnce(Seconds(3600));
  service_->OnEnding(MonotonicNow());
}

void Server::RunOnce(Duration patience) {
  std::array<epoll_event, kMaxEvents> events;
  spent_.clear();
  const int timeout = static_cast<int>((patience.ns + 999999) / 1000000);
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
  const auto ready = static_cast<size_t>(std::max(count, 0));
  ++rounds_;
  for (size_t i = 0; i < ready; ++i) {
    // Another one first each time: a user's share may not be enough for all of his.
    const epoll_event& event = events[(i + rounds_) % ready];
    const uint64_t tag = event.data.u64;
    const uint64_t number = tag & ((uint64_t{1} << kTagShift) - 1);
    switch (static_cast<Tag>(tag >> kTagShift)) {
      case kListener:
        Accept();
        break;
      case kSignals: {
        signalfd_siginfo info;
        if (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
          OnSignal(static_cast<int>(info.ssi_signo));
        }
        break;
      }
      case kTimer: {
        uint64_t expirations;
        [[maybe_unused]] const ssize_t n = read(timer_.get(), &expirations, sizeof(expirations));
        break;  // OnTime comes after every round
      }
      case kClient:
        if ((event.events & EPOLLOUT) != 0) Flush(number);
        OnReadable(number);
        break;
      case kProcess:
        OnProcessEnd(static_cast<int>(number));
        break;
      case kMeter:
        OnMeasured();
        break;
      case kSpill:
        OnSpill(spill_->Take(MonotonicNow()));
        break;
    }
  }
  OnTime();
  SetTimer();
}

void Server::SetHooks(ServerHooks hooks) {
  hooks_ = std::move(hooks);
  beats_at_ = MonotonicNow();
  SetTimer();
}

void Server::OnSignal(int signal) {
  if (signal == SIGHUP) {
    if (hooks_.on_hangup) hooks_.on_hangup();
    return;
  }
  spdlog::info("ending: {}", strsignal(signal));
  finished_ = true;
}

// ---- Clients

// Out of descriptors: a new connection is accepted and closed. Left waiting, it would wake the loop
// again and again.
bool Server::TurnAway() {
  spare_.Reset();
  UniqueFd knocks(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool somebody = static_cast<bool>(knocks);
  const unsigned uid = somebody ? PeerOf(knocks.get()).uid : 0;
  CloseSocket(std::move(knocks), uid);
  spare_ = OpenSpare();
  return somebody;
}

void Server::Accept() {
  for (int i = 0; i < kMaxAcceptedAtOnce; ++i) {
    UniqueFd socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      const bool full = errno == EMFILE || errno == ENFILE;
      if (full && TurnAway()) continue;
      return;
    }
    LetIn(std::move(socket));
  }
}

void Server::LetIn(UniqueFd socket) {
  const ucred peer = PeerOf(socket.get());
  // One of another pid namespace has no number here: its end could not be told from others'.
  const bool welcome = peer.pid > 0 && HasRoomFor(peer.uid);
  UniqueFd process = welcome ? PeerProcess(socket.get(), peer.pid, peer.uid) : UniqueFd();
  const ConnectionId id = ++last_connection_;
  if (!process || !Watch(socket.get(), MakeTag(kClient, id), EPOLLIN | EPOLLRDHUP).ok()) {
    return CloseSocket(std::move(socket), peer.uid);
  }
  KeepUrgentInLine(socket.get());
  // A new process may bear the number of one whose end we have not yet looked at.
  const auto namesake = processes_.find(peer.pid);
  if (namesake != processes_.end() && HasEnded(namesake->second)) OnProcessEnd(peer.pid);
  MakeRoomForNewcomer();
  const uint64_t started = StartTicks(peer.pid);
  clients_.try_emplace(id, std::move(socket), std::move(process), peer.pid, peer.uid,
                       service_->serves_software_gpu(), MonotonicNow() + limits_.newcomer_patience);
  service_->OnConnected(
      id, service::Client{peer.pid, peer.uid, started != 0 && started <= started_ticks_, started,
                          peer.gid});
}

bool Server::HasRoomFor(unsigned uid) const {
  const auto theirs = std::count_if(clients_.begin(), clients_.end(),
                                    [&](const auto& entry) { return entry.second.uid == uid; });
  return clients_.size() < limits_.max_connections &&
         static_cast<size_t>(theirs) < limits_.max_connections_per_user;
}

void Server::MakeRoomForNewcomer() {
  struct Newcomers {
    size_t count = 0;
    ConnectionId oldest = 0;
  };
  std::map<unsigned, Newcomers> of_user;
  size_t all = 0;
  for (const auto& [id, client] : clients_) {
    if (service_->registered(id)) continue;
    Newcomers& theirs = of_user[client.uid];
    if (theirs.count++ == 0) theirs.oldest = id;
    ++all;
  }
  if (all < limits_.max_newcomers) return;
  const auto most = std::max_element(
      of_user.begin(), of_user.end(),
      [](const auto& a, const auto& b) { return a.second.count < b.second.count; });
  Drop(most->second.oldest, "too many connections have not said what they are");
}

void Server::OnReadable(ConnectionId id) {
  for (;;) {
    // What one message causes may drop this client or any other.
    const auto at = clients_.find(id);
    if (at == clients_.end() || at->second.closing) return;
    Duration& spent = spent_[at->second.uid];
    if (spent >= kShareOfRound) return;  // its socket stays readable
    const Instant began = MonotonicNow();
    const Result<wire::Message> message = at->second.connection.Receive();
    if (message.ok() && std::holds_alternative<wire::Register>(*message) &&
        at->second.connection.sender() != at->second.pid) {
      // A socket that was passed on would show one process, and be another's.
      Carry(service_->OnBroken(
          id, Error{ErrorCode::kInvalid, "only the process that connected can register"}));
    } else if (message.ok()) {
      Carry(service_->OnMessage(id, *message, began, at->second.connection.TakeMemory()));
    } else if (message.error().code == ErrorCode::kUnavailable) {
      Drop(id, message.error().message);
    } else if (message.error().code != ErrorCode::kNotFound) {
      Carry(service_->OnBroken(id, message.error()));
    }
    spent = spent + (MonotonicNow() - began);
    if (!message.ok()) return;
  }
}

// Whether what waits for clients of the user to read it leaves room for one more answer.
bool Server::ReadsAnswers(unsigned uid) const {
  size_t unread = 0;
  for (const auto& [id, client] : clients_) {
    if (client.uid == uid) unread += client.connection.queued();
  }
  return unread < limits_.max_unread_per_user;
}

void Server::Carry(std::vector<service::Outgoing> messages) {
  // First: sending may find a client gone, and the process of one that has got a session, which is
  // always told, must be seen to end.
  for (const service::Outgoing& outgoing : messages) WatchProcess(outgoing.to);
  for (service::Outgoing& outgoing : messages) {
    if (outgoing.end_process != 0) End(outgoing.end_process);
    const auto at = clients_.find(outgoing.to);
    if (at == clients_.end() || at->second.closing) continue;
    if (const auto* refused =
            outgoing.message ? std::get_if<wire::Refused>(&*outgoing.message) : nullptr) {
      const bool logged = log_rate_.Take(at->second.uid, MonotonicNow()).has_value();
      if (logged) spdlog::warn("process {} refused: {}", at->second.pid, refused->reason);
    }
    const bool answer = outgoing.message && std::holds_alternative<wire::Answer>(*outgoing.message);
    const bool lags = at->second.connection.queued() > kUsualUnread;
    if ((answer || lags) && !ReadsAnswers(at->second.uid)) {
      Drop(outgoing.to, "its user does not read what is answered");
      continue;
    }
    Status queued;
    if (outgoing.message) {
      queued =
          at->second.connection.Queue(*outgoing.message, outgoing.fds, std::move(outgoing.memory));
    }
    at->second.closing = outgoing.close;
    if (queued.ok()) {
      Flush(outgoing.to);
    } else {
      Drop(outgoing.to, queued.error().message);
    }
  }
  for (service::Outgoing& unsent : messages) CloseElsewhere(std::move(unsent.memory), geteuid());
}

void Server::Flush(ConnectionId id) {
  const auto at = clients_.find(id);
  if (at == clients_.end()) return;
  Client& client = at->second;
  const Status sent = client.connection.Flush();
  // A farewell that the socket does not take at once is not waited for.
  if (!sent.ok() || client.closing) return Drop(id, sent.ok() ? "" : sent.error().message);
  const bool waits = !client.connection.drained();
  if (waits == client.waits_for_room) return;
  client.waits_for_room = waits;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | (waits ? EPOLLOUT : 0u);
  event.data.u64 = MakeTag(kClient, id);
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.connection.fd(), &event);
}

void Server::Drop(ConnectionId id, const std::string& why) {
  const auto at = clients_.find(id);
  if (at == clients_.end()) return;
  if (!why.empty()) spdlog::debug("process {}: {}", at->second.pid, why);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, at->second.connection.fd(), nullptr);  // it may stay open
  clients_.erase(at);
  Carry(service_->OnDisconnected(id, MonotonicNow()));
}

// ---- Processes and time

void Server::WatchProcess(ConnectionId id) {
  const auto at = clients_.find(id);
  if (at == clients_.end() || !at->second.process) return;
  const int pid = at->second.pid;
  if (!service_->HasSessions(pid)) return;
  UniqueFd& process = at->second.process;
  if (processes_.count(pid) != 0) return process.Reset();
  const Status watched =
      Watch(process.get(), MakeTag(kProcess, static_cast<uint64_t>(pid)), EPOLLIN);
  if (!watched.ok()) {  // tried again with its next message
    spdlog::error("process {} cannot be watched: {}", pid, watched.error().message);
    return;
  }
  processes_[pid] = std::move(process);
}

void Server::End(int pid) {
  const auto process = processes_.find(pid);
  if (process == processes_.end() || Kill(process->second)) return;
  spdlog::error("process {} cannot be ended: {}", pid, std::strerror(errno));
}

void Server::OnProcessEnd(int pid) {
  if (processes_.erase(pid) == 0) return;
  Carry(service_->OnProcessGone(pid, MonotonicNow()));
}

void Server::OnTime() {
  const Instant now = MonotonicNow();
  if (service_->wake().has_value() && *service_->wake() <= now) {
    Carry(service_->OnTick(now));
  }
  Measure(now);
  if (hooks_.beat_every.has_value() && now >= beats_at_) {
    hooks_.beat();
    beats_at_ = now + *hooks_.beat_every;
  }
  if (spill_ != nullptr) OnSpill(spill_->OnTime(now));
  DropLateNewcomers();
  if (!service_->idle()) {
    idle_since_.reset();
  } else if (!idle_since_.has_value()) {
    idle_since_ = now;
  } else if (limits_.exit_when_idle && now - *idle_since_ >= *limits_.exit_when_idle) {
    spdlog::info("ending: no sessions, runs or connections");
    finished_ = true;
  }
}

void Server::Measure(Instant now) {
  if (meter_ == nullptr) return;
  meter_->OnTime(now);
  if (!service_->WantsMeasurement(now)) return;
  service_->OnMeasuring(now);
  const int before = meter_->fd();
  meter_->Ask(now);
  if (meter_->fd() == before || meter_->fd() < 0) return;
  const Status watched = Watch(meter_->fd(), MakeTag(kMeter), EPOLLIN);
  if (!watched.ok()) spdlog::debug("measuring: {}", watched.error().message);
}

void Server::OnMeasured() {
  const Instant now = MonotonicNow();
  const std::optional<service::CardUses> uses = meter_->Take(now);
  if (uses.has_value()) Carry(service_->OnMeasured(*uses, now));
}

void Server::OnSpill(SpillStore::News news) {
  const Instant now = MonotonicNow();
  WatchSpill();
  for (SpillStore::File& each : news.files) {
    Carry(service_->OnSpillFile(each.request, std::move(each.file), now));
  }
  if (!news.sizes.has_value()) return;
  for (const auto& offender : service_->OnSpillSizes(*news.sizes, now)) EndProcess(offender);
}

void Server::WatchSpill() {
  if (!spill_->TakeStarted() || spill_->fd() < 0) return;
  const Status watched = Watch(spill_->fd(), MakeTag(kSpill), EPOLLIN);
  if (!watched.ok()) spdlog::error("spill files: {}", watched.error().message);
}

// Its file holds nothing from then on, whether it can be killed or not.
void Server::EndProcess(const service::Offender& offender) {
  const auto process = processes_.find(offender.pid);
  const bool killed = process != processes_.end() && Kill(process->second);
  spdlog::warn("{}: {}", offender.reason,
               killed ? "it is ended" : "it cannot be killed, and loses the file");
  if (!killed) spill_->End(offender.pid, MonotonicNow());
}

void Server::DropLateNewcomers() {
  std::vector<ConnectionId> late;
  const Instant now = MonotonicNow();
  for (const auto& [id, client] : clients_) {
    if (client.deadline <= now && !service_->registered(id)) late.push_back(id);
  }
  for (const ConnectionId id : late) Drop(id, "it has not said what it is");
}

void Server::SetTimer() {
  std::optional<Instant> next = service_->wake();
  const auto by = [&](Instant at) { next = std::min(next.value_or(at), at); };
  for (const auto& [id, client] : clients_) {
    if (!service_->registered(id)) by(client.deadline);
  }
  if (hooks_.beat_every.has_value()) by(beats_at_);
  if (meter_ != nullptr && meter_->wake().has_value()) by(*meter_->wake());
  if (spill_ != nullptr && spill_->wake().has_value()) by(*spill_->wake());
  if (idle_since_ && limits_.exit_when_idle) by(*idle_since_ + *limits_.exit_when_idle);
  itimerspec spec{};
  if (next.has_value()) {
    const int64_t at = std::max<int64_t>(next->ns, 1);  // zero would switch it off
    spec.it_value.tv_sec = at / 1000000000;
    spec.it_value.tv_nsec = at % 1000000000;
  }
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

}  // namespace tandem::daemon
