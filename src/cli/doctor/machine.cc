#include "src/cli/doctor/machine.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "src/base/json.h"
#include "src/base/unique_fd.h"
#include "src/cli/daemon.h"
#include "src/cli/doctor/probe.h"
#include "src/cli/fields.h"
#include "src/wire/open_runs.h"
#include "src/wire/runtime_dir.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostText = 64 << 10;
// A little more than AskDriver's own.
constexpr Duration kDriverPatience = Seconds(12);
constexpr Duration kPatience = Seconds(10);

// The answer of `tandem probe`, behind what the dynamic loader may have said.
struct Answer {
  Json json;
  std::string before;
};

Answer Probe(const char* what, const Environment& environment, Duration patience) {
  const std::string text = RunChild({"/proc/self/exe", "probe", what}, environment, patience);
  const size_t begin = text.rfind("\n{") == std::string::npos ? 0 : text.rfind("\n{") + 1;
  Json json = ParseJson(text.substr(begin));
  if (!json.is_object()) return {Json(), text};
  return {std::move(json), text.substr(0, begin)};
}

cuda::DriverState AskDriverOf(const Environment& environment) {
  using Kind = cuda::DriverState::Kind;
  const Json answer = Probe("driver", environment, kDriverPatience).json;
  const std::string kind = RawText(answer, "kind");
  if (kind == "none") return {Kind::kNone, ""};
  if (kind == "works") return {Kind::kWorks, ""};
  const std::string why = RawText(answer, "why");
  return {Kind::kBroken, why.empty() ? "the process that asks it gives no answer" : why};
}

std::optional<std::vector<CardFacts>> AskCards(const Environment& environment) {
  const Json answer = Probe("cards", environment, kPatience).json;
  if (!Member(answer, "cards").is_array()) return std::nullopt;
  std::vector<CardFacts> cards;
  for (const Json& card : List(answer, "cards")) {
    CardFacts facts;
    facts.uuid = RawText(card, "uuid");
    for (const Json& process : List(card, "processes")) {
      facts.processes[process.at(0).get<int>()] = Bytes(process.at(1).get<uint64_t>());
    }
    const Json& mig = Member(card, "mig");
    const Json& compute = Member(card, "compute");
    if (mig.is_boolean()) facts.modes.mig = mig.get<bool>();
    if (compute.is_number_integer()) facts.modes.compute = compute.get<int>();
    cards.push_back(std::move(facts));
  }
  return cards;
}

PreloadFacts AskPreload(const Machine& machine) {
  if (!machine.layout.ok()) return {};
  const auto shared = SharedEnvironment(machine.environment, *machine.layout, machine.gpu, 0);
  if (!shared.ok()) return {false, "", shared.error().message};
  const Answer answer = Probe("preload", *shared, kPatience);
  const std::string build = RawText(answer.json, "build");
  std::string said = answer.before;
  while (said.ends_with('\n')) said.pop_back();
  return {!build.empty(), build, said};
}

DaemonFacts AskDaemon(const std::string& socket) {
  DaemonFacts facts;
  Result<wire::Channel> channel = wire::ConnectDaemon(socket);
  if (!channel.ok()) {
    facts.error = channel.error();
    return facts;
  }
  if (const Result<wire::Peer> peer = channel->GetPeer(); peer.ok()) {
    facts.pid = peer->pid;
    facts.uid = peer->uid;
    std::error_code hidden;
    facts.executable =
        std::filesystem::read_symlink("/proc/" + std::to_string(peer->pid) + "/exe", hidden);
  }
  const auto ask = [&](const char* what, Json* answer) {
    if (facts.error) return;
    const Result<std::string> text = AskForJson(&*channel, wire::Query{what});
    if (!text.ok()) {
      facts.error = text.error();
      return;
    }
    *answer = ParseJson(*text);
  };
  ask("status", &facts.status);
  ask("sessions", &facts.sessions);
  ask("handovers", &facts.handovers);
  return facts;
}

