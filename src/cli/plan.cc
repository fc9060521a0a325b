#include "src/cli/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "src/base/bytes.h"
#include "src/base/duration.h"
#include "src/base/json.h"
#include "src/cli/print.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

constexpr int kMostUsers = 10'000;
constexpr int kMostGpus = 1000;
constexpr int kPoints = 16;                               // of the curve, at most
constexpr double kBar = 30;                               // characters of the longest
constexpr int kWidth = 640, kHeight = 360, kMargin = 60;  // of the picture

Result<double> PositiveSeconds(const char* option, const std::string& text, bool zero_too = false) {
  ASSIGN_OR_RETURN(const Duration duration, ParseDuration(text));
  if (duration > Duration() || zero_too) return duration.seconds();
  return Error{ErrorCode::kInvalid, std::string(option) + " must be more than nothing"};
}

std::string TimeText(double seconds) {
  if (seconds < 0.05) return "0 s";
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::round(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  const auto [large, small, unit] = whole < 3600
                                        ? std::tuple(whole / 60, whole % 60, "s")
                                        : std::tuple(whole / 3600, whole % 3600 / 60, "min");
  const std::string first = fmt::format("{} {}", large, whole < 3600 ? "min" : "h");
  return small == 0 ? first : fmt::format("{} {:02} {}", first, small, unit);
}

std::string Percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

Json WaitJson(const plan::Wait& wait) {
  return {{"mean_wait_s", wait.mean_s}, {"p99_wait_s", wait.p99_s}};
}

Json ForecastJson(int users, const plan::Forecast& forecast) {
  Json json = WaitJson(forecast.wait);
  json["users"] = users;
  json["utilisation"] = forecast.utilisation;
  json["switch_s"] = forecast.switch_s;
  return json;
}

std::string TeamText(const plan::Team& team) {
  std::string text =
      fmt::format("{} {} {} {}: jobs of {}, {} of other things from each to the next", team.users,
                  team.users == 1 ? "user has" : "users share", team.gpus,
                  team.gpus == 1 ? "GPU" : "GPUs", TimeText(team.burst_s), TimeText(team.edit_s));
  if (team.away_s > 0) {
    text += fmt::format(", and {} away after {}", TimeText(team.away_s), TimeText(team.stay_s));
  }
  if (team.memory > Bytes()) {
    text += fmt::format("; {} each, of {}", FormatBytes(team.memory), FormatBytes(team.card));
  }
  return text + ".\n\n";
}

std::string BoundText(const PlanAnswer& answer) {
  const int users = answer.question.team.users, most = answer.most_users;
  const std::string bound = TimeText(answer.question.bound_s);
  if (most >= users && most < kMostUsers) {
    return fmt::format("It could be {} more until that is {}: {} in all.\n", most - users, bound,
                       most);
  }
  if (most >= users) return "";
  return fmt::format("To keep that under {}, allow at most {} users.\n", bound, most);
}

std::string CurveText(const PlanAnswer& answer) {
  double longest = 0;
  for (const CurvePoint& point : answer.curve) {
    longest = std::max(longest, point.forecast.wait.p99_s);
  }
  std::string text =
      fmt::format("\n{:>8}{:>14}{:>14}{:>8}\n", "USERS", "MEAN WAIT", "99 OF 100", "BUSY");
  for (const CurvePoint& point : answer.curve) {
    const plan::Wait& wait = point.forecast.wait;
    const double part = longest > 0 ? wait.p99_s / longest : 0;
    const auto bar = static_cast<size_t>(std::lround(kBar * part));
    text += fmt::format("{:>8}{:>14}{:>14}{:>8}  {}\n", point.users, TimeText(wait.mean_s),
                        TimeText(wait.p99_s), Percent(point.forecast.utilisation),
                        std::string(bar, '#'));
  }
  return text;
}

// As a curve in the picture.
std::string Line(const PlanAnswer& answer, const char* colour, double longest,
                 double (*value)(const plan::Wait&)) {
  const double most = answer.curve.back().users;
  std::string points;
  for (const CurvePoint& point : answer.curve) {
    const double x = kMargin + (kWidth - 2 * kMargin) * point.users / most;
    const double y =
        kHeight - kMargin - (kHeight - 2 * kMargin) * value(point.forecast.wait) / longest;
    points += fmt::format("{:.1f},{:.1f} ", x, y);
  }
  return fmt::format(R"(<polyline fill="none" stroke="{}" stroke-width="2" points="{}"/>)"
                     "\n",
                     colour, points);
}

std::string Label(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format(R"(<text x="{:.0f}" y="{:.0f}" text-anchor="{}">{}</text>)"
                     "\n",
                     x, y, anchor, text);
}

}  // namespace

