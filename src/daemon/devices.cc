#include "src/daemon/devices.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/base/unique_fd.h"
#include "src/cuda/probe.h"

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

bool IsSoftGpuAskedFor() {
  const char* gpu = std::getenv("TANDEM_GPU");
  return gpu != nullptr && std::strcmp(gpu, "soft") == 0;
}

// The child's environment: with the software GPU's library in front where it was asked for.
std::vector<std::string> ProbeEnvironment() {
  std::vector<std::string> environment;
  const bool soft = IsSoftGpuAskedFor();
  std::string path;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.rfind("LD_PRELOAD=", 0) == 0) continue;  // the probe talks to the real driver
    if (text.rfind("CUDA_VISIBLE_DEVICES=", 0) == 0) continue;  // and about all GPUs
    if (soft && text.rfind("LD_LIBRARY_PATH=", 0) == 0) {
      path = ":" + text.substr(text.find('=') + 1);
    } else {
      environment.push_back(text);
    }
  }
  if (soft) {
    std::error_code ignored;
    const auto bin = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    environment.push_back("LD_LIBRARY_PATH=" + (bin.parent_path() / "lib/tandem/soft").string() +
                          path);
  }
  return environment;
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
  const std::string text = answer.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
  return probed.ok() ? 0 : 1;
}

Result<std::string> RunProbe(const std::string& program, Duration patience) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Error{ErrorCode::kFailed, std::strerror(errno)};
  UniqueFd reader(ends[0]), writer(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  std::vector<std::string> environment = ProbeEnvironment();
  std::vector<char*> entries;
  for (std::string& entry : environment) entries.push_back(entry.data());
  entries.push_back(nullptr);
  std::string name = program, flag = "--probe";
  char* const arguments[] = {name.data(), flag.data(), nullptr};
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, entries.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return Error{ErrorCode::kFailed, std::strerror(failed)};
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
  const Json before = Json::parse(earlier, nullptr, /*allow_exceptions=*/false);
  const Json answer = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (answer.is_object() && answer.contains("error")) {
    return Error{
        ErrorCode::kNotFound,
        "there is no GPU to share (" + answer["error"].dump() + ")" +
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
  const Json probe = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!probe.is_object() || !probe.contains("devices")) return false;
  const Json& devices = probe["devices"];
  return std::all_of(devices.begin(), devices.end(),
                     [](const Json& device) { return ContextOf(device) > Bytes(); });
}

}  // namespace tandem::daemon
