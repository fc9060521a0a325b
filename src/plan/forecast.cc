#include "src/plan/forecast.h"

#include <algorithm>

#include "src/plan/machine_repair.h"
#include "src/plan/markov.h"

namespace tandem::plan {
namespace {

constexpr int kMostInChain = 5;
constexpr int kMostUsers = 1 << 16;

// Whose job comes next is as likely one user as any other, and those stay on the card that were
// there last: so the memory of the next one is there with the share of the users for whom there is
// room (the independent reference model; King, "Analysis of demand paging algorithms", 1971).
double SwitchSeconds(const Team& team) {
  const double users = static_cast<double>(team.users) / team.gpus;  // of each
  const auto memory = static_cast<double>(team.memory.count);
  const auto card = static_cast<double>(team.card.count);
  if (memory * users <= card) return 0;
  return (1 - card / (memory * users)) * memory / team.bus_bytes_per_s;
}

}  // namespace

Forecast ForecastSharing(const Team& team) {
  Forecast forecast;
  forecast.switch_s = SwitchSeconds(team);
  const double think_s = ThinkSeconds(team.edit_s, team.away_s, team.stay_s);
  const MachineRepair model({team.users, team.gpus, team.burst_s + forecast.switch_s, think_s});
  forecast.wait = {model.MeanWait(), model.WaitPercentile(0.99)};
  forecast.utilisation = model.Utilisation();
  forecast.saturation = model.Saturation();
  return forecast;
}

std::optional<Wait> Exclusive(const Team& team) {
  if (team.gpus > 1 || team.users > kMostInChain || team.away_s <= 0) return std::nullopt;
  const Rates rates = {1 / team.away_s, 1 / team.stay_s, 1 / team.edit_s, 1 / team.burst_s,
                       1 / team.idle_timeout_s};
  const Chain chain(team.users, Release::kWhenIdle, rates);
  return Wait{chain.MeanWait(), chain.WaitPercentile(0.99)};
}

// Each user more lets the others wait longer.
int MostUsers(const Team& team, double p99_s) {
  const auto holds = [&](int users) {
    Team other = team;
    other.users = users;
    return ForecastSharing(other).wait.p99_s <= p99_s;
  };
  int most = 0, too_many = 1;
  while (too_many < kMostUsers && holds(too_many)) {
    most = too_many;
    too_many *= 2;
  }
  while (too_many - most > 1) {
    const int middle = (most + too_many) / 2;
    (holds(middle) ? most : too_many) = middle;
  }
  return most;
}

}  // namespace tandem::plan
