// A GPU in virtual time for the arbiter's tests: simulated sessions that follow the protocol as
// libtandem.so does (and some that misbehave), messages with latency, a bus with a bandwidth.
//
// Every message the arbiter answers is checked against the invariants of arbiter.h.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <vector>

#include "src/core/arbiter.h"

namespace tandem::core {

// How a simulated program behaves. Times are means of exponential draws where `random`.
struct Habits {
  Bytes need = MiB(64);
  bool oversubscribes = false;  // then it needs at most what the card could give it
  Duration burst = Milliseconds(100);
  Duration pause = Milliseconds(5);
  bool random = false;
  double busy = 0;   // chance that a Revoke is answered Busy
  double grow = 0;   // chance that a burst ends with the need changing by a chunk or a few
  double stop = 0;   // chance that a burst ends with the process stopped for a while
  double reset = 0;  // chance that a burst ends with its context destroyed and made anew
  double array = 0;  // chance that a burst ends with memory taken that cannot be swapped, or freed
  double say = 0;    // chance that it declares a burst before it asks, ends a wait, or may leave
  Duration longest_stop = Seconds(5);
  Tenant tenant = {};
  Class of_class = Class::kInteractive;
};

class World {
 public:
  World(const ArbiterConfig& config, uint64_t seed, double bytes_per_second = 4e9)
      : config_(config), arbiter_(config), random_(seed), bytes_per_second_(bytes_per_second) {}

  // Starts a program; its number, from 1.
  uint64_t Start(const Habits& habits);
  void Kill(uint64_t id);
  void Stop(uint64_t id, Duration length);
  void Suspend(uint64_t id, bool suspended);
  void SetShare(const ShareKey& of, Share share) { Send(event::ShareSet{of, share}); }
  void SetPolicy(const std::string& name) { Send(event::PolicySet{name}); }
  void SetBudget(Bytes total) { Send(event::BudgetSet{total}); }
  // All are let go on without arrays, and none begins anything once it is done.
  void CalmDown();
  void RunFor(Duration length);

  Instant now() const { return now_; }
  const Arbiter& arbiter() const { return arbiter_; }
  const std::vector<Handover>& handovers() const { return handovers_; }
  Duration longest_wait() const { return longest_wait_; }
  Duration worked(uint64_t id) const;
  // No session is on its way in or out, and all sessions answer.
  bool quiet() const;
  bool lent() const { return lent_; }  // at any time
  // How often there was no room for what cannot be swapped.
  uint64_t refused() const { return refused_; }
  bool alive(uint64_t id) const { return programs_.count(id) != 0; }
  std::vector<uint64_t> ids() const;
  double Uniform() { return std::uniform_real_distribution<>(0, 1)(random_); }

 private:
  struct Program {
    Habits habits;
    Bytes need;
    Bytes credit;
    Bytes resident;
    Bytes target;  // of the latest Evict
    Bytes fixed;   // that cannot be swapped
    Bytes bytes_in;
    Bytes kept;       // of it what still has its copy on the host, as the gate has not opened since
    Bytes on_host;    // as the arbiter last had it, with what it had ordered there
    Epoch epoch = 0;  // of the lease it holds; 0: none
    bool tells_arrivals = true;  // of a version that does
    bool open = false;           // the gate
    bool working = false;        // a burst is on the GPU
    bool wants = false;          // a burst waits at the gate
    bool wants_fixed = false;
    bool contended = false;  // or watched: it tells of its pauses
    bool told_idle = false;
    bool evicting = false;
    bool copying = false;
    bool revoking = false;
    bool has_context = false;  // without, it submits nothing
    Instant working_since;
    Instant work_until;
    Duration left;  // of a burst that a Revoke interrupted
    Instant stopped_until;
    Instant asked_at;
    Duration worked;
  };

  using Call = std::function<void()>;
  void At(Instant when, Call call);
  // Runs `call` for the program unless it has died; later while it is stopped.
  void For(uint64_t id, Duration after, std::function<void(Program&)> call);
  void Send(Event event);
  void Deliver(const Event& event);
  void Act(const Action& action);
  bool MayWait(const Wish& wish) const;
  void Check();
  void CheckHost();
  void CheckProgress(const action::Revoke& revoke);

  void WantContext(uint64_t id, Program& program);
  void WantToWork(uint64_t id, Program& program);
  void BeginBurst(uint64_t id, Program& program);
  void EndBurst(uint64_t id, Program& program);
  void ChangeFixed(uint64_t id, Program& program);
  void Rest(uint64_t id, Program& program);
  void Ask(uint64_t id, Program& program);
  void GiveUp(uint64_t id, Program& program);
  void Restore(uint64_t id, Program& program);
  void EvictChunk(uint64_t id, Program& program);
  void Release(uint64_t id, Program& program);
  Duration Draw(Duration mean, bool random);
  Duration BusTime(Bytes bytes) const;

  ArbiterConfig config_;
  Arbiter arbiter_;
  std::mt19937_64 random_;
  double bytes_per_second_;
  Instant now_ = Instant(1);
  std::multimap<Instant, Call> queue_;
  std::map<uint64_t, Program> programs_;
  uint64_t last_id_ = 0;
  Instant wake_;
  std::set<Epoch> epochs_;
  std::map<Epoch, Instant> running_since_;  // as the arbiter was first told
  std::vector<Handover> handovers_;
  Duration longest_wait_;
  bool lent_ = false;
  bool calm_ = false;
  uint64_t refused_ = 0;
  Bytes excess_;  // as the arbiter last had it
};

}  // namespace tandem::core
