// `tandem plan`: how long people wait who share GPUs, and how many of them may.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/plan/forecast.h"

namespace tandem::cli {

struct PlanOptions {
  int users = 0;
  int gpus = 1;
  std::string burst = "30s";
  std::string edit = "5m";
  std::string away = "0";
  std::string stay = "2h";
  std::string timeout = "10m";
  std::string memory = "0";
  std::string card = "80G";
  std::string bus = "55G";  // a second
  std::string bound = "2m";
  std::string svg;  // a file; empty: none
  bool json = false;
};

// What is asked, understood.
struct Question {
  plan::Team team;
  double bound_s = 0;
};
Result<Question> Understand(const PlanOptions& options);

// What is answered.
struct CurvePoint {
  int users = 0;
  plan::Forecast forecast;
};
struct PlanAnswer {
  Question question;
  plan::Forecast shared;
  std::optional<plan::Wait> exclusive;
  int most_users = 0;
  std::vector<CurvePoint>
      curve;  // for about twice as many users as were asked for, or the card takes
};
PlanAnswer Answer(const Question& question);

std::string PlanText(const PlanAnswer& answer);
std::string PlanJson(const PlanAnswer& answer);
// The mean and the 99th percentile of the wait against the number of users.
std::string PlanSvg(const PlanAnswer& answer);

int ShowPlan(const PlanOptions& options);

}  // namespace tandem::cli
