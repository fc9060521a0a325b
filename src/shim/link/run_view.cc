#include "src/shim/link/run_view.h"

#include <cstdlib>
#include <utility>

#include "src/wire/channel.h"
#include "src/wire/runtime_dir.h"

namespace tandem::shim {
namespace {

constexpr Duration kPatience = Seconds(1);

// Lines "PID BYTES".
std::map<uint32_t, uint64_t> ReadProcesses(const std::string& text) {
  std::map<uint32_t, uint64_t> processes;
  const char* at = text.c_str();
  while (*at != 0) {
    char* end = nullptr;
    const auto pid = static_cast<uint32_t>(std::strtoul(at, &end, 10));
    if (end == at || *end != ' ') break;  // cut off
    at = end + 1;
    const uint64_t bytes = std::strtoull(at, &end, 10);
    if (end == at || *end != '\n') break;
    processes[pid] = bytes;
    at = end + 1;
  }
  return processes;
}

}  // namespace

std::optional<RunView> LookAtRun(uint64_t run, const std::string& device_uuid) {
  auto channel = wire::ConnectDaemon(wire::SocketPath());
  if (!channel.ok() || !channel->Send(wire::RunQuery{run, device_uuid}, kPatience).ok()) {
    return std::nullopt;
  }
  const Result<wire::Message> answer = channel->Receive(kPatience);
  const auto* shown = answer.ok() ? std::get_if<wire::RunShown>(&*answer) : nullptr;
  if (shown == nullptr) return std::nullopt;
  return RunView{Bytes(shown->limit_bytes), Bytes(shown->used_bytes),
                 ReadProcesses(shown->processes)};
}

}  // namespace tandem::shim
