#include "src/cli/doctor/finding.h"

#include <utility>

#include "src/base/text.h"

namespace tandem::cli {
namespace {

// EscapeText lets neither of them through, so that no text from outside can hold one.
constexpr char kBegin = '\x01';
constexpr char kEnd = '\x02';

}  // namespace

const char* NameOf(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return "ok";
    case Severity::kNote:
      return "note";
    case Severity::kWarning:
      return "warning";
    case Severity::kProblem:
      return "problem";
  }
  return "";
}

Finding Fine(std::string code, std::string sentence) {
  return {Severity::kOk, std::move(code), std::move(sentence), ""};
}

Finding Note(std::string code, std::string sentence, std::string remedy) {
  return {Severity::kNote, std::move(code), std::move(sentence), std::move(remedy)};
}

Finding Warning(std::string code, std::string sentence, std::string remedy) {
  return {Severity::kWarning, std::move(code), std::move(sentence), std::move(remedy)};
}

Finding Problem(std::string code, std::string sentence, std::string remedy) {
  return {Severity::kProblem, std::move(code), std::move(sentence), std::move(remedy)};
}

std::string Outside(std::string_view text) {
  return kBegin + EscapeText(text) + kEnd;
}

std::string Shown(std::string_view sentence) {
  std::string shown;
  for (const char c : sentence) {
    if (c != kBegin && c != kEnd) shown += c;
  }
  return shown;
}

std::string Hidden(std::string_view sentence) {
  std::string hidden;
  bool outside = false;
  for (const char c : sentence) {
    if (c == kBegin) hidden += "…";
    if (c == kBegin || c == kEnd) {
      outside = c == kBegin;
    } else if (!outside) {
      hidden += c;
    }
  }
  return hidden;
}

}  // namespace tandem::cli
