#include "src/cli/doctor/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "src/wire/messages.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kMarkWidth = 7;  // "problem"
constexpr const char* kBetween = "  ";
constexpr size_t kLeastWidth = 20;  // of sentences, however small the screen

const char* ColourOf(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return "32";
    case Severity::kNote:
      return "36";
    case Severity::kWarning:
      return "33";
    case Severity::kProblem:
      return "31";
  }
  return "";
}

std::string Mark(Severity severity, bool colours) {
  const std::string padded = fmt::format("{:<{}}", NameOf(severity), kMarkWidth);
  return colours ? fmt::format("\x1b[{}m{}\x1b[0m", ColourOf(severity), padded) : padded;
}

// `text` in lines of at most `width` columns (0: any), all but the first behind `indent` spaces.
std::string Wrapped(const std::string& text, size_t width, size_t indent) {
  std::string wrapped;
  size_t column = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t length = WidthOf(word);
    if (column != 0 && width != 0 && column + 1 + length > width) {
      wrapped += "\n" + std::string(indent, ' ');
      column = 0;
    }
    if (column != 0) wrapped += ' ';
    column += length + (column != 0 ? 1 : 0);
    wrapped += word;
  }
  return wrapped + "\n";
}

size_t CountOf(const std::vector<CheckResult>& results, Severity severity) {
  size_t count = 0;
  for (const CheckResult& result : results) {
    count += static_cast<size_t>(
        std::count_if(result.findings.begin(), result.findings.end(),
                      [severity](const Finding& each) { return each.severity == severity; }));
  }
  return count;
}

// "1 problem, 2 notes.", or that there is nothing.
std::string Summary(const std::vector<CheckResult>& results) {
  std::string counts;
  for (const Severity severity : {Severity::kProblem, Severity::kWarning, Severity::kNote}) {
    const size_t count = CountOf(results, severity);
    if (count == 0) continue;
    counts += fmt::format("{}{} {}{}", counts.empty() ? "" : ", ", count, NameOf(severity),
                          count == 1 ? "" : "s");
  }
  if (CountOf(results, Severity::kProblem) != 0) return counts + ".\n";
  return "No problem found" + (counts.empty() ? "" : "; " + counts) + ".\n";
}

}  // namespace

std::string ReportText(const std::vector<CheckResult>& results, const Screen& screen) {
  size_t names = 0;
  for (const CheckResult& result : results) names = std::max(names, WidthOf(result.name));
  const size_t indent = kMarkWidth + names + 2 * WidthOf(kBetween);
  const size_t room = screen.columns > indent ? screen.columns - indent : 0;
  const size_t width = screen.columns == 0 ? 0 : std::max(room, kLeastWidth);
  std::string text;
  for (const CheckResult& result : results) {
    for (const Finding& finding : result.findings) {
      text += fmt::format("{}{}{:<{}}{}", Mark(finding.severity, screen.colours), kBetween,
                          result.name, names, kBetween);
      text += Wrapped(Shown(finding.sentence), width, indent);
      if (finding.remedy.empty()) continue;
      text +=
          std::string(indent, ' ') + Wrapped("Do: " + Shown(finding.remedy) + ".", width, indent);
    }
  }
  return text + Summary(results);
}

Json ReportJson(const Machine& machine, const std::vector<CheckResult>& results,
                std::string (*words)(std::string_view sentence)) {
  Json checks = Json::array();
  for (const CheckResult& result : results) {
    Json findings = Json::array();
    for (const Finding& finding : result.findings) {
      findings.push_back(
          {{"severity", NameOf(finding.severity)},
           {"code", finding.code},
           {"sentence", words(finding.sentence)},
           {"remedy", finding.remedy.empty() ? Json() : Json(words(finding.remedy))}});
    }
    checks.push_back({{"check", result.name},
                      {"severity", NameOf(WorstOf(result.findings))},
                      {"findings", std::move(findings)}});
  }
  return {{"version", machine.version},
          {"protocol", wire::kVersion},
          {"kind", machine.gpu == Gpu::kSoft ? "soft" : "cuda"},
          {"severity", NameOf(WorstOf(results))},
          {"problems", CountOf(results, Severity::kProblem)},
          {"checks", std::move(checks)}};
}

}  // namespace tandem::cli
