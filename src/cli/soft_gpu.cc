#include "src/cli/soft_gpu.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "src/base/host_memory.h"
#include "src/base/json.h"
#include "src/cli/daemon.h"
#include "src/cli/environment.h"
#include "src/cli/print.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

// A context takes 64 MiB.
constexpr Bytes kSmallestCard = MiB(128);
constexpr uint64_t kPage = MiB(2).count;  // of the card's memory

bool IsSet(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

// What there is to say about the software GPU.
struct SoftGpuState {
  SoftGpuSetting setting;
  Bytes memory;
  std::string file;
  bool environment_wins = false;
  std::optional<int64_t> daemon_pid;
  bool restart_needed = false;
};

SoftGpuState Look(const SoftGpuSetting& setting, const std::string& file) {
  SoftGpuState state;
  state.setting = setting;
  state.file = file;
  state.memory = setting.memory.value_or(SoftGpuMemory(AvailableHostMemory(), setting.count));
  state.environment_wins = IsSet("TANDEM_SOFT_VRAM") || IsSet("TANDEM_SOFT_DEVICES");
  const Result<std::string> answer = Query("status");
  if (!answer.ok()) return state;
  const Json status = ParseJson(*answer);
  if (status.is_object() && status.contains("pid") && status["pid"].is_number_integer()) {
    state.daemon_pid = status["pid"].get<int64_t>();
  }
  state.restart_needed = !state.environment_wins && NeedsRestart(setting, *answer);
  // The cards exist: their size is the daemon's to say.
  const bool known = !setting.memory && !state.environment_wins && !state.restart_needed &&
                     status.is_object() && status.contains("gpus") && !status["gpus"].empty();
  if (known) state.memory = Bytes(status["gpus"][0].value("card_bytes", state.memory.count));
  return state;
}

std::string AsJson(const SoftGpuState& state) {
  return AsciiJson(Json{{"count", state.setting.count},
                        {"memory_bytes", state.memory.count},
                        {"memory_from", state.setting.memory ? "setting" : "host"},
                        {"file", state.file},
                        {"environment_wins", state.environment_wins},
                        {"daemon_pid", state.daemon_pid ? Json(*state.daemon_pid) : Json()},
                        {"restart_needed", state.restart_needed}});
}

std::string AsText(const SoftGpuState& state) {
  const int count = state.setting.count;
  std::string text = fmt::format("{} software GPU{} of {}", count, count == 1 ? "" : "s",
                                 FormatBytes(state.memory));
  if (state.setting.memory) {
    text += fmt::format(", set in {}\n", state.file);
  } else {
    text += ", a part of the host's free memory\n";
  }
  if (state.environment_wins) {
    text +=
        "TANDEM_SOFT_VRAM or TANDEM_SOFT_DEVICES is set, and wins over this when a daemon starts. "
        "A running daemon keeps its cards.\n";
  }
  if (state.restart_needed && state.daemon_pid) {
    text += fmt::format(
        "The daemon that runs has other cards. Once the programs under it have ended, restart it: "
        "`kill {}`, and the next `tandem run` starts a new one.\n",
        *state.daemon_pid);
  }
  return text;
}

Result<SoftGpuState> Apply(const SoftGpuOptions& options) {
  TRY(ChooseGpu(options.kind));
  const std::string file = SoftGpuFile([](const char* name) { return std::getenv(name); });
  const bool changes = options.memory || options.count;
  if (file.empty() && changes) {
    return Error{ErrorCode::kInvalid, "the setting is kept in the home directory: set HOME"};
  }
  Result<SoftGpuSetting> setting = ReadSoftGpuSetting(file);
  if (!changes) return setting.ok() ? Look(*setting, file) : Result<SoftGpuState>(setting.error());
  // A file that makes no sense is replaced.
  const SoftGpuSetting before = setting.ok() ? *setting : SoftGpuSetting();
  ASSIGN_OR_RETURN(const SoftGpuSetting after, ChangedSetting(before, options, TotalHostMemory()));
  TRY(WriteSoftGpuSetting(file, after));
  return Look(after, file);
}

}  // namespace

Result<SoftGpuSetting> ChangedSetting(SoftGpuSetting setting, const SoftGpuOptions& options,
                                      Bytes host) {
  if (options.count) setting.count = *options.count;
  if (options.memory == "auto") {
    setting.memory.reset();
  } else if (options.memory) {
    ASSIGN_OR_RETURN(const Bytes size, ParseSize(*options.memory));
    setting.memory = Bytes(size.count / kPage * kPage);
  }
  if (!setting.memory) return setting;
  const Bytes size = *setting.memory;
  if (size < kSmallestCard) {
    return Error{ErrorCode::kInvalid, fmt::format("a card of {} has no room for programs; give it "
                                                  "at least {}",
                                                  FormatBytes(size), FormatBytes(kSmallestCard))};
  }
  const Bytes most = std::min(host, kMaxSoftVram);
  const auto cards = static_cast<uint64_t>(setting.count);
  if (size.count <= most.count / cards) return setting;
  const std::string what =
      most == host
          ? fmt::format("this host has {} of memory, swap space included", FormatBytes(most))
          : fmt::format("software GPUs have at most {} in all", FormatBytes(most));
  return Error{ErrorCode::kInvalid,
               fmt::format("{} card{} of {}: {}; give a smaller --memory", cards,
                           cards == 1 ? "" : "s", FormatBytes(size), what)};
}

bool NeedsRestart(const SoftGpuSetting& setting, const std::string& status) {
  const Json answer = ParseJson(status);
  if (!answer.is_object() || !answer.contains("gpus") || !answer["gpus"].is_array()) return false;
  const Json& gpus = answer["gpus"];
  if (gpus.size() != static_cast<size_t>(setting.count)) return true;
  return setting.memory && std::any_of(gpus.begin(), gpus.end(), [&](const Json& gpu) {
           return gpu.value("card_bytes", uint64_t{0}) != setting.memory->count;
         });
}

int ShowOrSetSoftGpu(const SoftGpuOptions& options) {
  const Result<SoftGpuState> state = Apply(options);
  if (!state.ok()) return Fail(state.error());
  return Print(options.json ? AsJson(*state) + "\n" : AsText(*state));
}

}  // namespace tandem::cli
