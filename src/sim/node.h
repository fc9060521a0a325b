// Node: one machine in virtual time: virtual cards, programs, and between them the service and the
// arbiters that the daemon runs.
//
// Threading: none. The same configuration and seed give the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
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
  // What the daemon takes the bus for before it has seen anything move.
  double assumed_bytes_per_second = core::ArbiterConfig().bytes_per_second;
};

class Node {
 public:
  Node(Timeline* timeline, const NodeConfig& config);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // A program of that user on that card, and its number; `on_burst` hears of each burst once it is
  // done.
  uint64_t Start(int gpu, unsigned uid, Habits habits, Program::OnBurst on_burst);
  // SIGSTOP for so long; SIGKILL. REQUIRES: it is alive.
  void Stop(uint64_t program, Duration length);
  void Kill(uint64_t program);
  // The daemon dies; after `away` there is another one, which programs find within a tenth of a
  // second.
  void RestartDaemon(Duration away);
  // An order of root's, as `tandem` gives it. Nothing while there is no daemon.
  void Order(const wire::Control& order);

  Card& card(int gpu) { return *cards_.at(static_cast<size_t>(gpu)); }
  // Of what programs have on a card now.
  Bytes Resident(int gpu) const;
  std::vector<uint64_t> programs() const;  // those that are alive
  const Program& program(uint64_t number) const { return *seats_.at(number).program; }
  // The daemon's answer to a Query; empty while there is none.
  std::string Ask(const std::string& what);

 private:
  struct Seat {
    int gpu = 0;
    unsigned uid = 0;
    std::string of_class;
    std::unique_ptr<Program> program;
    service::ConnectionId connection = 0;  // 0: none
    service::ConnectionId guard = 0;       // of its run
    Decisions page;
  };

  // What daemons leave for each other; as the file does, it outlives them.
  struct Left {
    std::list<service::SavedSession> entries;
    std::atomic<uint64_t> last_session = 0;
    bool complete = false;
  };
  class Saved;

  std::unique_ptr<service::Service> MakeService();
  void Connect(uint64_t program, bool predates);
  uint64_t OpenRun(uint64_t program);
  void Say(service::ConnectionId from, wire::Message message);
  void Hear(service::ConnectionId to, const wire::Message& message);
  void Carry(std::vector<service::Outgoing> messages);
  void WakeService();

  Timeline* const timeline_;
  const NodeConfig config_;
  std::vector<std::unique_ptr<Card>> cards_;
  std::map<uint64_t, Seat> seats_;
  std::map<service::ConnectionId, uint64_t> connections_;  // of programs → whose
  service::ConnectionId last_connection_ = 0;              // never the same again
  uint64_t last_program_ = 0;
  std::vector<std::unique_ptr<Program>> dead_;
  Decisions last_page_;  // that was made
  Left left_;
  std::unique_ptr<service::Service> service_;  // null: the daemon is away
  uint64_t wakes_ = 0;                         // which of those that were planned counts
};

}  // namespace tandem::sim
