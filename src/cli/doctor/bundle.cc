#include "src/cli/doctor/bundle.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "src/base/host_memory.h"
#include "src/cli/doctor/library_paths.h"
#include "src/cli/doctor/report.h"
#include "src/cli/fields.h"
#include "src/cuda/driver_errors.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;
using KeySet = std::set<std::string, std::less<>>;

constexpr size_t kMostLines = 200;  // of the log
constexpr std::string_view kLeftOut = "…";

// Of the daemon's answers, the keys whose values are Tandem's own, or the model of a card.
constexpr const char* kStatusKeys =
    "version uptime_s host_limit_bytes host_promised_bytes spill_limit_bytes spill_promised_bytes "
    "gpus index name software card_bytes budget_bytes charged_bytes free_bytes foreign_bytes "
    "chunk_bytes context_bytes holders waiting suspended restoring policy mode quantum_s "
    "switch_cost_s handovers out_bytes in_bytes";
constexpr const char* kSessionKeys =
    "id gpu class state since reason_code place expected_wait_s held_by suspended waited_s held_s "
    "elapsed_s leases allocated_bytes resident_bytes swapped_bytes exchanged_bytes credit_bytes "
    "limit_bytes contexts fixed_bytes host_share_bytes host_file_bytes out_bytes in_bytes";
constexpr const char* kHandoverKeys =
    "gpu epoch to from reason_code given_up lacked_bytes free_bytes out_bytes evicted_bytes "
    "in_bytes chunk_bytes at release_s took_s";

KeySet KeysIn(const char* list) {
  const std::vector<std::string> keys = PartsOf(list, " ");
  return {keys.begin(), keys.end()};
}

// `value` with no other keys than these.
Json Only(const Json& value, const KeySet& keys) {
  Json kept = value;
  if (value.is_object()) {
    kept = Json::object();
    for (const auto& [key, member] : value.items()) {
      if (keys.count(key) != 0) kept[key] = Only(member, keys);
    }
  } else if (value.is_array()) {
    for (Json& member : kept) member = Only(member, keys);
  }
  return kept;
}

// "6.1.0" of "6.1.0-13-amd64": what follows is the builder's to choose.
std::string KernelVersion() {
  utsname names{};
  if (uname(&names) != 0) return "";
  const std::string release = names.release;
  return release.substr(0, release.find_first_not_of("0123456789."));
}

// Of /etc/os-release, without quotes.
std::string OfDistribution(const Machine& machine, const std::string& key) {
  for (const std::string& line : PartsOf(ReadFile(machine, "/etc/os-release"), "\n")) {
    if (!line.starts_with(key + "=")) continue;
    std::string value = line.substr(key.size() + 1);
    std::erase(value, '"');
    return value;
  }
  return "";
}

Json System(const Machine& machine) {
  utsname names{};
  uname(&names);
  return {{"kernel", KernelVersion()},
          {"architecture", names.machine},
          {"distribution", OfDistribution(machine, "ID")},
          {"distribution_version", OfDistribution(machine, "VERSION_ID")},
          {"processors", sysconf(_SC_NPROCESSORS_ONLN)},
          {"memory_bytes", TotalHostMemory(machine.root).count},
          {"available_bytes", AvailableHostMemory(machine.root).count}};
}

// "2026-11-26 02:44:29.123 info: ", with which each line of the daemon's own begins.
size_t LengthOfStamp(std::string_view line) {
  constexpr std::string_view kPattern = "0000-00-00 00:00:00.000 ";
  if (line.size() < kPattern.size()) return 0;
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(line[i])) != 0;
    if (kPattern[i] == '0' ? !digit : line[i] != kPattern[i]) return 0;
  }
  for (const std::string_view level : {"debug", "info", "warning", "error", "critical"}) {
    const std::string_view rest = line.substr(kPattern.size());
    if (rest.starts_with(level) && rest.substr(level.size()).starts_with(": ")) {
      return kPattern.size() + level.size() + 2;
    }
  }
  return 0;
}

// The names of the driver's errors in `text`.
std::string ErrorsIn(std::string_view text) {
  static const KeySet kErrors = {
#define TANDEM_NAME(name, value, text) #name,
      TANDEM_CURESULTS(TANDEM_NAME)
#undef TANDEM_NAME
  };
  std::string errors;
  for (const std::string& word : PartsOf(std::string(text), " ,;:.()\"'")) {
    if (kErrors.count(word) != 0) errors += " " + word;
  }
  return errors;
}

// What a line ends with behind the description of a session.
std::string_view EndingOf(std::string_view text) {
  for (const std::string_view ending :
       {" has started", " has registered again", " has ended", " is expected back"}) {
    if (text.ends_with(")" + std::string(ending))) return ending;
  }
  return "";
}

// Numbers that name people or devices.
std::string WithoutNumbers(std::string text) {
  for (const std::string_view before : {"user ", " GPU-", " MIG-"}) {
    for (size_t at = 0; (at = text.find(before, at)) != std::string::npos;) {
      at += before.size();
      const size_t end = std::min(text.find_first_not_of("0123456789abcdef-", at), text.size());
      if (end > at) text.replace(at, end - at, kLeftOut);
    }
  }
  return text;
}

// Of what a line says.
std::string PublicWords(std::string_view text) {
  std::string_view prefix;
  for (const std::string_view own : {"ending: ", "chaos: ", "left out: "}) {
    if (text.starts_with(own)) prefix = own;
  }
  const bool signal = prefix == "ending: ";
  const std::string_view rest = text.substr(prefix.size());
  const size_t colon = rest.find(": ");
  const bool measured = rest.starts_with("gpu") && colon != std::string_view::npos &&
                        rest.substr(colon).starts_with(": programs outside Tandem hold ");
  const std::string_view begins = measured || signal ? "\"'`/(" : "\"'`/(:=";
  const size_t cut = std::min(rest.find_first_of(begins), rest.size());
  std::string words(text.substr(0, prefix.size() + cut));
  if (cut == rest.size()) return WithoutNumbers(std::move(words));
  words += kLeftOut;
  return WithoutNumbers(std::move(words)) + std::string(EndingOf(rest)) +
         ErrorsIn(rest.substr(cut));
}

Json PublicLines(std::string_view log) {
  std::vector<std::string> lines = PartsOf(std::string(log), "\n");
  if (lines.size() > kMostLines) lines.erase(lines.begin(), lines.end() - kMostLines);
  Json kept = Json::array();
  for (const std::string& line : lines) kept.push_back(PublicLogLine(line));
  return kept;
}

}  // namespace

std::string PublicLogLine(std::string_view line) {
  const size_t stamp = LengthOfStamp(line);
  if (stamp == 0) return std::string(kLeftOut) + ErrorsIn(line);
  return std::string(line.substr(0, stamp)) + PublicWords(line.substr(stamp));
}

Json Bundle(const Machine& machine, const std::vector<CheckResult>& results, std::string_view log) {
  const DaemonFacts& daemon = machine.daemon;
  return {{"report", ReportJson(machine, results, &Hidden)},
          {"system", System(machine)},
          {"status", Only(daemon.status, KeysIn(kStatusKeys))},
          {"sessions", Only(Member(daemon.sessions, "sessions"), KeysIn(kSessionKeys))},
          {"handovers", Only(Member(daemon.handovers, "handovers"), KeysIn(kHandoverKeys))},
          {"log", PublicLines(log)}};
}

}  // namespace tandem::cli
