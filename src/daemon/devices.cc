#include "src/daemon/devices.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/base/unique_fd.h"
#include "src/cuda/probe.h"
#include "src/daemon/driver_child.h"

namespace tandem::daemon {
namespace {

using Json = nlohmann::json;

constexpr int kReapMs = 1;
constexpr Bytes kLargestChunk = MiB(64);
constexpr uint64_t kChunkShare = 100;  // of the card
constexpr size_t kMaxProbeOutput = 1 << 20;
// Of a context where nothing was ever measured: what one costs on large cards, and no more than a
// small one can spare.
constexpr Bytes kUsualContext = MiB(512);
constexpr uint64_t kUsualContextShare = 16;  // of the card

// Long enough to hide a chunk's fixed cost, short enough to be no burden on a small card.
Bytes ChunkOf(Bytes card, Bytes granularity) {
  const uint64_t wish = std::min(kLargestChunk.count, card.count / kChunkShare);
  return Bytes(std::max(wish / granularity.count, uint64_t{1}) * granularity.count);
}

Result<std::string> ReadAll(int fd, Instant deadline) {
  std::string text;
  std::array<char, 4096> part;
  while (text.size() < kMaxProbeOutput) {
    const Duration left = std::max(deadline - MonotonicNow(), Duration());
    pollfd entry{fd, POLLIN, 0};
    const int ready = poll(&entry, 1, static_cast<int>((left.ns + 999999) / 1000000));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      return Error{ErrorCode::kFailed, "the driver does not say what GPUs there are"};
    }
    const ssize_t n = read(fd, part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(part.data(), static_cast<size_t>(n));
  }
  return Error{ErrorCode::kFailed, "the probe of the GPUs does not stop talking"};
}

// What a context costs on one of the devices that a probe printed; zero where that does not say.
Bytes ContextOf(const Json& device) {
  if (!device.is_object() || !device.contains("context_bytes")) return {};
  const Json& bytes = device["context_bytes"];
  return bytes.is_number_unsigned() ? Bytes(bytes.get<uint64_t>()) : Bytes();
}

Bytes ContextIn(const Json& probe, const std::string& uuid) {
  if (!probe.is_object() || !probe.contains("devices")) return {};
  for (const Json& device : probe["devices"]) {
    if (device.is_object() && device.contains("uuid") && device["uuid"] == uuid) {
      return ContextOf(device);
    }
  }
  return {};
}

}  // namespace

int PrintProbe() {
  const Result<cuda::Probed> probed = cuda::ProbeDevices();
  Json answer;
  if (probed.ok()) {
    answer["devices"] = Json::array();
    answer["unusable"] = probed->unusable;
    for (const cuda::DeviceFacts& facts : probed->devices) {
      answer["devices"].push_back({{"uuid", facts.uuid},
                                   {"name", facts.name},
                                   {"software", facts.software},
                                   {"total_bytes", facts.total.count},
                                   {"used_bytes", facts.used.count},
                                   {"context_bytes", facts.context.count},
                                   {"granularity_bytes", facts.granularity.count}});
    }
  } else {
    answer["error"] = probed.error().message;
  }
  const std::string text = JsonText(answer);
  std::printf("%s\n", text.c_str());
  return probed.ok() ? 0 : 1;
}

Result<std::string> RunProbe(const std::string& program, Duration patience) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Error{ErrorCode::kFailed, std::strerror(errno)};
  UniqueFd reader(ends[0]), writer(ends[1]);
  ASSIGN_OR_RETURN(const pid_t child, StartDriverChild(program, "--probe", -1, writer.get()));
  writer.Reset();
  const Instant deadline = MonotonicNow() + patience;
  Result<std::string> text = ReadAll(reader.get(), deadline);
  // Not waited for after this: a process that the driver holds does not even die.
  if (!text.ok()) return kill(child, SIGKILL), text;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (MonotonicNow() >= deadline) return kill(child, SIGKILL), text;
    poll(nullptr, 0, kReapMs);
  }
  if (WIFSIGNALED(status)) {
    return Error{ErrorCode::kFailed,
                 std::string("asking the driver for its GPUs ended by signal ") +
                     strsignal(WTERMSIG(status))};
  }
  return text;
}

Result<std::vector<service::GpuInfo>> ParseDevices(const std::string& json,
                                                   uint32_t reserved_contexts,
                                                   const std::string& earlier) {
  const Json before = ParseJson(earlier);
  const Json answer = ParseJson(json);
  if (answer.is_object() && answer.contains("error")) {
    return Error{
        ErrorCode::kNotFound,
        "there is no GPU to share (" + JsonText(answer["error"]) + ")" +
            (IsSoftGpuAskedFor()
                 ? ": the software GPU does not start; the line before says why"
                 : ". Install the NVIDIA driver, or use the software GPU: TANDEM_GPU=soft")};
  }
  const Error malformed{ErrorCode::kInvalid, "the list of GPUs is malformed: " + json};
  if (!answer.is_object() || !answer.contains("devices")) return malformed;
  std::vector<service::GpuInfo> gpus;
  for (const Json& device : answer["devices"]) {
    const auto number = [&](const char* key) { return Bytes(device.value(key, uint64_t{0})); };
    if (!device.is_object()) return malformed;
    for (const char* key : {"total_bytes", "used_bytes", "context_bytes", "granularity_bytes"}) {
      if (!device.contains(key) || !device[key].is_number_unsigned()) return malformed;
    }
    if (!device.contains("uuid") || !device["uuid"].is_string()) return malformed;
    service::GpuInfo gpu;
    gpu.index = static_cast<int>(gpus.size());
    gpu.uuid = device["uuid"];
    gpu.name = device.contains("name") && device["name"].is_string() ? device["name"] : "GPU";
    gpu.software = device.contains("software") && device["software"] == true;
    gpu.card = number("total_bytes");
    gpu.foreign = number("used_bytes");
    gpu.context = number("context_bytes");
    if (gpu.context == Bytes()) gpu.context = ContextIn(before, gpu.uuid);
    if (gpu.context == Bytes()) {
      gpu.context = std::min(kUsualContext, Bytes(gpu.card.count / kUsualContextShare));
    }
    gpu.chunk = ChunkOf(gpu.card, std::max(number("granularity_bytes"), Bytes(1)));
    gpu.reserved_contexts = reserved_contexts;
    gpus.push_back(gpu);
  }
  if (gpus.empty()) return malformed;
  for (const Json& reason : answer.value("unusable", Json::array())) {
    if (reason.is_string()) spdlog::warn("left out: {}", reason.get<std::string>());
  }
  return gpus;
}

bool IsComplete(const std::string& json) {
  const Json probe = ParseJson(json);
  if (!probe.is_object() || !probe.contains("devices")) return false;
  const Json& devices = probe["devices"];
  return std::all_of(devices.begin(), devices.end(),
                     [](const Json& device) { return ContextOf(device) > Bytes(); });
}

}  // namespace tandem::daemon