Result<Question> Understand(const PlanOptions& options) {
  if (options.users < 1 || options.users > kMostUsers) {
    return Error{ErrorCode::kInvalid, fmt::format("--users must be 1 to {}", kMostUsers)};
  }
  if (options.gpus < 1 || options.gpus > kMostGpus) {
    return Error{ErrorCode::kInvalid, fmt::format("--gpus must be 1 to {}", kMostGpus)};
  }
  Question question;
  plan::Team& team = question.team;
  team.users = options.users;
  team.gpus = options.gpus;
  ASSIGN_OR_RETURN(team.burst_s, PositiveSeconds("--burst", options.burst));
  ASSIGN_OR_RETURN(team.edit_s, PositiveSeconds("--edit", options.edit));
  ASSIGN_OR_RETURN(team.away_s, PositiveSeconds("--away", options.away, true));
  ASSIGN_OR_RETURN(team.stay_s, PositiveSeconds("--stay", options.stay));
  ASSIGN_OR_RETURN(team.idle_timeout_s, PositiveSeconds("--idle-timeout", options.timeout));
  ASSIGN_OR_RETURN(question.bound_s, PositiveSeconds("--bound", options.bound));
  ASSIGN_OR_RETURN(team.memory, ParseBytes(options.memory));
  ASSIGN_OR_RETURN(team.card, ParseBytes(options.card));
  ASSIGN_OR_RETURN(const Bytes bus, ParseBytes(options.bus));
  if (bus == Bytes()) return Error{ErrorCode::kInvalid, "--bus must be more than nothing"};
  team.bus_bytes_per_s = static_cast<double>(bus.count);
  if (team.memory > team.card) {
    return Error{ErrorCode::kInvalid, fmt::format("--memory {} is more than a card has (--card {})",
                                                  options.memory, options.card)};
  }
  return question;
}

PlanAnswer Answer(const Question& question) {
  PlanAnswer answer{question,
                    plan::ForecastSharing(question.team),
                    Exclusive(question.team),
                    MostUsers(question.team, question.bound_s),
                    {}};
  const double crowd = std::max<double>(question.team.users, answer.shared.saturation);
  const int last = std::clamp(static_cast<int>(1.5 * crowd), 2, kMostUsers);
  for (int point = 1; point <= kPoints; ++point) {
    plan::Team team = question.team;
    team.users = std::max(1, last * point / kPoints);
    if (!answer.curve.empty() && answer.curve.back().users == team.users) continue;
    answer.curve.push_back({team.users, plan::ForecastSharing(team)});
  }
  return answer;
}

std::string PlanText(const PlanAnswer& answer) {
  const plan::Forecast& shared = answer.shared;
  const plan::Team& team = answer.question.team;
  std::string text = TeamText(team);
  text += fmt::format("A job waits {} on average, and one of a hundred longer than {}.\n",
                      TimeText(shared.wait.mean_s), TimeText(shared.wait.p99_s));
  text += BoundText(answer);
  text += fmt::format("{} busy {} of the time", team.gpus == 1 ? "The GPU is" : "Each GPU is",
                      Percent(shared.utilisation));
  text += fmt::format("; {:.0f} users could keep it so all the time if no two ever met.\n",
                      shared.saturation);
  if (shared.switch_s > 0) {
    text += fmt::format("A job takes {} more, on average, to bring memory back to the card.\n",
                        TimeText(shared.switch_s));
  }
  if (answer.exclusive.has_value()) {
    text += fmt::format("If each kept the GPU until it is idle for {}, that would be {} and {}.\n",
                        TimeText(team.idle_timeout_s), TimeText(answer.exclusive->mean_s),
                        TimeText(answer.exclusive->p99_s));
  }
  return text + CurveText(answer);
}

std::string PlanJson(const PlanAnswer& answer) {
  Json json = ForecastJson(answer.question.team.users, answer.shared);
  json["gpus"] = answer.question.team.gpus;
  json["saturation"] = answer.shared.saturation;
  json["bound_s"] = answer.question.bound_s;
  json["most_users"] = answer.most_users;
  json["exclusive"] = answer.exclusive.has_value() ? WaitJson(*answer.exclusive) : Json();
  json["curve"] = Json::array();
  for (const CurvePoint& point : answer.curve) {
    json["curve"].push_back(ForecastJson(point.users, point.forecast));
  }
  return JsonText(json);
}

std::string PlanSvg(const PlanAnswer& answer) {
  double longest = 1e-9;
  for (const CurvePoint& point : answer.curve) {
    longest = std::max(longest, point.forecast.wait.p99_s);
  }
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-family="sans-serif" )"
      R"(font-size="12">)"
      "\n"
      R"(<rect width="100%" height="100%" fill="white"/>)"
      "\n",
      kWidth, kHeight);
  svg += fmt::format(R"(<path d="M{0},{0} V{1} H{2}" fill="none" stroke="black"/>)"
                     "\n",
                     kMargin, kHeight - kMargin, kWidth - kMargin);
  svg += Line(answer, "#c0392b", longest, [](const plan::Wait& wait) { return wait.p99_s; });
  svg += Line(answer, "#2980b9", longest, [](const plan::Wait& wait) { return wait.mean_s; });
  svg += Label(kMargin - 6, kMargin + 4, "end", TimeText(longest));
  svg += Label(kMargin - 6, kHeight - kMargin + 4, "end", "0");
  svg += Label(kWidth - kMargin, kHeight - kMargin + 18, "end",
               fmt::format("{} users", answer.curve.back().users));
  svg += Label(kMargin, kMargin - 24, "start",
               R"(Wait: <tspan fill="#2980b9">mean</tspan>, <tspan fill="#c0392b">99 of 100 wait )"
               R"(less</tspan>)");
  return svg + "</svg>\n";
}

int ShowPlan(const PlanOptions& options) {
  const Result<Question> question = Understand(options);
  if (!question.ok()) return Fail(2, question.error().message);
  const PlanAnswer answer = Answer(*question);
  if (!options.svg.empty()) {
    std::ofstream file(options.svg);
    if (!(file << PlanSvg(answer)) || !file.flush()) {
      return Fail(1, "cannot write to " + options.svg);
    }
  }
  return Print(options.json ? PlanJson(answer) + "\n" : PlanText(answer));
}

}  // namespace tandem::cli
