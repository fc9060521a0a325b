// Exposition: text in which a monitoring system reads metrics.
//
// Threading: none.
// Invariants
// 1. The samples of a family follow each other, after its description.
// 2. No label value breaks a line: what other people chose is escaped, first for people
// (EscapeText)
//    and then for the format.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::serve {

enum class MetricsFormat {
  kOpenMetrics,  // version 1.0.0
  kText,         // version 0.0.4, of Prometheus before OpenMetrics
};

enum class MetricType { kGauge, kCounter };

struct Family {
  const char* name;  // without _total; ends with its unit
  MetricType type;
  const char* unit;  // empty: none
  const char* help;
};

using Labels = std::vector<std::pair<const char*, std::string>>;

class Exposition {
 public:
  explicit Exposition(MetricsFormat format) : format_(format) {}

  // Begins a family. `family` must outlive the samples that follow.
  void Begin(const Family& family);
  void Add(const Labels& labels, double value);
  // The whole text, with its end.
  std::string Finish() &&;

 private:
  const MetricsFormat format_;
  const Family* family_ = nullptr;
  std::string text_;
};

}  // namespace tandem::serve
