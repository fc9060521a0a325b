// Node: one machine in virtual time: virtual cards, programs, and between them the service and the
// arbiters that the daemon runs.
//
// Threading: none. The same configuration and seed give the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/service/service.h"
#include "src/sim/card.h"
#include "src/sim/program.h"
#include "src/sim/timeline.h"

namespace tandem::sim {

struct NodeConfig {
  int gpus = 1;
  Bytes card = GiB(80);                // what sessions may have there, of each
  Bytes chunk = MiB(64);               // the unit of swapping
  double bus_bytes_per_second = 50e9;  // each way
  core::TurnRules turns;
  std::string policy = core::ArbiterConfig().policy;
  Duration latency = Microseconds(30);  // of a message
};

class Node {
 public:
  Node(Timeline* timeline, const NodeConfig& config);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // A program of that user on that card; `on_burst` hears of each burst once it is done.
  void Start(int gpu, unsigned uid, Habits habits, Program::OnBurst on_burst);

  Card& card(int gpu) { return *cards_.at(static_cast<size_t>(gpu)); }

 private:
  struct Seat {
    std::unique_ptr<Program> program;
    const wire::DecisionsPage* page = nullptr;
  };
  class Pages;

  void Say(service::ConnectionId from, wire::Message message);
  void Carry(std::vector<service::Outgoing> messages);
  void WakeService();

  Timeline* const timeline_;
  const NodeConfig config_;
  std::vector<std::unique_ptr<Card>> cards_;
  std::map<service::ConnectionId, Seat> seats_;
  const wire::DecisionsPage* last_page_ = nullptr;  // that was made
  std::unique_ptr<service::Service> service_;
  uint64_t wakes_ = 0;  // which of those that were planned counts
};

}  // namespace tandem::sim
