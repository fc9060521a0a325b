#include "src/shim/link/daemon_link.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "src/shim/driver/address_regions.h"
#include "src/shim/link/room_wait.h"
#include "src/shim/os/log.h"
#include "src/wire/open_runs.h"
#include "src/wire/runtime_dir.h"

namespace tandem::shim {
namespace {

constexpr Duration kRegistrationPatience = Seconds(5);
constexpr Duration kRoomPause = Milliseconds(250);
constexpr Duration kNextWord = Seconds(60);  // of the same kind about room

template <typename Page>
Page* MapPage(int fd, int protection, uint64_t magic) {
  void* const page = mmap(nullptr, wire::kPageBytes, protection, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return nullptr;
  madvise(page, wire::kPageBytes, MADV_DONTFORK);
  if (static_cast<Page*>(page)->magic == magic) return static_cast<Page*>(page);
  munmap(page, wire::kPageBytes);
  return nullptr;
}

// A registration that the daemon refuses. Any program may use a device that is not shared.
Error RefusalError(const wire::Refused& refused) {
  const auto is = [&](wire::RefusalCode code) {
    return refused.code == static_cast<uint16_t>(code);
  };
  const ErrorCode code = is(wire::RefusalCode::kUnknownDevice) ? ErrorCode::kUnsupported
                         : is(wire::RefusalCode::kNotYours)    ? ErrorCode::kForbidden
                                                               : ErrorCode::kRefused;
  return Error{code, refused.reason};
}

}  // namespace

Status DaemonLink::MapPages() {
  std::vector<UniqueFd> fds = channel_.TakeFds();
  if (fds.size() < 2) return Error{ErrorCode::kInvalid, "the daemon sent no pages"};
  const auto* decisions =
      MapPage<wire::DecisionsPage>(fds[0].get(), PROT_READ, wire::kDecisionsMagic);
  auto* reports =
      MapPage<wire::ReportsPage>(fds[1].get(), PROT_READ | PROT_WRITE, wire::kReportsMagic);
  if (decisions == nullptr || reports == nullptr) {
    return Error{ErrorCode::kInvalid, "the daemon's pages cannot be mapped"};
  }
  if (fds.size() > 2) spill_file_ = OwnFd(AboveStandardStreams(std::move(fds[2])));
  decisions_.store(decisions, std::memory_order_release);
  reports_.store(reports, std::memory_order_release);
  return {};
}

Result<Terms> DaemonLink::Register(Bytes resident) {
  {
    MutexLock lock(mutex_);
    registering_ = true;
  }
  Result<Terms> terms = TryToRegister(resident);
  MutexLock lock(mutex_);
  registering_ = false;
  answered_.NotifyAll();
  return terms;
}

Result<Terms> DaemonLink::TryToRegister(Bytes resident) {
  ASSIGN_OR_RETURN(wire::Channel channel, wire::ConnectDaemon(wire::SocketPath()));
  uint32_t contexts = 0;
  Bytes allocated, fixed;
  std::string moved_from;
  {
    MutexLock lock(mutex_);
    moved_from = moved_from_;
    contexts = requests_.contexts();
    allocated = requests_.claim();
    fixed = requests_.fixed();
  }
  const uint8_t can = identity_.can_oversubscribe ? wire::Register::kCan : 0;
  TRY(channel.Send(wire::Register{
      identity_.build, identity_.run, identity_.device, identity_.program, allocated.count,
      resident.count, contexts, static_cast<uint8_t>(suspended() ? 1 : 0), fixed.count,
      most_resident().has_value() ? wire::Register::kDoes : can, 1, moved_from}));
  ASSIGN_OR_RETURN(const wire::Message answer, channel.Receive(kRegistrationPatience));
  if (const auto* refused = std::get_if<wire::Refused>(&answer); refused != nullptr) {
    return RefusalError(*refused);
  }
  const auto* registered = std::get_if<wire::Registered>(&answer);
  if (registered == nullptr) {
    return Error{ErrorCode::kInvalid, "the daemon answered a registration with something else"};
  }
  {
    MutexLock lock(mutex_);
    channel_ = std::move(channel);
    channel_id_ = FileId::Of(channel_.fd());
  }
  if (Status mapped = MapPages(); !mapped.ok()) {
    MutexLock lock(mutex_);
    Disconnect();
    return Error(std::move(mapped).error());
  }
  MutexLock lock(mutex_);
  moved_from_.clear();
  limit_.store(registered->limit_bytes, std::memory_order_relaxed);
  lease_.OnRegistered(resident);
  requests_.OnRegistered(Bytes(registered->limit_bytes), allocated, contexts, fixed);
  Flush();
  return Terms{Bytes(registered->card_bytes), Bytes(registered->limit_bytes),
               Bytes(registered->chunk_bytes)};
}

void DaemonLink::Disconnect() {
  if (fd() < 0) channel_.Abandon();
  channel_.Close();
}

void DaemonLink::Lose() {
  MutexLock lock(mutex_);
  Disconnect();
  lease_.OnLost();
  requests_.OnLost(limit(), most_allocated(), has_siblings());
  answered_.NotifyAll();
}

Status DaemonLink::Receive() {
  for (;;) {
    if (fd() < 0) return Error{ErrorCode::kUnavailable, "the program has closed the connection"};
    Result<wire::Message> message = channel_.Receive(Duration());
    if (!message.ok()) {
      if (message.error().code == ErrorCode::kNotFound) return {};
      return Error(std::move(message).error());
    }
    MutexLock lock(mutex_);
    if (const auto* refused = std::get_if<wire::Refused>(&*message); refused != nullptr) {
      return Error{ErrorCode::kRefused, refused->reason};
    }
    if (std::holds_alternative<wire::EndProgram>(*message)) end_asked_.store(true);
    if (auto* move = std::get_if<wire::Move>(&*message)) move_asked_ = std::move(move->device);
    std::visit(
        [this](const auto& body) REQUIRES_LOCK(mutex_) {
          if constexpr (requires { lease_.OnMessage(body); }) {
            lease_.OnMessage(body);
          } else if constexpr (requires { requests_.OnMessage(body); }) {
            requests_.OnMessage(body);
            answered_.NotifyAll();
          }
        },
        *message);
    Flush();
  }
}

// Where a message is lost the two sides no longer agree: the connection ends, the agent's next
// Receive finds that out, and a new registration says how things are.
void DaemonLink::Flush() {
  own_used_.store(requests_.used().count, std::memory_order_relaxed);
  holds_.store(lease_.holds(), std::memory_order_release);
  if (!requests_.HasMessages() && !lease_.HasMessages()) return;
  bool sent = fd() >= 0;
  for (const wire::Message& message : requests_.TakeMessages()) {
    sent = sent && channel_.Send(message).ok();
  }
  for (const wire::Message& message : lease_.TakeMessages()) {
    sent = sent && channel_.Send(message).ok();
  }
  if (!sent && fd() >= 0) shutdown(fd(), SHUT_RDWR);
}

// Says once why memory is out where it is not the limit's doing.
void DaemonLink::TellHostFull() {
  const auto* page = decisions_.load(std::memory_order_acquire);
  if (page == nullptr || page->host_refusals.load(std::memory_order_relaxed) == 0) return;
  if (host_full_told_.exchange(true)) return;
  const Bytes most(page->host_limit_bytes.load(std::memory_order_relaxed));
  Log(LogLevel::kWarn,
      "host memory is full: programs may have at most %s of it for what does not fit on the card "
      "(tandemd --host-memory, and --spill), one user's less where users share it or where memory "
      "or disk are full already, and so this one is told that memory is out",
      FormatBytes(most).c_str());
}

// What the run has, with what its other processes have, would be above its limit. A run without one
// has the GPU's budget for a limit, and the shim cannot tell the two apart.
void DaemonLink::TellLimit(Bytes by) {
  if (used() + by <= limit() || limit_told_.exchange(true)) return;
  const char* const name = std::getenv("TANDEM_NAME");
  Log(LogLevel::kWarn,
      "this run may have %s of GPU memory: its limit, or without one what the GPU can share. %s "
      "are "
      "in use, and the program asked for %s more: it gets out-of-memory. `tandem limit %s --memory "
      "SIZE` changes a limit",
      FormatBytes(limit()).c_str(), FormatBytes(used()).c_str(), FormatBytes(by).c_str(),
      name != nullptr ? name : "ID");  // `tandem ps` has it
}

bool DaemonLink::Reserve(Bytes by) {
  MutexLock lock(mutex_);
  while ((requests_.growing() || registering_) && !retired_) answered_.Wait(mutex_);
  if (retired_) return requests_.total() + by <= limit();
  requests_.Grow(by);
  Flush();
  client::Answer answer;
  while ((answer = requests_.Poll()) == client::Answer::kPending && !retired_) {
    answered_.Wait(mutex_);
  }
  if (has_siblings()) requests_.ReturnAllUnused();  // what was freed meanwhile
  Flush();
  answered_.NotifyAll();  // who waits to ask
  own_used_.store(requests_.used().count, std::memory_order_relaxed);
  if (answer == client::Answer::kRefused) {
    TellLimit(by);
    TellHostFull();
  }
  return answer == client::Answer::kGranted;
}

void DaemonLink::Unreserve(Bytes by) {
  if (by == Bytes()) return;
  MutexLock lock(mutex_);
  requests_.Shrink(by);
  if (has_siblings()) requests_.ReturnAllUnused();
  Flush();
}

bool DaemonLink::ReturnUnusedReservation() {
  MutexLock lock(mutex_);
  requests_.ReturnUnused();
  Flush();
  return requests_.growing() || requests_.has_unused();
}

void DaemonLink::StayAway(bool absent) {
  MutexLock lock(mutex_);
  if (absent) {
    requests_.OnAbsent(identity_.run != 0 && wire::IsOpenRun(identity_.run));
  } else {
    requests_.OnTurnedAway();
  }
  answered_.NotifyAll();
}

// Several threads, or one that asks again and again, print the same line only from time to time.
// Without the lock: standard error may be slow.
void DaemonLink::TellOfRoom(const std::optional<std::string>& line, std::optional<Instant>* last) {
  const Instant now = MonotonicNow();
  if (!line.has_value() || (last->has_value() && now - **last < kNextWord)) return;
  *last = now;
  mutex_.Unlock();
  Log(LogLevel::kWarn, "%s", line->c_str());
  mutex_.Lock();
}

template <typename Poll>
bool DaemonLink::WaitForRoom(std::string what, bool smaller, Poll poll) {
  RoomWait wait(std::move(what), smaller, MonotonicNow());
  client::Answer answer;
  while ((answer = poll()) == client::Answer::kPending && !retired_) {
    const bool counts = requests_.registered() && !suspended();
    const auto line = wait.OnPending(MonotonicNow(), counts, fixed_wait());
    if (line.has_value()) {
      TellOfRoom(line, &room_waited_for_);  // meanwhile the answer may come
    } else if (wait.told()) {
      answered_.Wait(mutex_);
    } else {
      answered_.WaitFor(mutex_, kRoomPause);
    }
  }
  if (answer != client::Answer::kRefused) return true;
  TellOfRoom(wait.OnRefused(MonotonicNow()), &room_refused_);
  TellHostFull();
  return false;
}

bool DaemonLink::WaitForContext() {
  MutexLock lock(mutex_);
  const uint64_t ticket = requests_.WantContext();
  Flush();
  return WaitForRoom("one more context", false,
                     [&]() REQUIRES_LOCK(mutex_) { return requests_.PollContext(ticket); });
}

bool DaemonLink::WaitForFixed(Bytes bytes) {
  MutexLock lock(mutex_);
  const uint64_t ticket = requests_.WantFixed(bytes);
  Flush();
  const bool granted =
      WaitForRoom(FormatBytes(bytes) + " that cannot be swapped", true,
                  [&]() REQUIRES_LOCK(mutex_) { return requests_.PollFixed(ticket); });
  if (!granted) TellLimit(bytes);
  return granted;
}

uint64_t DaemonLink::AskForFixed(Bytes bytes) {
  MutexLock lock(mutex_);
  const uint64_t ticket = requests_.WantFixed(bytes);
  Flush();
  return ticket;
}

client::Answer DaemonLink::PollFixed(uint64_t ticket) {
  MutexLock lock(mutex_);
  return requests_.PollFixed(ticket);
}

void DaemonLink::FixedGone(Bytes bytes) {
  MutexLock lock(mutex_);
  requests_.FixedGone(bytes);
  Flush();
}

std::string DaemonLink::device() const {
  MutexLock lock(mutex_);
  return identity_.device;
}

std::optional<std::string> DaemonLink::TakeMove() {
  MutexLock lock(mutex_);
  return std::exchange(move_asked_, std::nullopt);
}

void DaemonLink::OnMoved(const std::string& device) {
  {
    MutexLock lock(mutex_);
    moved_from_ = std::exchange(identity_.device, device);
  }
  Lose();
}

void DaemonLink::OnNotMoved(const std::string& reason) {
  MutexLock lock(mutex_);
  if (fd() >= 0 && !channel_.Send(wire::NotMoved{reason}).ok()) shutdown(fd(), SHUT_RDWR);
}

void DaemonLink::Withdraw(const wire::Withdraw& offer) {
  MutexLock lock(mutex_);
  // One that is registered with later is not told of it in the first place.
  if (fd() >= 0 && !channel_.Send(offer).ok()) shutdown(fd(), SHUT_RDWR);
}

void DaemonLink::ContextGone() {
  MutexLock lock(mutex_);
  requests_.ContextGone();
  Flush();
}

bool DaemonLink::WaitsForContext() const {
  MutexLock lock(mutex_);
  return requests_.WaitsForContext();
}

bool DaemonLink::WaitsForRoom() const {
  MutexLock lock(mutex_);
  return requests_.WaitsForRoom();
}

void DaemonLink::Retire() {
  MutexLock lock(mutex_);
  retired_ = true;
  answered_.NotifyAll();
}

void DaemonLink::AbandonInChild() {
  if (fd() >= 0) close(fd());
  spill_file_ = OwnFd();
}

bool DaemonLink::watched() const {
  const auto* page = decisions_.load(std::memory_order_acquire);
  return page != nullptr && page->watched.load(std::memory_order_relaxed) != 0;
}

bool DaemonLink::contended() const {
  const auto* page = decisions_.load(std::memory_order_acquire);
  return page != nullptr && page->contended.load(std::memory_order_relaxed) != 0;
}

bool DaemonLink::suspended() const {
  const auto* page = decisions_.load(std::memory_order_acquire);
  return page != nullptr && page->suspended.load(std::memory_order_relaxed) != 0;
}

bool DaemonLink::refuses() const {
  const auto* page = decisions_.load(std::memory_order_acquire);
  return page != nullptr && page->refuses.load(std::memory_order_relaxed) != 0;
}

Duration DaemonLink::fixed_wait() const {
  const auto* page = decisions_.load(std::memory_order_acquire);
  if (page == nullptr) return {};
  return Milliseconds(static_cast<int64_t>(page->fixed_wait_ms.load(std::memory_order_relaxed)));
}

Bytes DaemonLink::most_needed() const {
  const auto* page = decisions_.load(std::memory_order_acquire);
  if (page == nullptr) return {};
  return Bytes(page->most_needed_bytes.load(std::memory_order_relaxed));
}

Bytes DaemonLink::most_allocated() const {
  const auto* page = decisions_.load(std::memory_order_acquire);
  const uint64_t most =
      page == nullptr ? 0 : page->most_allocated_bytes.load(std::memory_order_relaxed);
  return most != 0 ? Bytes(most) : limit();
}

std::optional<Bytes> DaemonLink::most_resident() const {
  const auto* page = decisions_.load(std::memory_order_acquire);
  if (page == nullptr) return std::nullopt;
  const uint64_t most = page->most_resident_bytes.load(std::memory_order_relaxed);
  return most != 0 ? std::optional(Bytes(most / kGranule * kGranule)) : std::nullopt;
}

bool DaemonLink::run_oversubscribes() const {
  const auto* page = decisions_.load(std::memory_order_acquire);
  return page != nullptr && page->run_oversubscribes.load(std::memory_order_relaxed) != 0;
}

Bytes DaemonLink::limit() const {
  const auto* page = decisions_.load(std::memory_order_acquire);
  const uint64_t shown = page == nullptr ? 0 : page->limit_bytes.load(std::memory_order_relaxed);
  return Bytes(shown != 0 ? shown : limit_.load(std::memory_order_relaxed));
}

HostShare DaemonLink::host_share() const {
  const auto* page = decisions_.load(std::memory_order_acquire);
  if (page == nullptr) return {};
  const Bytes all(page->host_share_bytes.load(std::memory_order_relaxed));
  const Bytes file(page->host_file_bytes.load(std::memory_order_relaxed));
  return {SaturatingSubtract(all, file), std::min(file, all)};
}

Bytes DaemonLink::others_used() const {
  const auto* page = decisions_.load(std::memory_order_acquire);
  if (page == nullptr) return {};
  return Bytes(page->run_others_used_bytes.load(std::memory_order_relaxed));
}

bool DaemonLink::has_siblings() const {
  const auto* page = decisions_.load(std::memory_order_acquire);
  return page != nullptr && (page->run_others.load(std::memory_order_relaxed) != 0 ||
                             page->run_others_used_bytes.load(std::memory_order_relaxed) != 0);
}

Bytes DaemonLink::used() const {
  return others_used() + Bytes(own_used_.load(std::memory_order_relaxed));
}

void DaemonLink::Publish(Bytes resident, Bytes swapped, Bytes exchanged) {
  wire::ReportsPage* const page = reports_.load(std::memory_order_acquire);
  if (page == nullptr) return;
  page->resident_bytes.store(resident.count, std::memory_order_relaxed);
  page->swapped_bytes.store(swapped.count, std::memory_order_relaxed);
  page->exchanged_bytes.store(exchanged.count, std::memory_order_relaxed);
}

}  // namespace tandem::shim
