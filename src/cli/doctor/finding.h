// What a check of `tandem doctor` finds: one sentence, and one thing to do.
//
// Pure. Threading: none.
// Invariant: text from outside Tandem is in a sentence or remedy only through Outside(), so that no
// terminal obeys it and a bundle can leave it out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::cli {

// From harmless to serious. Only a problem makes `tandem doctor` end with status 1.
enum class Severity { kOk, kNote, kWarning, kProblem };

const char* NameOf(Severity severity);

struct Finding {
  Severity severity = Severity::kOk;
  std::string code;  // for programs; docs/doctor.md lists all
  std::string sentence;
  std::string remedy;  // one thing to do; empty where all is well
};

// At least one: where all is well it says so.
using Findings = std::vector<Finding>;

Finding Fine(std::string code, std::string sentence);
Finding Note(std::string code, std::string sentence, std::string remedy);
Finding Warning(std::string code, std::string sentence, std::string remedy);
Finding Problem(std::string code, std::string sentence, std::string remedy);

// `text` (a path, a name, another program's words) for a sentence: escaped, and between marks.
std::string Outside(std::string_view text);
// A sentence for people: without the marks.
std::string Shown(std::string_view sentence);
// A sentence for a bug report: "…" in the place of all that is between marks.
std::string Hidden(std::string_view sentence);

}  // namespace tandem::cli
