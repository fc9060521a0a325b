#include "src/plan/machine_repair.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem::plan {

MachineRepair::MachineRepair(const Load& load) : load_(load), seen_(AtWork(load.users - 1)) {}

// For this number of users, the probability that 0, 1, … have an unfinished job. By logarithms,
// since the terms may be far outside of what a double holds.
std::vector<double> MachineRepair::AtWork(int users) const {
  std::vector<double> terms = {0};
  for (int jobs = 1; jobs <= users; ++jobs) {
    const double arrive = (users - jobs + 1) / load_.think_s;
    const double leave = std::min(jobs, load_.gpus) / load_.burst_s;
    terms.push_back(terms.back() + std::log(arrive / leave));
  }
  const double largest = *std::max_element(terms.begin(), terms.end());
  for (double& term : terms) term = std::exp(term - largest);
  const double sum = std::accumulate(terms.begin(), terms.end(), 0.0);
  for (double& term : terms) term /= sum;
  return terms;
}

double MachineRepair::Utilisation() const {
  const std::vector<double> at_work = AtWork(load_.users);
  double busy = 0;
  for (int jobs = 0; jobs <= load_.users; ++jobs) {
    busy += at_work[static_cast<size_t>(jobs)] * std::min(jobs, load_.gpus);
  }
  return busy / load_.gpus;
}

// A job that finds c + k others waits until k + 1 of them are done, c at a time.
double MachineRepair::MeanWait() const {
  double wait = 0;
  for (size_t others = static_cast<size_t>(load_.gpus); others < seen_.size(); ++others) {
    const auto ends = static_cast<double>(others) - load_.gpus + 1;
    wait += seen_[others] * ends * load_.burst_s / load_.gpus;
  }
  return wait;
}

// The time until the (k + 1)th of events at a steady rate has Erlang's distribution: beyond
// `seconds` there are at most k of them.
double MachineRepair::WaitBeyond(double seconds) const {
  const double mean = seconds * load_.gpus / load_.burst_s;
  double beyond = 0, at_most = 0;
  for (size_t others = static_cast<size_t>(load_.gpus); others < seen_.size(); ++others) {
    const auto events = static_cast<double>(others) - load_.gpus;
    at_most += mean > 0 ? std::exp(events * std::log(mean) - mean - std::lgamma(events + 1))
                        : (events == 0 ? 1 : 0);
    beyond += seen_[others] * std::min(at_most, 1.0);
  }
  return beyond;
}

double MachineRepair::WaitPercentile(double share) const {
  if (WaitBeyond(0) <= 1 - share) return 0;
  double low = 0, high = load_.burst_s;
  while (WaitBeyond(high) > 1 - share) high *= 2;
  for (int halving = 0; halving < 60; ++halving) {
    const double middle = (low + high) / 2;
    (WaitBeyond(middle) > 1 - share ? low : high) = middle;
  }
  return high;
}

double ThinkSeconds(double edit_s, double away_s, double stay_s) {
  return edit_s + edit_s / stay_s * away_s;
}

}  // namespace tandem::plan