std::optional<DirectoryFacts> LookAtDirectory(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return std::nullopt;
  return DirectoryFacts{S_ISDIR(info.st_mode), info.st_uid, info.st_mode & 07777};
}

std::optional<Bytes> LimitOn(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return Bytes(limit.rlim_cur);
}

bool IsInRun(const Environment& environment) {
  const std::string run = Lookup(environment, "TANDEM_RUN").value_or("");
  char* end = nullptr;
  const uint64_t number = std::strtoull(run.c_str(), &end, 10);
  return !run.empty() && *end == 0 && wire::IsOpenRun(number);
}

void LookAtTandem(Machine* machine) {
  machine->layout = OwnLayout();
  if (machine->layout.ok()) {
    const std::string library = machine->layout->soft_dir + "/libcuda.so.1";
    std::error_code ignored;
    if (std::filesystem::exists(library, ignored)) machine->soft_library = library;
    const std::string said =
        RunChild({machine->layout->daemon, "--version"}, machine->environment, kPatience);
    const size_t begin = said.find("tandemd ");
    if (begin != std::string::npos) {
      machine->daemon_version = said.substr(begin + 8, said.find('\n', begin) - begin - 8);
    }
  }
  machine->preload = AskPreload(*machine);
}

}  // namespace

Result<Machine> LookAtMachine(const std::optional<std::string>& gpu, const std::string& program) {
  Machine machine;
  ASSIGN_OR_RETURN(const GpuChoice choice, ChooseGpu(gpu));
  machine.gpu = choice.gpu;
  machine.gpu_by_machine = choice.by_machine;
  machine.environment = OwnEnvironment();
  machine.uid = getuid();
  machine.can_open = [](const std::string& path) { return access(path.c_str(), R_OK | W_OK) == 0; };
  machine.version = TANDEM_VERSION;
  machine.program = program;
  machine.in_run = IsInRun(machine.environment);
  machine.root_starts_daemon = wire::RootStartsTheDaemon();
  machine.socket = wire::SocketPath();
  machine.directory = LookAtDirectory(wire::RuntimeDir());
  machine.locked_memory = LimitOn(RLIMIT_MEMLOCK);
  machine.address_space = LimitOn(RLIMIT_AS);
  LookAtTandem(&machine);
  machine.daemon = AskDaemon(machine.socket);
  // Without the shim, which would make a session of the question.
  const auto bare = machine.layout.ok()
                        ? BareEnvironment(machine.environment, *machine.layout, machine.gpu)
                        : Result<Environment>(machine.layout.error());
  if (!bare.ok()) return machine;
  const bool soft = machine.gpu == Gpu::kSoft;
  if (!soft) machine.driver = AskDriverOf(*bare);
  // The first process that opens the software GPU decides its size.
  const bool ask = soft ? !machine.daemon.status.is_null()
                        : machine.driver.kind == cuda::DriverState::Kind::kWorks;
  if (ask) machine.cards = AskCards(*bare);
  return machine;
}

std::string ReadFile(const Machine& machine, const std::string& path) {
  const UniqueFd fd(open((machine.root + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text;
  std::array<char, 4096> part;
  ssize_t size = 0;
  while (fd && text.size() < kMostText && (size = read(fd.get(), part.data(), part.size())) > 0) {
    text.append(part.data(), static_cast<size_t>(size));
  }
  return text;
}

bool Exists(const Machine& machine, const std::string& path) {
  return access((machine.root + path).c_str(), F_OK) == 0;
}

std::vector<std::string> FilesIn(const Machine& machine, const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(machine.root + path, error), end; !error && at != end;
       at.increment(error)) {
    names.push_back(at->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<Bytes> LargestCard(const Machine& machine) {
  std::optional<Bytes> largest;
  for (const Json& gpu : List(machine.daemon.status, "gpus")) {
    largest = std::max(largest.value_or(Bytes()), RawBytes(gpu, "card_bytes"));
  }
  return largest;
}

}  // namespace tandem::cli
