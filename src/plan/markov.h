// Chain: one GPU and a few users as a continuous-time Markov chain, for every rule of when a GPU is
// given back. Each user is editing, ready (has a job, which waits or is executed) or asleep; one or
// none holds the GPU, the others that are ready queue in their order. (Where the chain has a closed
// form, use machine_repair.h: states grow as the factorial of users.)
//
// Threading: none. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace tandem::plan {

enum class User : uint8_t { kEditing, kReady, kAsleep };

// When the holder gives the GPU back.
enum class Release {
  kAtJobEnd,     // sharing
  kAtDeparture,  // when it falls asleep
  kNever,
  kWhenIdle,    // at `release`, while it edits or sleeps
  kWhenAsleep,  // at `release`, while it sleeps
  kOnDemand,    // at `release`, while it edits or sleeps and another user queues
  kDetached,    // at the job's end, also of a user who has left meanwhile
};

// All per second.
struct Rates {
  double arrive = 0;   // asleep to editing
  double depart = 0;   // editing to asleep
  double submit = 0;   // editing to ready
  double execute = 0;  // a job's end
  double release = 0;  // of a rule that has one
};

struct State {
  std::vector<User> users;
  std::vector<uint8_t> queue;  // users, the next one first
  uint8_t holder = 0;          // a user's index + 1; 0: none

  auto operator<=>(const State&) const = default;
};

class Chain {
 public:
  // All states that can be reached when all users are asleep at first. REQUIRES: 1 <= users <= 6;
  // rates > 0, `release` where the rule has one.
  Chain(int users, Release release, const Rates& rates);

  const std::vector<State>& states() const { return states_; }
  // The states that are never left for good, by closed class.
  std::vector<std::vector<size_t>> RecurrentClasses() const;

  // The share of time in each state in the long run. REQUIRES, of this and what follows: there is
  // one closed class.
  std::vector<double> Stationary() const;
  // Seconds that a job waits before it is executed.
  double MeanWait() const;
  // Seconds that `share` (0 to 1) of all jobs do not exceed, by uniformisation (Jensen, 1953;
  // Grassmann, "Transient solutions in Markovian queueing systems", 1977).
  double WaitPercentile(double share) const;

 private:
  struct Step {
    size_t to;
    double rate;
    bool submits;  // the first user hands in a job
  };

  size_t IndexOf(const State& state);
  void AddSteps(size_t from);
  void Go(size_t from, const State& to, double rate, bool submits = false);
  std::vector<double> Survival(double rate) const;

  const Release release_;
  const Rates rates_;
  std::vector<State> states_;
  std::map<State, size_t> index_;
  std::vector<std::vector<Step>> steps_;  // from each state
};

}  // namespace tandem::plan
