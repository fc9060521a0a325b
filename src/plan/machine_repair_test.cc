#include "src/plan/machine_repair.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem::plan {
namespace {

// Bursts of 30 s, 5 minutes of editing before each, 1 h away after 2 h of staying.
constexpr double kBurst = 30;
const double kThink = ThinkSeconds(300, 3600, 7200);

MachineRepair Users(int users, int gpus = 1) {
  return MachineRepair({users, gpus, kBurst, kThink});
}

// The sum of a Poisson distribution up to n.
double Poisson(int n, double mean) {
  double sum = 0;
  for (int k = 0; k <= n; ++k) sum += std::exp(k * std::log(mean) - mean - std::lgamma(k + 1.0));
  return sum;
}

TEST(MachineRepairTest, ThinkingIncludesBeingAway) {
  EXPECT_DOUBLE_EQ(kThink, 450);
  EXPECT_DOUBLE_EQ(Users(3).Saturation(), 16);
  EXPECT_DOUBLE_EQ(Users(3, 2).Saturation(), 32);
}

// The reference table of the design.
TEST(MachineRepairTest, ReferenceValues) {
  struct Row {
    int users;
    double mean, p99, within;
  };
  for (const Row& row : {Row{2, 1.9, 55, 0.05}, Row{4, 6.3, 99, 0.05}, Row{5, 9.0, 115, 0.06},
                         Row{10, 28.8, 201, 0.06}, Row{18, 111, 409, 0.6}}) {
    EXPECT_NEAR(Users(row.users).MeanWait(), row.mean, row.within) << row.users;
    EXPECT_NEAR(Users(row.users).WaitPercentile(0.99), row.p99, 0.6) << row.users;
  }
}

TEST(MachineRepairTest, OneUserNeverWaits) {
  EXPECT_NEAR(Users(1).MeanWait(), 0, 1e-9);
  EXPECT_DOUBLE_EQ(Users(1).WaitPercentile(0.999), 0);
  EXPECT_NEAR(Users(1).Utilisation(), kBurst / (kBurst + kThink), 1e-12);
}

// An arriving job finds the GPU as the other users alone would keep it: the arrival theorem.
TEST(MachineRepairTest, AJobWaitsWhenTheOthersKeepTheGpuBusy) {
  for (int users = 2; users <= 50; ++users) {
    EXPECT_NEAR(Users(users).WaitBeyond(0), Users(users - 1).Utilisation(), 1e-12) << users;
  }
}

// The mean is the integral of what lies beyond.
TEST(MachineRepairTest, TheMeanIsThatOfTheDistribution) {
  for (const int users : {2, 5, 18, 50}) {
    double sum = 0;
    const double step = 2;
    for (double t = 0;; t += step) {
      sum += step / 6 *
             (Users(users).WaitBeyond(t) + 4 * Users(users).WaitBeyond(t + step / 2) +
              Users(users).WaitBeyond(t + step));
      if (Users(users).WaitBeyond(t) < 1e-14) break;
    }
    EXPECT_NEAR(sum, Users(users).MeanWait(), 1e-5 * (1 + sum)) << users;
  }
}

// The closed forms of the design, for one GPU.
TEST(MachineRepairTest, IsARatioOfPoissonSums) {
  const double z = kThink / kBurst;
  for (const int users : {2, 3, 10, 40}) {
    EXPECT_NEAR(Users(users).Utilisation(), Poisson(users - 1, z) / Poisson(users, z), 1e-12);
    for (const double t : {1.0, 30.0, 200.0}) {
      EXPECT_NEAR(Users(users).WaitBeyond(t),
                  Poisson(users - 2, z + t / kBurst) / Poisson(users - 1, z), 1e-12);
    }
  }
}

TEST(MachineRepairTest, SeveralGpus) {
  EXPECT_NEAR(Users(3, 3).MeanWait(), 0, 1e-12);
  EXPECT_LT(Users(36, 2).MeanWait(), Users(18).MeanWait());  // one queue is better than two
  for (const int gpus : {2, 5}) {
    const MachineRepair many = Users(60, gpus);
    const double cycle = 60 * kBurst / (many.Utilisation() * gpus);  // seconds, of a user
    EXPECT_NEAR(cycle, kThink + kBurst + many.MeanWait(), 1e-9 * cycle);
  }
}

TEST(MachineRepairTest, ManyUsersKeepItBusyAndWaitForEachOther) {
  const MachineRepair crowd = Users(5000);
  EXPECT_NEAR(crowd.Utilisation(), 1, 1e-9);
  EXPECT_NEAR(crowd.MeanWait(), 5000 * kBurst - kThink - kBurst, 1e-3);
}

}  // namespace
}  // namespace tandem::plan
