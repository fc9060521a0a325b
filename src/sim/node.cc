#include "src/sim/node.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tandem::sim {
namespace {

constexpr uint32_t kReservedContexts = 1u << 20;  // contexts take nothing here

class PlainPages : public service::SessionPages {
 public:
  wire::DecisionsPage& decisions() override { return decisions_; }
  const wire::ReportsPage& reports() const override { return reports_; }
  std::vector<int> fds() const override { return {}; }

 private:
  wire::DecisionsPage decisions_{};
  wire::ReportsPage reports_{};
};

class PlainPageMaker : public service::PageMaker {
 public:
  explicit PlainPageMaker(const wire::DecisionsPage** last) : last_(last) {}
  Result<std::unique_ptr<service::SessionPages>> Make() override {
    auto pages = std::make_unique<PlainPages>();
    *last_ = &pages->decisions();
    return std::unique_ptr<service::SessionPages>(std::move(pages));
  }

 private:
  const wire::DecisionsPage** const last_;
};

std::string NameOf(int gpu) {
  return "GPU-" + std::to_string(gpu);
}

service::ServiceConfig ConfigOf(const NodeConfig& config, Instant now) {
  service::ServiceConfig made;
  made.version = "simulated";
  made.started = now;
  made.turns = config.turns;
  made.policy = config.policy;
  made.random_token = [last = uint64_t{0}]() mutable { return ++last; };
  for (int gpu = 0; gpu < config.gpus; ++gpu) {
    // Beside the budget a card has room for one chunk.
    made.gpus.push_back({gpu, NameOf(gpu), "Virtual", true, config.card + config.chunk, Bytes(),
                         Bytes(), config.chunk, kReservedContexts});
  }
  return made;
}

}  // namespace

Node::Node(Timeline* timeline, const NodeConfig& config)
    : timeline_(timeline),
      config_(config),
      service_(std::make_unique<service::Service>(ConfigOf(config, timeline->now()),
                                                  std::make_unique<PlainPageMaker>(&last_page_))) {
  for (int gpu = 0; gpu < config.gpus; ++gpu) {
    cards_.push_back(std::make_unique<Card>(timeline, config.bus_bytes_per_second));
  }
}

void Node::Start(int gpu, unsigned uid, Habits habits, Program::OnBurst on_burst) {
  const service::ConnectionId id = seats_.size() + 1;
  const auto send = [this, id](wire::Message message) { Say(id, std::move(message)); };
  seats_[id].program = std::make_unique<Program>(timeline_, &card(gpu), config_.chunk,
                                                 std::move(habits), send, std::move(on_burst));
  service_->OnConnected(id, service::Client{static_cast<int>(id), uid, false});
  wire::Register hello;
  hello.build = "simulated";
  hello.device = NameOf(gpu);
  hello.program = "program";
  Say(id, hello);
}

void Node::Say(service::ConnectionId from, wire::Message message) {
  timeline_->After(config_.latency, [this, from, message = std::move(message)] {
    last_page_ = nullptr;
    std::vector<service::Outgoing> answers = service_->OnMessage(from, message, timeline_->now());
    if (last_page_ != nullptr) seats_.at(from).page = last_page_;
    Carry(std::move(answers));
  });
}

void Node::Carry(std::vector<service::Outgoing> messages) {
  for (service::Outgoing& outgoing : messages) {
    if (!outgoing.message) continue;
    timeline_->After(config_.latency,
                     [this, to = outgoing.to, message = std::move(*outgoing.message)] {
                       Seat& seat = seats_.at(to);
                       seat.program->Hear(message, *seat.page);
                     });
  }
  WakeService();
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
