#include "src/plan/markov.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem::plan {
namespace {

// The next in the queue gets the GPU.
void Free(State* state) {
  state->holder = 0;
  if (state->queue.empty()) return;
  state->holder = static_cast<uint8_t>(state->queue.front() + 1);
  state->queue.erase(state->queue.begin());
}

void Submit(State* state, uint8_t user) {
  state->users[user] = User::kReady;
  if (state->holder == 0) {
    state->holder = static_cast<uint8_t>(user + 1);
  } else if (state->holder != user + 1) {
    state->queue.push_back(user);
  }
}

bool MayRelease(Release rule, User holder, bool somebody_queues) {
  if (holder == User::kReady) return false;
  switch (rule) {
    case Release::kWhenIdle:
      return true;
    case Release::kWhenAsleep:
      return holder == User::kAsleep;
    case Release::kOnDemand:
      return somebody_queues;
    default:
      return false;
  }
}

// Closed classes of a graph, by the strongly connected components (Tarjan, 1972) that nothing
// leaves.
class Components {
 public:
  explicit Components(const std::vector<std::vector<size_t>>& edges)
      : edges_(edges), number_(edges.size()), low_(edges.size()), of_(edges.size(), kNone) {
    for (size_t node = 0; node < edges.size(); ++node) {
      if (number_[node] == 0) Visit(node);
    }
  }

  std::vector<std::vector<size_t>> Closed() const {
    std::vector<std::vector<size_t>> classes(count_);
    std::vector<bool> left(count_);
    for (size_t node = 0; node < edges_.size(); ++node) {
      classes[of_[node]].push_back(node);
      for (const size_t to : edges_[node])
        left[of_[node]] = left[of_[node]] || of_[to] != of_[node];
    }
    std::vector<std::vector<size_t>> closed;
    for (size_t each = 0; each < count_; ++each) {
      if (!left[each]) closed.push_back(std::move(classes[each]));
    }
    return closed;
  }

 private:
  static constexpr size_t kNone = ~size_t{0};

  void Visit(size_t root) {
    std::vector<std::pair<size_t, size_t>> calls = {{root, 0}};
    while (!calls.empty()) {
      const auto [node, edge] = calls.back();
      if (edge == 0) {
        number_[node] = low_[node] = ++visited_;
        open_.push_back(node);
      }
      if (edge < edges_[node].size()) {
        ++calls.back().second;
        const size_t to = edges_[node][edge];
        if (number_[to] == 0) {
          calls.emplace_back(to, 0);
        } else if (of_[to] == kNone) {
          low_[node] = std::min(low_[node], number_[to]);
        }
        continue;
      }
      calls.pop_back();
      if (!calls.empty()) {
        size_t& above = low_[calls.back().first];
        above = std::min(above, low_[node]);
      }
      if (low_[node] == number_[node]) Close(node);
    }
  }

  void Close(size_t root) {
    size_t node = kNone;
    do {
      node = open_.back();
      open_.pop_back();
      of_[node] = count_;
    } while (node != root);
    ++count_;
  }

  const std::vector<std::vector<size_t>>& edges_;
  std::vector<size_t> number_, low_, of_, open_;
  size_t visited_ = 0, count_ = 0;
};

bool Queues(const State& state, uint8_t user) {
  return std::find(state.queue.begin(), state.queue.end(), user) != state.queue.end();
}

}  // namespace

Chain::Chain(int users, Release release, const Rates& rates) : release_(release), rates_(rates) {
  State asleep;
  asleep.users.assign(static_cast<size_t>(users), User::kAsleep);
  IndexOf(asleep);
  for (size_t next = 0; next < states_.size(); ++next) AddSteps(next);
}

size_t Chain::IndexOf(const State& state) {
  const auto [at, added] = index_.emplace(state, states_.size());
  if (added) {
    states_.push_back(state);
    steps_.emplace_back();
  }
  return at->second;
}

void Chain::Go(size_t from, const State& to, double rate, bool submits) {
  const size_t target = IndexOf(to);
  steps_[from].push_back({target, rate, submits});
}

void Chain::AddSteps(size_t from) {
  const State state = states_[from];
  const auto users = static_cast<uint8_t>(state.users.size());
  for (uint8_t user = 0; user < users; ++user) {
    const bool holds = state.holder == user + 1;
    State to = state;
    if (state.users[user] == User::kAsleep) {
      to.users[user] = User::kEditing;
      Go(from, to, rates_.arrive);
    } else if (state.users[user] == User::kEditing) {
      Submit(&to, user);
      Go(from, to, rates_.submit, user == 0);
      to = state;
      to.users[user] = User::kAsleep;
      if (holds && release_ == Release::kAtDeparture) Free(&to);
      Go(from, to, rates_.depart);
    } else if (holds && release_ == Release::kDetached) {
      to.users[user] = User::kAsleep;
      Go(from, to, rates_.depart);
    }
  }
  if (state.holder == 0) return;
  const User holder = state.users[state.holder - 1u];
  State to = state;
  const bool detached = release_ == Release::kDetached;
  if (holder == User::kReady || detached) {
    if (holder == User::kReady) to.users[state.holder - 1u] = User::kEditing;
    if (detached || release_ == Release::kAtJobEnd) Free(&to);
    Go(from, to, rates_.execute);
  } else if (MayRelease(release_, holder, !state.queue.empty())) {
    Free(&to);
    Go(from, to, rates_.release);
  }
}

