// MachineRepair: GPUs that users share, in closed form. Each user thinks, hands in a job, waits
// until it is done, and thinks again; a job takes the first GPU that is free, in the order of
// arrival: the machine-repair model M/M/c//N (Kleinrock, Queueing Systems I, section 3.8). A job
// finds the others as they would be without its user (the arrival theorem: Sevcik and Mitrani, JACM
// 28, 1981). Insensitive to how think times are distributed, but not job lengths.
//
// Threading: none. Pure.
#pragma once

#include <vector>

namespace tandem::plan {

struct Load {
  int users = 1;       // >= 1
  int gpus = 1;        // >= 1
  double burst_s = 0;  // mean length of a job, > 0
  double think_s = 0;  // mean time from a job's end to the next, > 0
};

class MachineRepair {
 public:
  explicit MachineRepair(const Load& load);

  double Utilisation() const;               // share of the time in which a GPU works
  double MeanWait() const;                  // seconds from handing a job in to its start
  double WaitBeyond(double seconds) const;  // probability that a job waits longer than that
  double WaitPercentile(
      double share) const;  // seconds that `share` (0 to 1) of all jobs do not exceed
  // Number of users that would keep the GPUs busy if no two ever met.
  double Saturation() const { return load_.gpus * (1 + load_.think_s / load_.burst_s); }

 private:
  std::vector<double> AtWork(int users) const;

  const Load load_;
  std::vector<double> seen_;  // probability that a job finds this number of others submitted
};

// The mean time from a job's end to the next: a user thinks for `edit_s` before each, and now and
// then, after `stay_s` of that on average, is away for `away_s`.
double ThinkSeconds(double edit_s, double away_s, double stay_s);

}  // namespace tandem::plan
