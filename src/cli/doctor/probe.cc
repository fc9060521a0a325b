#include "src/cli/doctor/probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/base/unique_fd.h"
#include "src/cli/print.h"
#include "src/cuda/card_modes.h"
#include "src/cuda/driver_state.h"
#include "src/cuda/memory_use.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostOutput = 1 << 20;

Json ProbeDriver() {
  const cuda::DriverState state = cuda::AskDriver();
  const bool none = state.kind == cuda::DriverState::Kind::kNone;
  const bool works = state.kind == cuda::DriverState::Kind::kWorks;
  return {{"kind", none ? "none" : works ? "works" : "broken"}, {"why", state.why}};
}

Json ProbeCards() {
  const auto uses = cuda::ReadMemoryUse();
  if (!uses.ok()) return {{"cards", Json()}};
  std::map<std::string, cuda::CardModes> modes = cuda::ReadCardModes();
  Json cards = Json::array();
  for (const auto& [uuid, use] : *uses) {
    Json processes = Json::array();
    for (const auto& [pid, range] : use.processes) processes.push_back({pid, range.most.count});
    const cuda::CardModes& mode = modes[uuid];
    cards.push_back({{"uuid", uuid},
                     {"processes", std::move(processes)},
                     {"mig", mode.mig ? Json(*mode.mig) : Json()},
                     {"compute", mode.compute ? Json(*mode.compute) : Json()}});
  }
  return {{"cards", std::move(cards)}};
}

Json ProbePreload() {
  using Build = const char* (*)();
  const auto build = reinterpret_cast<Build>(dlsym(RTLD_DEFAULT, "tandem_build"));
  if (build != nullptr) return {{"build", build()}};
  const bool older = dlsym(RTLD_DEFAULT, "tandem_find_api") != nullptr;
  return {{"build", older ? Json("unknown") : Json()}};
}

std::string ReadUntil(int fd, Instant deadline) {
  std::string text;
  std::array<char, 4096> part;
  while (text.size() < kMostOutput) {
    const Duration left = std::max(deadline - MonotonicNow(), Duration());
    pollfd entry{fd, POLLIN, 0};
    const int ready = poll(&entry, 1, static_cast<int>((left.ns + 999999) / 1000000));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return text;
    const ssize_t n = read(fd, part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(part.data(), static_cast<size_t>(n));
  }
  return text;
}

}  // namespace

int PrintProbe(const std::string& what) {
  const Json answer = what == "driver"  ? ProbeDriver()
                      : what == "cards" ? ProbeCards()
                                        : ProbePreload();
  return Print(AsciiJson(answer) + "\n");
}

std::string RunChild(const std::vector<std::string>& command, const Environment& environment,
                     Duration patience) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDERR_FILENO);
  pid_t child = 0;
  const int failed = posix_spawn(&child, command[0].c_str(), &actions, nullptr,
                                 ExecPointers(command).data(), ExecPointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return "";
  writer.Reset();
  const Instant deadline = MonotonicNow() + patience;
  std::string text = ReadUntil(reader.get(), deadline);
  // Not waited for: a process that the driver holds does not even die.
  kill(child, SIGKILL);
  waitpid(child, nullptr, WNOHANG);
  return text;
}

}  // namespace tandem::cli
