#include "src/sim/program.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace tandem::sim {
namespace {

// Without work, before libtandem.so says that it is idle.
constexpr Duration kQuiet = Microseconds(200);

}  // namespace

// To be called later: while the process is stopped not before it goes on, in the order in which it
// would have been, and never once it is dead.
Timeline::Call Program::Mine(Timeline::Call call) {
  return [this, alive = alive_, call = std::move(call)] {
    if (!*alive) return;
    if (stopped_until_ > timeline_->now() || !held_.empty()) return held_.push_back(call);
    call();
  };
}

void Program::StopUntil(Instant instant) {
  stopped_until_ = std::max(stopped_until_, instant);
  timeline_->At(instant, [this, alive = alive_] {
    if (*alive) GoOn();
  });
}

void Program::GoOn() {
  while (*alive_ && stopped_until_ <= timeline_->now() && !held_.empty()) {
    const Timeline::Call next = std::move(held_.front());
    held_.pop_front();
    next();
  }
}

void Program::Hear(const wire::Message& message, const Decisions& page) {
  Mine([this, message, page] { Understand(message, page); })();
}

void Program::Greet(const std::string& device, uint64_t run) {
  Mine([this, device, run] {
    claimed_ = requests_.claim();
    claimed_contexts_ = requests_.contexts();
    wire::Register hello;
    hello.build = "simulated";
    hello.device = device;
    hello.run = run;
    hello.program = "program";
    hello.allocated_bytes = claimed_.count;
    hello.resident_bytes = resident().count;
    hello.contexts = claimed_contexts_;
    hello.suspended = 0;
    send_(hello);
  })();
}

void Program::OnLost() {
  Mine([this] {
    page_.reset();
    lease_.OnLost();
    requests_.OnLost(habits_.memory, habits_.memory, false);
    Go();
  })();
}

void Program::Die() {
  *alive_ = false;
  if (running_ != 0) card_->Interrupt(running_);
}

std::optional<Instant> Program::waiting_since() const {
  return stopped_until_ > timeline_->now() ? std::nullopt : waiting_since_;
}

void Program::OnRegistered(const wire::Registered& registered) {
  requests_.OnRegistered(Bytes(registered.limit_bytes), claimed_, claimed_contexts_);
  lease_.OnRegistered(resident_);
  if (std::exchange(begun_, true)) return;
  context_ticket_ = requests_.WantContext();
  requests_.Grow(habits_.memory);
}

void Program::Understand(const wire::Message& message, const Decisions& page) {
  page_ = page;
  if (const auto* registered = std::get_if<wire::Registered>(&message)) {
    OnRegistered(*registered);
  } else if (const auto* reserved = std::get_if<wire::Reserved>(&message)) {
    requests_.OnMessage(*reserved);
    if (requests_.Poll() == client::Answer::kGranted) need_ = habits_.memory;
  } else if (const auto* context = std::get_if<wire::ContextReserved>(&message)) {
    requests_.OnMessage(*context);
  } else if (const auto* grant = std::get_if<wire::Grant>(&message)) {
    lease_.OnMessage(*grant);
    brought_ = Bytes();
  } else if (const auto* credit = std::get_if<wire::Credit>(&message)) {
    lease_.OnMessage(*credit);
  } else if (const auto* revoke = std::get_if<wire::Revoke>(&message)) {
    lease_.OnMessage(*revoke);
  } else if (const auto* evict = std::get_if<wire::Evict>(&message)) {
    lease_.OnMessage(*evict);
  }
  Begin();
  WatchIdleness();
  Go();
}

void Program::Begin() {
  if (ready_ || need_ < habits_.memory || requests_.WaitsForContext()) return;
  if (requests_.PollContext(context_ticket_) != client::Answer::kGranted) return;
  ready_ = true;
  Think();
}

void Program::Think() {
  After(habits_.think(), [this] { WantToWork(); });
}

void Program::WantToWork() {
  burst_ = Burst{timeline_->now(), {}, {}, habits_.burst()};
  left_ = burst_->work;
  wants_ = true;
  waiting_since_ = timeline_->now();
  if (lease_.idle()) lease_.OnActive();
  Work();
  Go();
}

// Where the gate is open. A Revoke shuts it for what is not under way yet.
void Program::Work() {
  if (!wants_ || !lease_.open() || lease_.revoked()) return;
  wants_ = false;
  waiting_since_.reset();
  if (burst_->started == Instant()) burst_->started = timeline_->now();
  running_ = card_->Run(left_, Mine([this, run = ++runs_] {
                          if (running_ != 0 && run == runs_)
                            EndBurst();  // else it was interrupted since
                        }));
}

void Program::EndBurst() {
  running_ = 0;
  burst_->ended = timeline_->now();
  on_burst_(*burst_);
  burst_.reset();
  Think();
  WatchIdleness();
  Go();
}

void Program::WatchIdleness() {
  if (!watched() || burst_.has_value() || !lease_.open() || lease_.idle()) return;
  After(kQuiet, [this] {
    if (!watched() || burst_.has_value() || !lease_.open()) return;
    lease_.OnIdle();
    Flush();
  });
}

client::View Program::View() const {
  client::View view;
  view.need = need_;
  view.resident = resident_;
  view.missing = SaturatingSubtract(need_, resident_);
  view.next_chunk = std::min(view.missing, chunk_);
  view.wanted = wants_;
  return view;
}

void Program::Go() {
  while (!busy_) {
    const client::Step step = lease_.Next(View());
    if (step == client::Step::kNone) break;
    Do(step);
  }
  Flush();
}

void Program::Do(client::Step step) {
  if (step == client::Step::kDrain) Drain();
  if (step == client::Step::kEvict) Evict();
  if (step == client::Step::kRestore) Restore();
  if (step == client::Step::kOpen) Open();
}

// Work in flight is done first: at most a window of it.
void Program::Drain() {
  busy_ = true;
  After(running_ == 0 ? Duration() : std::min(left_, lease_.window()), [this] {
    if (running_ != 0) {
      left_ = card_->Interrupt(std::exchange(running_, 0));
      wants_ = true;
      waiting_since_ = timeline_->now();
    }
    lease_.OnDrained(true);
    busy_ = false;
    Go();
  });
}

void Program::Evict() {
  const Bytes too_much = SaturatingSubtract(resident_, lease_.credit());
  const Bytes part = std::min(too_much, chunk_);
  busy_ = true;
  card_->Copy(Card::Way::kOut, part, Mine([this, part] {
                resident_ -= part;
                lease_.OnEvicted(resident_, part);
                busy_ = false;
                Go();
              }));
}

void Program::Restore() {
  const Bytes part = View().next_chunk;
  const Bytes copied = std::min(part, SaturatingSubtract(written_, resident_));
  busy_ = true;
  coming_ = part;
  card_->Copy(Card::Way::kIn, copied, Mine([this, part, copied] {
                coming_ = Bytes();
                resident_ += part;
                written_ = std::max(written_, resident_);
                brought_ += copied;
                lease_.OnRestored(resident_, copied);
                busy_ = false;
                Go();
              }));
}

void Program::Open() {
  lease_.OnOpened(brought_);
  brought_ = Bytes();
  Work();
  WatchIdleness();
}

void Program::Flush() {
  for (wire::Message& message : requests_.TakeMessages()) send_(std::move(message));
  for (wire::Message& message : lease_.TakeMessages()) send_(std::move(message));
}

}  // namespace tandem::sim
