#include "softgpu/card/options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>

#include "softgpu/card/identity.h"
#include "src/base/duration.h"

namespace tandem::soft {
namespace {

Error Invalid(std::string message) {
  return Error{ErrorCode::kInvalid, std::move(message)};
}

constexpr int kOldestDriverVersion = 12000;

bool IsDeviceName(std::string_view name) {
  if (name.empty() || name.size() > 64 || name[0] == '.') return false;
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return name.find_first_not_of(kAllowed) == std::string_view::npos;
}

// A VRAM size: at least one page of device memory.
Result<Bytes> ParseVram(const std::string& text) {
  ASSIGN_OR_RETURN(const Bytes bytes, ParseBytes(text));
  if (bytes < MiB(2) || bytes > kMaxVram) {
    return Invalid("VRAM of '" + text + "' is outside 2M to " + FormatBytes(kMaxVram));
  }
  return Bytes(bytes.count / MiB(2).count * MiB(2).count);
}

Status SetVram(const std::string& text, Options& options) {
  if (text.empty()) return {};
  ASSIGN_OR_RETURN(options.vram, ParseVram(text));
  return {};
}

Status SetDevices(const std::string& text, Options& options) {
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    const std::string item = text.substr(start, end - start);
    const size_t colon = item.find(':');
    DeviceOption device{item.substr(0, colon), options.vram, VramSource::kSet};
    if (device.vram == Bytes()) device.source = VramSource::kHost;
    if (!IsDeviceName(device.name)) return Invalid("'" + device.name + "' cannot name a device");
    for (const DeviceOption& other : options.devices) {
      if (other.name == device.name) return Invalid("device '" + device.name + "' is named twice");
    }
    if (colon != std::string::npos) {
      ASSIGN_OR_RETURN(device.vram, ParseVram(item.substr(colon + 1)));
      device.source = VramSource::kSet;
    }
    options.devices.push_back(std::move(device));
    start = end + 1;
  }
  if (options.devices.size() > kMaxSoftGpus) return Invalid("more than 16 devices");
  Bytes sum;
  for (const DeviceOption& device : options.devices) sum += device.vram;
  if (sum > kMaxVram) {
    return Invalid("the devices have more than " + FormatBytes(kMaxVram) + " of VRAM in all");
  }
  return {};
}

Status SetDirectory(const std::string& text, Options& options) {
  options.directory = text;
  return {};
}

Status SetShared(const std::string& text, Options& options) {
  if (text != "0" && text != "1") return Invalid("'" + text + "' is neither 0 nor 1");
  options.shared = text == "1";
  if (options.shared && options.directory.empty()) {
    return Invalid("a device for all users needs TANDEM_SOFT_DIR, a directory of root's");
  }
  return {};
}

Status SetContext(const std::string& text, Options& options) {
  ASSIGN_OR_RETURN(options.context, ParseBytes(text));
  return {};
}

Status SetBus(const std::string& text, Options& options) {
  ASSIGN_OR_RETURN(options.live.bus_bytes_per_second, ParseBandwidth(text));
  return {};
}

Status SetClock(const std::string& text, Options& options) {
  if (text != "real" && text != "model") return Invalid("'" + text + "' is neither real nor model");
  options.model_clock = text == "model";
  return {};
}

// "12.4": 12040, as the driver counts.
Status SetDriverVersion(const std::string& text, Options& options) {
  int major = 0, minor = 0, end = 0;
  const int read = std::sscanf(text.c_str(), "%2d.%1d%n", &major, &minor, &end);
  const int version = 1000 * major + 10 * minor;
  const bool whole = read == 2 && static_cast<size_t>(end) == text.size();
  if (!whole || version < kOldestDriverVersion || version > kDriverVersion) {
    return Invalid("'" + text + "' is no version from 12.0 to 13.0");
  }
  options.driver_version = version;
  return {};
}

Status SetWatchdog(const std::string& text, Options& options) {
  ASSIGN_OR_RETURN(options.watchdog, ParseDuration(text));
  return {};
}

Status SetPageFault(const std::string& text, Options& options) {
  ASSIGN_OR_RETURN(options.page_fault, ParseDuration(text));
  return {};
}

Status SetPriority(const std::string& text, Options& options) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (*end != '\0' || text.empty() || value < -100 || value > 100) {
    return Invalid("'" + text + "' is no priority from -100 to 100");
  }
  options.priority = static_cast<int32_t>(value);
  return {};
}

Status SetCount(const std::string& text, uint64_t& count) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) {
    return Invalid("'" + text + "' is no count");
  }
  count = std::strtoull(text.c_str(), nullptr, 10);
  return {};
}

