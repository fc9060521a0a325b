#include "src/daemon/devices.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

constexpr Bytes kLargestChunk = MiB(64);
constexpr uint64_t kChunkShare = 100;  // of the card
constexpr size_t kMaxProbeOutput = 1 << 20;

// Long enough to hide a chunk's fixed cost, short enough to be no burden on a small card.
Bytes ChunkOf(Bytes card, Bytes granularity) {
  const uint64_t wish = std::min(kLargestChunk.count, card.count / kChunkShare);
  return Bytes(std::max(wish / granularity.count, uint64_t{1}) * granularity.count);
}

// The child's environment: with the software GPU's library in front where it was asked for.
std::vector<std::string> ProbeEnvironment() {
  std::vector<std::string> environment;
  const char* gpu = std::getenv("TANDEM_GPU");
  const bool soft = gpu != nullptr && std::strcmp(gpu, "soft") == 0;
  std::string path;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.rfind("LD_PRELOAD=", 0) == 0) continue;  // the probe talks to the real driver
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

Result<std::string> ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> part;
  while (text.size() < kMaxProbeOutput) {
    const ssize_t n = read(fd, part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(part.data(), static_cast<size_t>(n));
  }
  return Error{ErrorCode::kFailed, "the probe of the GPUs does not stop talking"};
}

}  // namespace

int PrintProbe() {
  const Result<std::vector<cuda::DeviceFacts>> devices = cuda::ProbeDevices();
  Json answer;
  if (devices.ok()) {
    answer["devices"] = Json::array();
    for (const cuda::DeviceFacts& facts : *devices) {
      answer["devices"].push_back({{"uuid", facts.uuid},
                                   {"name", facts.name},
                                   {"software", facts.software},
                                   {"total_bytes", facts.total.count},
                                   {"used_bytes", facts.used.count},
                                   {"context_bytes", facts.context.count},
                                   {"granularity_bytes", facts.granularity.count}});
    }
  } else {
    answer["error"] = devices.error().message;
  }
  const std::string text = answer.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
  return devices.ok() ? 0 : 1;
}

Result<std::string> RunProbe() {
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
  std::string program = "/proc/self/exe", flag = "--probe";
  char* const arguments[] = {program.data(), flag.data(), nullptr};
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, entries.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return Error{ErrorCode::kFailed, std::strerror(failed)};
  writer.Reset();
  Result<std::string> text = ReadAll(reader.get());
  reader.Reset();
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    return Error{ErrorCode::kFailed,
                 std::string("asking the driver for its GPUs ended by signal ") +
                     strsignal(WTERMSIG(status))};
  }
  return text;
}

Result<std::vector<service::GpuInfo>> ParseDevices(const std::string& json,
                                                   uint32_t reserved_contexts) {
  const Json answer = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (answer.is_object() && answer.contains("error")) {
    return Error{ErrorCode::kNotFound,
                 "there is no GPU to share (" + answer["error"].dump() +
                     "). Install the NVIDIA driver, or use the software GPU: TANDEM_GPU=soft"};
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
    gpu.chunk = ChunkOf(gpu.card, std::max(number("granularity_bytes"), Bytes(1)));
    gpu.reserved_contexts = reserved_contexts;
    gpus.push_back(gpu);
  }
  if (gpus.empty()) return malformed;
  return gpus;
}

}  // namespace tandem::daemon
