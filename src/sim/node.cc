#include "src/sim/node.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tandem::sim {
namespace {

constexpr uint32_t kReservedContexts = 1u << 20;  // contexts take nothing here

class PlainPages : public service::SessionPages {
 public:
  explicit PlainPages(std::shared_ptr<wire::DecisionsPage> decisions)
      : decisions_(std::move(decisions)) {}
  wire::DecisionsPage& decisions() override { return *decisions_; }
  const wire::ReportsPage& reports() const override { return reports_; }
  std::vector<int> fds() const override { return {}; }

 private:
  const std::shared_ptr<wire::DecisionsPage> decisions_;
  wire::ReportsPage reports_{};
};

class PlainPageMaker : public service::PageMaker {
 public:
  explicit PlainPageMaker(Decisions* last) : last_(last) {}
  Result<std::unique_ptr<service::SessionPages>> Make() override {
    const auto decisions = std::make_shared<wire::DecisionsPage>();
    *last_ = decisions;
    return std::unique_ptr<service::SessionPages>(std::make_unique<PlainPages>(decisions));
  }

 private:
  Decisions* const last_;
};

std::string NameOf(int gpu) {
  return "GPU-" + std::to_string(gpu);
}

}  // namespace

class Node::Saved : public service::SavedSessions {
 public:
  explicit Saved(Node* node) : left_(node->left_), complete_(left_.complete) {
    std::erase_if(left_.entries, [&](const service::SavedSession& entry) {
      return entry.id == 0 || node->seats_.count(entry.pid) == 0;
    });
    for (service::SavedSession& entry : left_.entries) found_.push_back(&entry);
    left_.complete = true;
  }
  std::vector<service::SavedSession*> found() override { return found_; }
  bool complete() const override { return complete_; }
  service::SavedSession* Add() override { return &left_.entries.emplace_back(); }
  std::atomic<uint64_t>& last_session() override { return left_.last_session; }

 private:
  Left& left_;
  const bool complete_;
  std::vector<service::SavedSession*> found_;
};

Node::Node(Timeline* timeline, const NodeConfig& config) : timeline_(timeline), config_(config) {
  for (int gpu = 0; gpu < config.gpus; ++gpu) {
    cards_.push_back(std::make_unique<Card>(timeline, config.bus_bytes_per_second));
  }
  service_ = MakeService();
}

// Until sessions register, the service takes all bytes on the cards for other programs'.
std::unique_ptr<service::Service> Node::MakeService() {
  service::ServiceConfig made;
  made.version = "simulated";
  made.started = timeline_->now();
  made.turns = config_.turns;
  made.policy = config_.policy;
  made.assumed_bytes_per_second = config_.assumed_bytes_per_second;
  made.random_token = [last = uint64_t{0}]() mutable { return ++last; };
  for (int gpu = 0; gpu < config_.gpus; ++gpu) {
    // Beside the budget a card has room for one chunk.
    made.gpus.push_back({gpu, NameOf(gpu), "Virtual", true, config_.card + config_.chunk,
                         Resident(gpu), Bytes(), config_.chunk, kReservedContexts});
  }
  made.saved = std::make_unique<Saved>(this);
  return std::make_unique<service::Service>(std::move(made),
                                            std::make_unique<PlainPageMaker>(&last_page_));
}

uint64_t Node::Start(int gpu, unsigned uid, Habits habits, Program::OnBurst on_burst) {
  const uint64_t number = ++last_program_;
  const auto send = [this, number](wire::Message message) {
    const service::ConnectionId from = seats_.at(number).connection;
    if (from != 0) Say(from, std::move(message));
  };
  Seat& seat = seats_[number];
  seat.gpu = gpu;
  seat.uid = uid;
  seat.of_class = habits.of_class;
  seat.program = std::make_unique<Program>(timeline_, &card(gpu), config_.chunk, std::move(habits),
                                           send, std::move(on_burst));
  if (service_ != nullptr) Connect(number, false);
  return number;
}

void Node::Connect(uint64_t program, bool predates) {
  Seat& seat = seats_.at(program);
  seat.connection = ++last_connection_;
  connections_[seat.connection] = program;
  service_->OnConnected(seat.connection,
                        service::Client{static_cast<int>(program), seat.uid, predates});
  seat.program->Greet(NameOf(seat.gpu), seat.of_class.empty() ? 0 : OpenRun(program));
}