// N, every:N, 1/N or 1/N:SEED.
template <Fault kFault>
Status SetRule(const std::string& text, Options& options) {
  FaultRule rule;
  std::string number = text;
  if (text.starts_with("every:")) {
    rule.when = FaultRule::When::kEvery;
    number = text.substr(6);
  } else if (text.starts_with("1/")) {
    rule.when = FaultRule::When::kOneIn;
    const size_t colon = std::min(text.find(':'), text.size());
    number = text.substr(2, colon - 2);
    if (colon < text.size()) TRY(SetCount(text.substr(colon + 1), rule.seed));
  }
  TRY(SetCount(number, rule.number));
  const bool plain = rule.when == FaultRule::When::kNever;
  if (!plain && rule.number == 0) return Invalid("'" + text + "' never comes");
  if (plain && rule.number != 0) rule.when = FaultRule::When::kNth;
  options.live.rules[kFault] = rule;
  return {};
}

Status SetLiveFile(const std::string& text, Options& options) {
  options.live_file = text;
  return {};
}

Status SetSlowBus(const std::string& text, Options& options) {
  LiveOptions& live = options.live;
  live.slow_copy = live.slow_bytes_per_second = 0;
  if (text == "0") return {};
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return Invalid("'" + text + "' is not COPY:BANDWIDTH");
  TRY(SetCount(text.substr(0, colon), live.slow_copy));
  ASSIGN_OR_RETURN(live.slow_bytes_per_second, ParseBandwidth(text.substr(colon + 1)));
  return {};
}

Status SetPath(const std::string& text, Options& options) {
  constexpr std::pair<std::string_view, ptx::Path> kPaths[] = {{"auto", ptx::Path::kAuto},
                                                               {"baseline", ptx::Path::kBaseline},
                                                               {"avx2", ptx::Path::kAvx2},
                                                               {"avx512", ptx::Path::kAvx512}};
  for (const auto& [name, path] : kPaths) {
    if (text != name) continue;
    options.path = path;
    return {};
  }
  return Invalid("'" + text + "' is none of auto, baseline, avx2 and avx512");
}

// VRAM comes before DEVICES, which takes its default from it, and DIR before SHARED, which needs
// it.
constexpr OptionRow kTable[] = {
    {"TANDEM_SOFT_VRAM", "",
     "VRAM of a device, shared by all processes that use it (else that of `tandem gpu soft`)",
     SetVram},
    {"TANDEM_SOFT_DEVICES", "gpu0", "comma-separated devices, each NAME or NAME:VRAM", SetDevices},
    {"TANDEM_SOFT_DIR", "", "where the devices' shared files lie (else /tmp/tandem-UID)",
     SetDirectory},
    {"TANDEM_SOFT_SHARED", "0",
     "for tests: 1 lets all users share the devices in TANDEM_SOFT_DIR, which root owns",
     SetShared},
    {"TANDEM_SOFT_CONTEXT", "64M", "VRAM that every context costs", SetContext},
    {"TANDEM_SOFT_PCIE", "8GB/s", "bandwidth of the bus, per direction", SetBus, true},
    {"TANDEM_SOFT_ISA", "auto",
     "how kernels run: auto (the fastest that the processor has), or at most baseline, avx2, "
     "avx512",
     SetPath},
    {"TANDEM_SOFT_DRIVER_VERSION", "13.0",
     "the version of CUDA that the driver reports, from 12.0 on", SetDriverVersion},
    {"TANDEM_SOFT_CLOCK", "real", "`real`, or `model`: device times that do not depend on the host",
     SetClock},
    {"TANDEM_SOFT_WATCHDOG", "0", "the longest that a kernel may run, such as 2s (0: for ever)",
     SetWatchdog},
    {"TANDEM_SOFT_PRIORITY", "0",
     "of this process, -100 to 100: while it has work, lower ones have none of the compute engine",
     SetPriority},
    {"TANDEM_SOFT_PAGE_FAULT", "0",
     "for tests: by how much longer the work of engines takes for each of its page faults, such as "
     "0.002ms",
     SetPageFault},
    {"TANDEM_SOFT_FAIL_ALLOC", "0", "for tests: which allocations fail (below)",
     SetRule<kFailAlloc>, true},
    {"TANDEM_SOFT_FAIL_CREATE", "0", "for tests: which calls of cuMemCreate fail",
     SetRule<kFailCreate>, true},
    {"TANDEM_SOFT_FAIL_MAP", "0", "for tests: which calls of cuMemMap fail", SetRule<kFailMap>,
     true},
    {"TANDEM_SOFT_FAIL_COPY", "0", "for tests: which calls that copy fail", SetRule<kFailCopy>,
     true},
    {"TANDEM_SOFT_FAIL_REGISTER", "0", "for tests: which calls of cuMemHostRegister fail",
     SetRule<kFailRegister>, true},
    {"TANDEM_SOFT_KILL_LAUNCH", "0",
     "for tests: which kernel launches fail and take their context with them", SetRule<kKillLaunch>,
     true},
    {"TANDEM_SOFT_ECC_LAUNCH", "0",
     "for tests: which kernel launches meet an uncorrectable memory error", SetRule<kEccLaunch>,
     true},
    {"TANDEM_SOFT_SLOW_BUS", "0",
     "for tests: COPY:BANDWIDTH, the bandwidth of the bus from the process's n-th copy on (0: "
     "none)",
     SetSlowBus, true},
    {"TANDEM_SOFT_FAULTS_FILE", "",
     "for tests: a file that sets those above, and TANDEM_SOFT_PCIE, anew while programs run",
     SetLiveFile},
};

