#include "src/serve/metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "src/base/json.h"
#include "src/cli/fields.h"

namespace tandem::serve {
namespace {

using cli::List;
using cli::Member;
using cli::Number;
using cli::RawText;
using Json = nlohmann::json;

constexpr MetricType kGauge = MetricType::kGauge, kCounter = MetricType::kCounter;

// Those that a GPU has at all times, so that a graph has zeros instead of gaps (docs/json.md).
constexpr const char* kStates[] = {"idle",      "waiting",    "restoring", "running",
                                   "releasing", "suspending", "suspended", "stuck"};
constexpr const char* kReasons[] = {"turn",
                                    "memory",
                                    "context",
                                    "fixed_memory",
                                    "fixed_memory_of_others",
                                    "pause_of_others",
                                    "host_memory",
                                    "blocks_others",
                                    "foreign_memory",
                                    "daemon_restart",
                                    "limit_refused",
                                    "gpu_memory_refused",
                                    "host_memory_refused"};

constexpr Family kUp = {"tandem_up", kGauge, "", "Whether the daemon answers: 1 or 0."};
constexpr Family kBuild = {"tandem_build_info", kGauge, "",
                           "Always 1. The label version is tandem's, daemon the daemon's."};
constexpr Family kUptime = {"tandem_daemon_uptime_seconds", kGauge, "seconds",
                            "Time since the daemon started."};
constexpr Family kHost = {"tandem_host_memory_bytes", kGauge, "bytes",
                          "Host memory for what is off the GPUs: limit, and promised of it."};
constexpr Family kSpill = {"tandem_spill_bytes", kGauge, "bytes",
                           "Files for what is off the GPUs: limit, and promised of it."};

constexpr Family kGpuInfo = {"tandem_gpu_info", kGauge, "", "Always 1. Which GPU it is."};
constexpr Family kGpuMemory = {
    "tandem_gpu_memory_bytes", kGauge, "bytes",
    "Memory: card, budget that can be shared, charged and free of it, foreign programs'."};
constexpr Family kGpuSessions = {"tandem_gpu_sessions", kGauge, "", "Sessions by their state."};
constexpr Family kGpuWaiting = {
    "tandem_gpu_waiting_sessions", kGauge, "",
    "Sessions that are held back, or were refused memory, by the reason."};
constexpr Family kGpuSwapped = {"tandem_gpu_swapped_bytes", kCounter, "bytes",
                                "Bytes copied to the host (out) and back (in) by hand-overs."};

constexpr Family kSessionMemory = {
    "tandem_session_memory_bytes", kGauge, "bytes",
    "Memory: allocated, resident on the GPU, swapped, fixed on the GPU, limit of its run."};
constexpr Family kSessionSwapped = {"tandem_session_swapped_bytes", kCounter, "bytes",
                                    "Bytes copied to the host (out) and back (in)."};
constexpr Family kSessionState = {"tandem_session_state", kGauge, "",
                                  "Always 1. The session's state, and why it waits."};

// A metric that is one key of the daemon's answer.
struct Simple {
  Family family;
  const char* key;
};
constexpr Simple kOfGpu[] = {
    {{"tandem_gpu_held_seconds", kCounter, "seconds", "Time in which a session had the lease."},
     "held_s"},
    {{"tandem_gpu_active_seconds", kCounter, "seconds", "Of it, time in which one was active."},
     "busy_s"},
    {{"tandem_gpu_handovers", kCounter, "", "Hand-overs of the GPU."}, "handovers"},
    {{"tandem_gpu_turn_seconds", kGauge, "seconds", "Length of a turn."}, "quantum_s"},
    {{"tandem_gpu_switch_cost_seconds", kGauge, "seconds", "Expected cost of a hand-over."},
     "switch_cost_s"},
};
constexpr Simple kOfSession[] = {
    {{"tandem_session_held_seconds", kCounter, "seconds", "Time with the lease."}, "held_s"},
    {{"tandem_session_active_seconds", kCounter, "seconds", "Of it, time of work in flight."},
     "active_s"},
    {{"tandem_session_waited_seconds", kCounter, "seconds",
      "Time for which the program was held back."},
     "waited_s"},
    {{"tandem_session_handovers", kCounter, "", "Hand-overs that were for the session."},
     "handovers"},
    {{"tandem_session_leases", kCounter, "", "Leases that it was granted."}, "leases"},
    {{"tandem_session_exchanged_bytes", kCounter, "bytes",
      "Bytes moved between GPU and host while it ran, under --oversubscribe."},
     "exchanged_bytes"},
};

struct Kind {
  const char* kind;
  const char* key;
};
constexpr Kind kGpuKinds[] = {{"card", "card_bytes"},
                              {"budget", "budget_bytes"},
                              {"charged", "charged_bytes"},
                              {"free", "free_bytes"},
                              {"foreign", "foreign_bytes"}};
constexpr Kind kSessionKinds[] = {{"allocated", "allocated_bytes"},
                                  {"resident", "resident_bytes"},
                                  {"swapped", "swapped_bytes"},
                                  {"fixed", "fixed_bytes"},
                                  {"limit", "limit_bytes"}};
constexpr Kind kDirections[] = {{"out", "out_bytes"}, {"in", "in_bytes"}};

Labels With(Labels labels, const char* name, std::string value) {
  labels.emplace_back(name, std::move(value));
  return labels;
}

std::string Index(const Json& number) {
  return number.is_number() ? JsonText(number) : "";
}

Labels OfGpu(const Json& gpu) {
  return {{"gpu", Index(Member(gpu, "index"))}};
}

Labels OfSession(const Json& session) {
  return {{"gpu", Index(Member(session, "gpu"))},   {"session", Index(Member(session, "id"))},
          {"user", RawText(session, "user")},       {"run", RawText(session, "name")},
          {"program", RawText(session, "program")}, {"class", RawText(session, "class")}};
}

// Sessions of each GPU by what `key` says; at least a zero for each of `known`.
template <size_t N>
void AddCounts(const Json& now, const Family& family, const char* label, const char* key,
               const char* const (&known)[N], Exposition* to) {
  to->Begin(family);
  for (const Json& gpu : List(now, "gpus")) {
    std::map<std::string, int> counts;
    for (const char* word : known) counts[word] = 0;
    for (const Json& session : List(now, "sessions")) {
      const std::string word = RawText(session, key);
      if (!word.empty() && Member(session, "gpu") == Member(gpu, "index")) ++counts[word];
    }
    for (const auto& [word, count] : counts) to->Add(With(OfGpu(gpu), label, word), count);
  }
}

template <size_t N>
void AddKinds(const std::vector<Json>& entries, Labels (*labels)(const Json&), const Family& family,
              const char* label, const Kind (&kinds)[N], Exposition* to) {
  to->Begin(family);
  for (const Json& entry : entries) {
    for (const Kind& kind : kinds) {
      to->Add(With(labels(entry), label, kind.kind), Number(Member(entry, kind.key)));
    }
  }
}

template <size_t N>
void AddSimple(const std::vector<Json>& entries, Labels (*labels)(const Json&),
               const Simple (&list)[N], Exposition* to) {
  for (const Simple& simple : list) {
    to->Begin(simple.family);
    for (const Json& entry : entries) {
      to->Add(labels(entry), Number(Member(entry, simple.key)));
    }
  }
}

void AddDaemon(const Json& now, Exposition* to) {
  const bool up = Member(now, "pid").is_number();
  to->Begin(kUp);
  to->Add({}, up ? 1 : 0);
  to->Begin(kBuild);
  to->Add({{"version", TANDEM_VERSION}, {"daemon", RawText(now, "version")}}, 1);
  if (!up) return;
  to->Begin(kUptime);
  to->Add({}, Number(Member(now, "uptime_s")));
  for (const auto& [family, limit, promised] :
       {std::tuple(&kHost, "host_limit_bytes", "host_promised_bytes"),
        std::tuple(&kSpill, "spill_limit_bytes", "spill_promised_bytes")}) {
    to->Begin(*family);
    to->Add({{"kind", "limit"}}, Number(Member(now, limit)));
    to->Add({{"kind", "promised"}}, Number(Member(now, promised)));
  }
}

void AddGpus(const Json& now, Exposition* to) {
  const auto& gpus = List(now, "gpus");
  to->Begin(kGpuInfo);
  for (const Json& gpu : gpus) {
    Labels labels = OfGpu(gpu);
    for (const char* key : {"uuid", "name", "policy", "mode"}) {
      labels.emplace_back(key, RawText(gpu, key));
    }
    to->Add(labels, 1);
  }
  AddKinds(gpus, OfGpu, kGpuMemory, "kind", kGpuKinds, to);
  AddSimple(gpus, OfGpu, kOfGpu, to);
  AddKinds(gpus, OfGpu, kGpuSwapped, "direction", kDirections, to);
  AddCounts(now, kGpuSessions, "state", "state", kStates, to);
  AddCounts(now, kGpuWaiting, "reason", "reason_code", kReasons, to);
}

void AddSessions(const Json& now, Exposition* to) {
  const auto& sessions = List(now, "sessions");
  to->Begin(kSessionState);
  for (const Json& session : sessions) {
    Labels labels = With(OfSession(session), "state", RawText(session, "state"));
    to->Add(With(std::move(labels), "reason", RawText(session, "reason_code")), 1);
  }
  AddKinds(sessions, OfSession, kSessionMemory, "kind", kSessionKinds, to);
  AddSimple(sessions, OfSession, kOfSession, to);
  AddKinds(sessions, OfSession, kSessionSwapped, "direction", kDirections, to);
}

}  // namespace

std::string MetricsText(const Json& now, MetricsFormat format) {
  Exposition exposition(format);
  AddDaemon(now, &exposition);
  AddGpus(now, &exposition);
  AddSessions(now, &exposition);
  return std::move(exposition).Finish();
}

}  // namespace tandem::serve
