// What `tandem plan` answers: how long people wait who share GPUs, and how many of them may.
//
// Threading: none. Pure.
#pragma once

#include <optional>
#include <vector>

#include "src/base/bytes.h"

namespace tandem::plan {

// People who hand in a job, think about what it gave, and hand in the next; all times are means, in
// seconds, exponentially distributed.
struct Team {
  int users = 1;
  int gpus = 1;
  double burst_s = 30;          // of work on a GPU, by itself
  double edit_s = 300;          // from the end of a job to the next
  double away_s = 0;            // mean length of an absence
  double stay_s = 7200;         // mean time between absences
  double idle_timeout_s = 600;  // idle time after which an exclusive GPU is taken back
  Bytes memory;                 // of the card, that each user's program has for good
  Bytes card;
  double bus_bytes_per_s = 55e9;  // each way, both at once
};

struct Wait {
  double mean_s = 0;
  double p99_s = 0;
};

struct Forecast {
  Wait wait;               // from handing a job in to its start
  double utilisation = 0;  // of a GPU
  double switch_s = 0;     // of each job, on average: bringing its program's memory back
  double saturation = 0;   // number of users that keep the GPUs busy if no two ever meet
};

// Sharing, as Tandem does it: first come, first served, and at a job's end the GPU is free.
Forecast ForecastSharing(const Team& team);

// One GPU for as long as its holder wants it, less what the timeout takes back. None where there
// are more GPUs than one, or more users than the chain has states for.
std::optional<Wait> Exclusive(const Team& team);

// The most users for whom the 99th percentile of the wait stays within the bound; 0: not even one.
int MostUsers(const Team& team, double p99_s);

}  // namespace tandem::plan