// The user's setting, as the variables that it stands for.
using Fallback = std::map<std::string, std::string>;

// It is one whole: where the environment sets a part of it, none of it counts.
Result<Fallback> ReadFallback(const Environment& environment) {
  for (const char* name : {"TANDEM_SOFT_VRAM", "TANDEM_SOFT_DEVICES"}) {
    const char* set = environment(name);
    if (set != nullptr && *set != '\0') return Fallback();
  }
  ASSIGN_OR_RETURN(const SoftGpuSetting setting, ReadSoftGpuSetting(SoftGpuFile(environment)));
  std::string devices = "gpu0";
  for (int i = 1; i < setting.count; ++i) devices += ",gpu" + std::to_string(i);
  Fallback fallback = {{"TANDEM_SOFT_DEVICES", devices}};
  if (setting.memory) fallback["TANDEM_SOFT_VRAM"] = std::to_string(setting.memory->count);
  return fallback;
}

// Gives a size to the devices that have none.
void TakeFromHost(const std::function<Bytes()>& available, Options& options) {
  int count = 0;
  Bytes left = kMaxVram;
  for (const DeviceOption& device : options.devices) {
    if (device.source == VramSource::kHost) ++count;
    left -= device.vram;
  }
  if (count == 0) return;
  const uint64_t most = left.count / static_cast<uint64_t>(count) / MiB(2).count * MiB(2).count;
  const Bytes share = std::min(SoftGpuMemory(available(), count), Bytes(most));
  for (DeviceOption& device : options.devices) {
    if (device.source == VramSource::kHost) device.vram = share;
  }
}

}  // namespace

std::span<const OptionRow> OptionTable() {
  return kTable;
}

Result<Options> ParseOptions(const Environment& environment,
                             const std::function<Bytes()>& available) {
  ASSIGN_OR_RETURN(const Fallback fallback, ReadFallback(environment));
  Options options;
  for (const OptionRow& row : kTable) {
    const char* text = environment(row.name);
    if (text == nullptr || *text == '\0') {
      const auto set = fallback.find(row.name);
      text = set != fallback.end() ? set->second.c_str() : row.default_text;
    }
    if (Status status = row.parse(text, options); !status.ok()) {
      return Invalid(std::string(row.name) + ": " + status.error().message);
    }
  }
  TakeFromHost(available, options);
  return options;
}

int DriverVersion(const Environment& environment) {
  Options options;
  const char* text = environment("TANDEM_SOFT_DRIVER_VERSION");
  const bool set = text != nullptr && SetDriverVersion(text, options).ok();
  return set ? options.driver_version : kDriverVersion;
}

Result<LiveOptions> ParseLiveOptions(const std::string& text, const LiveOptions& base) {
  Options options;
  options.live = base;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    start = end + 1;
    if (line.empty() || line[0] == '#') continue;
    const std::string name = line.substr(0, line.find('='));
    const auto* row = std::ranges::find_if(
        kTable, [&](const OptionRow& each) { return each.live && name == each.name; });
    if (row == std::end(kTable) || name.size() == line.size()) {
      return Invalid("'" + line + "' sets nothing that may change");
    }
    if (Status status = row->parse(line.substr(name.size() + 1), options); !status.ok()) {
      return Invalid(name + ": " + status.error().message);
    }
  }
  return options.live;
}

Result<uint64_t> ParseBandwidth(const std::string& text) {
  const Error bad = Invalid("'" + text + "' is not a bandwidth; write for example 8GB/s");
  if (text.empty() || text[0] < '0' || text[0] > '9') return bad;
  char* end = nullptr;
  double rate = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  if (unit == "GB/s" || unit == "G") {
    rate *= 1e9;
  } else if (unit == "MB/s" || unit == "M") {
    rate *= 1e6;
  } else if (unit == "KB/s" || unit == "kB/s" || unit == "K") {
    rate *= 1e3;
  } else if (unit != "B/s" && !unit.empty()) {
    return bad;
  }
  if (!(rate >= 1e3 && rate <= 1e13)) return bad;
  return static_cast<uint64_t>(rate);
}

}  // namespace tandem::soft