// As its guard does, that had it open under a daemon before; its token.
uint64_t Node::OpenRun(uint64_t program) {
  Seat& seat = seats_.at(program);
  seat.guard = ++last_connection_;
  service_->OnConnected(seat.guard, service::Client{1, seat.uid, false});
  wire::RunBegin begin;
  begin.build = "simulated";
  begin.run = program;
  begin.of_class = seat.of_class;
  Carry(service_->OnMessage(seat.guard, begin, timeline_->now()));
  return program;
}

void Node::Stop(uint64_t program, Duration length) {
  seats_.at(program).program->StopUntil(timeline_->now() + length);
}

void Node::Kill(uint64_t program) {
  Seat& seat = seats_.at(program);
  seat.program->Die();
  const service::ConnectionId connection = seat.connection, guard = seat.guard;
  dead_.push_back(std::move(seat.program));  // what is planned may still look at it
  connections_.erase(connection);
  seats_.erase(program);
  if (service_ == nullptr) return;
  for (const service::ConnectionId its : {connection, guard}) {
    if (its != 0) Carry(service_->OnDisconnected(its, timeline_->now()));
  }
  Carry(service_->OnProcessGone(static_cast<int>(program), timeline_->now()));
}

void Node::RestartDaemon(Duration away) {
  if (service_ == nullptr) return;
  service_.reset();
  ++wakes_;
  connections_.clear();
  for (auto& [number, seat] : seats_) {
    seat.connection = seat.guard = 0;
    seat.page.reset();
    seat.program->OnLost();
  }
  timeline_->After(away, [this] {
    service_ = MakeService();
    WakeService();
    int64_t wait_ns = 0;
    for (const uint64_t program : programs()) {
      wait_ns = (wait_ns + 37'000'000) % 100'000'000;  // of the search for it
      timeline_->After(Duration(wait_ns), [this, program, service = service_.get()] {
        if (service_.get() == service && seats_.count(program) != 0) Connect(program, true);
      });
    }
  });
}

void Node::Order(const wire::Control& order) {
  if (service_ == nullptr) return;
  const service::ConnectionId id = ++last_connection_;
  service_->OnConnected(id, service::Client{1, 0, false});
  Carry(service_->OnMessage(id, order, timeline_->now()));
  Carry(service_->OnDisconnected(id, timeline_->now()));
}

std::string Node::Ask(const std::string& what) {
  if (service_ == nullptr) return "";
  const service::ConnectionId id = ++last_connection_;
  service_->OnConnected(id, service::Client{1, 0, false});
  std::string json;
  for (const service::Outgoing& out :
       service_->OnMessage(id, wire::Query{what}, timeline_->now())) {
    const auto* answer = out.message ? std::get_if<wire::Answer>(&*out.message) : nullptr;
    if (answer != nullptr) json = answer->json;
  }
  Carry(service_->OnDisconnected(id, timeline_->now()));
  return json;
}

Bytes Node::Resident(int gpu) const {
  Bytes sum;
  for (const auto& [number, seat] : seats_) {
    if (seat.gpu == gpu) sum += seat.program->resident();
  }
  return sum;
}

std::vector<uint64_t> Node::programs() const {
  std::vector<uint64_t> numbers;
  for (const auto& [number, seat] : seats_) numbers.push_back(number);
  return numbers;
}

// Messages of one connection stay in their order; those of a daemon that is gone are lost.
void Node::Say(service::ConnectionId from, wire::Message message) {
  timeline_->After(config_.latency, [this, from, message = std::move(message)] {
    const auto program = connections_.find(from);
    if (service_ == nullptr || program == connections_.end()) return;
    last_page_ = nullptr;
    std::vector<service::Outgoing> answers = service_->OnMessage(from, message, timeline_->now());
    if (last_page_ != nullptr) seats_.at(program->second).page = last_page_;
    Carry(std::move(answers));
  });
}

void Node::Carry(std::vector<service::Outgoing> messages) {
  for (service::Outgoing& outgoing : messages) {
    if (!outgoing.message) continue;
    timeline_->After(
        config_.latency,
        [this, to = outgoing.to, message = std::move(*outgoing.message)] { Hear(to, message); });
  }
  WakeService();
}

void Node::Hear(service::ConnectionId to, const wire::Message& message) {
  const auto program = connections_.find(to);
  if (program == connections_.end()) return;
  const Seat& seat = seats_.at(program->second);
  if (seat.page != nullptr) seat.program->Hear(message, seat.page);
}

void Node::WakeService() {
  const uint64_t number = ++wakes_;
  const std::optional<Instant> wake = service_->wake();
  if (!wake.has_value()) return;
  timeline_->At(*wake, [this, number] {
    if (number == wakes_) Carry(service_->OnTick(timeline_->now()));
  });
}

}  // namespace tandem::sim