std::vector<std::vector<size_t>> Chain::RecurrentClasses() const {
  std::vector<std::vector<size_t>> edges(states_.size());
  for (size_t from = 0; from < steps_.size(); ++from) {
    for (const Step& step : steps_[from]) edges[from].push_back(step.to);
  }
  return Components(edges).Closed();
}

// Gauss–Seidel on the balance equations, which converges for an irreducible chain (Stewart,
// Introduction to the Numerical Solution of Markov Chains, chapter 3).
std::vector<double> Chain::Stationary() const {
  const std::vector<size_t> recurrent = RecurrentClasses().front();
  std::vector<double> share(states_.size()), leaving(states_.size());
  std::vector<std::vector<std::pair<size_t, double>>> into(states_.size());
  for (const size_t from : recurrent) {
    share[from] = 1.0 / static_cast<double>(recurrent.size());
    for (const Step& step : steps_[from]) {
      leaving[from] += step.rate;
      into[step.to].emplace_back(from, step.rate);
    }
  }
  for (double change = 1; change > 1e-13;) {
    double sum = 0;
    change = 0;
    for (const size_t state : recurrent) {
      double flow = 0;
      for (const auto& [from, rate] : into[state]) flow += share[from] * rate;
      const double next = flow / leaving[state];
      change = std::max(change, std::abs(next - share[state]));
      sum += share[state] = next;
    }
    for (const size_t state : recurrent) share[state] /= sum;
  }
  return share;
}

// By Little's law.
double Chain::MeanWait() const {
  const std::vector<double> share = Stationary();
  double queued = 0, jobs = 0;
  for (size_t state = 0; state < states_.size(); ++state) {
    queued += share[state] * static_cast<double>(states_[state].queue.size());
    for (const Step& step : steps_[state]) {
      if (step.submits) jobs += share[state] * step.rate;
    }
  }
  return queued / (jobs * static_cast<double>(states_.front().users.size()));
}

// Of the first user's jobs, which are as any other's, the share that still waits after this number
// of steps of the chain, which makes `rate` steps a second.
std::vector<double> Chain::Survival(double rate) const {
  const std::vector<double> share = Stationary();
  std::vector<double> waiting(states_.size());
  double jobs = 0;
  for (size_t state = 0; state < states_.size(); ++state) {
    for (const Step& step : steps_[state]) {
      if (!step.submits) continue;
      jobs += share[state] * step.rate;
      if (Queues(states_[step.to], 0)) waiting[step.to] += share[state] * step.rate;
    }
  }
  std::vector<double> survival;
  for (double left = jobs; left > 1e-9 * jobs;) {
    left = 0;
    for (const double each : waiting) left += each;
    survival.push_back(left / jobs);
    std::vector<double> next(states_.size());
    for (size_t state = 0; state < states_.size(); ++state) {
      if (waiting[state] == 0) continue;
      double stays = 1;
      for (const Step& step : steps_[state]) {
        const double part = step.rate / rate;
        stays -= part;
        if (Queues(states_[step.to], 0)) next[step.to] += waiting[state] * part;
      }
      next[state] += waiting[state] * stays;
    }
    waiting = std::move(next);
  }
  return survival;
}

double Chain::WaitPercentile(double share) const {
  double rate = 0;
  for (const auto& steps : steps_) {
    double leaving = 0;
    for (const Step& step : steps) leaving += step.rate;
    rate = std::max(rate, leaving);
  }
  const std::vector<double> survival = Survival(rate);
  const auto beyond = [&](double seconds) {
    const double mean = rate * seconds;
    double sum = 0;
    for (size_t steps = 0; steps < survival.size(); ++steps) {
      const auto count = static_cast<double>(steps);
      sum += survival[steps] * std::exp(count * std::log(mean) - mean - std::lgamma(count + 1));
    }
    return sum;
  };
  if (survival.front() <= 1 - share) return 0;
  double low = 1e-9, high = 1 / rate;
  while (beyond(high) > 1 - share) high *= 2;
  for (int halving = 0; halving < 50; ++halving) {
    const double middle = (low + high) / 2;
    (beyond(middle) > 1 - share ? low : high) = middle;
  }
  return high;
}

}  // namespace tandem::plan
