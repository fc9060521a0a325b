#include "src/serve/exposition.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>

#include "src/base/text.h"

namespace tandem::serve {
namespace {

std::string LabelValue(std::string_view value) {
  std::string text;
  for (const char c : EscapeText(value)) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text;
}

std::string NumberText(double value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (std::abs(value) < kExact && std::floor(value) == value) {
    return std::to_string(static_cast<int64_t>(value));
  }
  return fmt::format("{}", value);
}

}  // namespace

void Exposition::Begin(const Family& family) {
  family_ = &family;
  const bool counter = family.type == MetricType::kCounter;
  // OpenMetrics describes the family, the older format each of its metrics.
  const bool total = counter && format_ == MetricsFormat::kText;
  const std::string name = std::string(family.name) + (total ? "_total" : "");
  text_ += fmt::format("# TYPE {} {}\n", name, counter ? "counter" : "gauge");
  if (format_ == MetricsFormat::kOpenMetrics && *family.unit != 0) {
    text_ += fmt::format("# UNIT {} {}\n", name, family.unit);
  }
  text_ += fmt::format("# HELP {} {}\n", name, family.help);
}

void Exposition::Add(const Labels& labels, double value) {
  text_ += family_->name;
  if (family_->type == MetricType::kCounter) text_ += "_total";
  std::string list;
  for (const auto& [name, label] : labels) {
    list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", name, LabelValue(label));
  }
  if (!list.empty()) text_ += "{" + list + "}";
  text_ += " " + NumberText(value) + "\n";
}

std::string Exposition::Finish() && {
  if (format_ == MetricsFormat::kOpenMetrics) text_ += "# EOF\n";
  return std::move(text_);
}

}  // namespace tandem::serve
