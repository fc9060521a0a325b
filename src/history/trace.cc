#include "src/history/trace.h"

#include <algorithm>

#include "src/base/json.h"
#include "src/base/text.h"

namespace tandem::history {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxShown = 64;  // bytes of a name
constexpr char kLease[] = "lease";
constexpr char kWork[] = "work";
constexpr char kSwapIn[] = "swap in";
constexpr char kSwapOut[] = "swap out";
constexpr char kTurn[] = "waits for its turn";
constexpr char kRoom[] = "waits for room for a context";
constexpr char kFixed[] = "waits for room for fixed memory";
constexpr char kSuspended[] = "suspended";

// Whether it may overlap others of its session, which one row cannot show.
bool IsAside(const std::string& name) {
  return name == kSwapOut || name == kRoom || name == kFixed || name == kSuspended;
}

double Micro(int64_t ns) {
  return static_cast<double>(ns) / 1000;
}

uint64_t Number(const Json& line, const char* field) {
  const auto at = line.find(field);
  return at != line.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

std::string Text(const Json& line, const char* field) {
  const auto at = line.find(field);
  return at != line.end() && at->is_string() ? at->get<std::string>() : "";
}

Json List(const Json& line, const char* field) {
  const auto at = line.find(field);
  return at != line.end() && at->is_array() ? *at : Json::array();
}

int GpuOf(const Json& line) {
  return static_cast<int>(Number(line, "gpu"));
}

}  // namespace

void Trace::Add(const std::string& text) {
  const Json line = ParseJson(text);
  if (!line.is_object() || !line.contains("event") || !line.contains("ns")) {
    ++skipped_;
    return;
  }
  const auto at = static_cast<int64_t>(Number(line, "ns"));
  const std::string event = Text(line, "event");
  const bool copy = event == "daemon" || event == "session";  // at a file's head, of before
  if (!copy) now_ = std::max(now_, at);
  if (event == "daemon") return OnDaemon(line);
  if (event == "session") return OnSession(line);
  if (event == "handover") return OnHandover(line);
  OnChange(event, Number(line, "session"), line);
}

// What the one before had not ended has ended with it. Instants begin anew with the machine.
void Trace::OnDaemon(const Json& line) {
  const auto at = static_cast<int64_t>(Number(line, "ns"));
  const std::pair<int64_t, int64_t> daemon(Number(line, "pid"), at);
  if (daemon_ == daemon) return;
  for (auto& [session, track] : tracks_) EndAll(session);
  if (at < now_) {
    slices_.clear();
    samples_.clear();
    tracks_.clear();
  }
  daemon_ = daemon;
  now_ = at;
  for (const Json& gpu : List(line, "gpus")) {
    if (!gpu.is_object()) continue;
    gpus_[static_cast<int>(Number(gpu, "index"))] = Text(gpu, "name");
  }
}

void Trace::OnSession(const Json& line) {
  Track& track = tracks_[Number(line, "session")];
  const std::string name = Text(line, "name");
  track.gpu = GpuOf(line);
  track.name = EscapeText(name.empty() ? Text(line, "program") : name, kMaxShown);
  track.present = true;
}

void Trace::OnHandover(const Json& line) {
  Slice slice;
  slice.gpu = GpuOf(line);
  slice.name = "to " + Label(Number(line, "to"));
  slice.begin = static_cast<int64_t>(Number(line, "revoked_ns"));
  slice.end = static_cast<int64_t>(Number(line, "running_ns"));
  Json from = Json::array();
  for (const Json& session : List(line, "from")) {
    if (session.is_number_unsigned()) from.push_back(Label(session.get<uint64_t>()));
  }
  slice.args = {{"from", std::move(from)},
                {"out_bytes", Number(line, "out_bytes")},
                {"in_bytes", Number(line, "in_bytes")},
                {"reason", Text(line, "reason_code")}};
  slices_.push_back(std::move(slice));
  const auto resident = line.find("resident_bytes");
  if (resident == line.end() || !resident->is_object()) return;
  for (const auto& [session, bytes] : resident->items()) {
    const uint64_t id = std::strtoull(session.c_str(), nullptr, 10);
    if (bytes.is_number_unsigned()) SetResident(id, bytes.get<uint64_t>());
  }
}

void Trace::OnChange(const std::string& event, uint64_t session, const Json& line) {
  const auto at = tracks_.find(session);
  if (at == tracks_.end()) return;
  const auto& open = at->second.open;
  const bool holds = open.contains(kLease);
  if (event == "gone") {
    EndAll(session);
    at->second.present = false;
    SetResident(session, 0);
  } else if (event == "ready" && !holds) {
    Begin(session, kTurn, {{"held_by", HoldersOf(at->second.gpu, session)}});
  } else if (event == "not_ready") {
    End(session, kTurn);
  } else if (event == "grant") {
    End(session, kTurn);
    Begin(session, kLease);
    Begin(session, kSwapIn);
    SetResident(session, Number(line, "credit_bytes"));
  } else if (event == "credit") {
    SetResident(session, Number(line, "credit_bytes"));
  } else if (event == "running") {
    End(session, kSwapIn);
    if (holds) Begin(session, kWork);
  } else if (event == "idle") {
    End(session, kWork);
  } else if (event == "active" && holds) {
    Begin(session, kWork);
  } else if (event == "released") {
    for (const char* const what : {kWork, kSwapIn, kLease}) End(session, what);
  } else if (event == "evict") {
    Begin(session, kSwapOut);
  } else if (event == "evicted") {
    End(session, kSwapOut);
    SetResident(session, Number(line, "resident_bytes"));
  } else if (event == "context_wanted") {
    Begin(session, kRoom);
  } else if (event == "context_reserved") {
    End(session, kRoom);
  } else if (event == "fixed_wanted") {
    Begin(session, kFixed);
  } else if (event == "fixed_reserved") {
    End(session, kFixed);
  } else if (event == "suspended") {
    Begin(session, kSuspended);
  } else if (event == "resumed") {
    End(session, kSuspended);
  }
}

void Trace::Begin(uint64_t session, const std::string& what, Json args) {
  Track& track = tracks_.at(session);
  Slice slice{track.gpu, session, what, now_, now_, std::move(args)};
  track.open.try_emplace(what, std::move(slice));
}

void Trace::End(uint64_t session, const std::string& what) {
  Track& track = tracks_.at(session);
  const auto at = track.open.find(what);
  if (at == track.open.end()) return;
  at->second.end = now_;
  slices_.push_back(std::move(at->second));
  track.open.erase(at);
}

void Trace::EndAll(uint64_t session) {
  Track& track = tracks_.at(session);
  while (!track.open.empty()) End(session, std::string(track.open.begin()->first));
}

void Trace::SetResident(uint64_t session, uint64_t bytes) {
  const auto at = tracks_.find(session);
  if (at == tracks_.end() || at->second.resident == bytes) return;
  at->second.resident = bytes;
  Sample sample{at->second.gpu, now_, {}};
  for (const auto& [id, track] : tracks_) {
    if (track.gpu == sample.gpu && (track.resident > 0 || id == session)) {
      sample.bytes[Label(id)] = track.resident;
    }
  }
  samples_.push_back(std::move(sample));
}

std::string Trace::Label(uint64_t session) const {
  const auto at = tracks_.find(session);
  const std::string name = at != tracks_.end() ? at->second.name : "session";
  return name + " (" + std::to_string(session) + ")";
}

Json Trace::HoldersOf(int gpu, uint64_t but) const {
  Json holders = Json::array();
  for (const auto& [id, track] : tracks_) {
    if (track.gpu == gpu && id != but && track.open.contains(kLease)) holders.push_back(Label(id));
  }
  return holders;
}

Json Trace::Finish(int64_t span_ns) {
  for (auto& [session, track] : tracks_) EndAll(session);
  const int64_t begin = now_ - span_ns;
  Json events = Json::array();
  const auto name = [&](const char* what, int gpu, uint64_t track, const std::string& text) {
    events.push_back({{"ph", "M"},
                      {"name", what},
                      {"pid", gpu + 1},
                      {"tid", track},
                      {"args", {{"name", text}}}});
  };
  for (const auto& [gpu, text] : gpus_) {
    name("process_name", gpu, 0, "gpu" + std::to_string(gpu) + " " + EscapeText(text, kMaxShown));
    name("thread_name", gpu, 0, "hand-overs");
  }
  std::set<uint64_t> shown;
  // The outer ones first, as the format wants those that begin at once.
  std::stable_sort(slices_.begin(), slices_.end(), [](const Slice& a, const Slice& b) {
    return std::pair(a.begin, -a.end) < std::pair(b.begin, -b.end);
  });
  for (Slice& slice : slices_) {
    if (slice.end < begin) continue;
    const bool aside = IsAside(slice.name);
    const uint64_t row = 2 * slice.track + (aside ? 1 : 0);
    if (slice.track != 0 && shown.insert(row).second) {
      name("thread_name", slice.gpu, row, Label(slice.track) + (aside ? ": memory" : ""));
    }
    const int64_t from = std::max(slice.begin, begin);
    events.push_back({{"ph", "X"},
                      {"name", slice.name},
                      {"pid", slice.gpu + 1},
                      {"tid", row},
                      {"ts", Micro(from)},
                      {"dur", Micro(slice.end - from)},
                      {"args", std::move(slice.args)}});
  }
  AppendMemory(begin, &events);
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
}

// Chrome's viewer takes the series of a counter from its first event: each event has all of them.
void Trace::AppendMemory(int64_t begin, Json* events) const {
  std::map<int, std::map<std::string, uint64_t>> nothing;  // by GPU: no bytes of each session
  for (const Sample& sample : samples_) {
    if (sample.at < begin) continue;
    for (const auto& [session, bytes] : sample.bytes) nothing[sample.gpu][session] = 0;
  }
  for (const Sample& sample : samples_) {
    if (sample.at < begin) continue;
    std::map<std::string, uint64_t> bytes = nothing[sample.gpu];
    for (const auto& [session, resident] : sample.bytes) bytes[session] = resident;
    events->push_back({{"ph", "C"},
                       {"cat", "gpu"},
                       {"name", "memory"},
                       {"pid", sample.gpu + 1},
                       {"tid", 0},
                       {"ts", Micro(sample.at)},
                       {"args", std::move(bytes)}});
  }
}

}  // namespace tandem::history
