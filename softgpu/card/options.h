// What the TANDEM_SOFT_* environment variables say. One table (OptionTable) holds every variable's
// name, default and meaning; parsing is made from it, and docs/software-gpu.md holds its rows. Some
// may also stand in a file, which is read whenever it changes (Faults).
//
// Threading: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "softgpu/card/shared_page.h"
#include "softgpu/ptx/execute.h"
#include "src/base/bytes.h"
#include "src/base/host_memory.h"
#include "src/base/result.h"
#include "src/base/soft_gpu.h"
#include "src/base/time.h"

namespace tandem::soft {

// Of all of a process's devices together.
inline constexpr Bytes kMaxVram = kMaxSoftVram;

struct DeviceOption {
  std::string name;  // letters, digits, '-', '_' and '.': it becomes a file name
  Bytes vram;
  VramSource source = VramSource::kSet;
};

// What may be made to fail.
enum Fault : int {
  kFailAlloc,     // an allocation
  kFailCreate,    // cuMemCreate
  kFailMap,       // cuMemMap
  kFailCopy,      // a call that copies
  kFailRegister,  // cuMemHostRegister
  kKillLaunch,    // a launch, with CUDA_ERROR_LAUNCH_FAILED
  kEccLaunch,     // a launch, with CUDA_ERROR_ECC_UNCORRECTABLE
};
inline constexpr int kFaults = 7;

// Which of them fail.
struct FaultRule {
  enum class When { kNever, kNth, kEvery, kOneIn };
  When when = When::kNever;
  uint64_t number = 0;
  uint64_t seed = 0;  // of kOneIn
  bool operator==(const FaultRule&) const = default;
};

// Those that may change while the program runs.
struct LiveOptions {
  uint64_t bus_bytes_per_second = 0;  // per direction
  std::array<FaultRule, kFaults> rules = {};
  uint64_t slow_copy = 0;  // the copy over the bus from which on it has this bandwidth; 0: none
  uint64_t slow_bytes_per_second = 0;
  bool operator==(const LiveOptions&) const = default;
};

struct Options {
  Bytes vram;  // of a device that gives no size of its own; zero: none is set
  std::vector<DeviceOption> devices;  // in the order of their ordinals
  std::string directory;              // of the devices' shared files; empty: the default one
  bool shared = false;                // the devices are for all users
  Bytes context;                      // VRAM that every context costs
  ptx::Path path = ptx::Path::kAuto;  // of the interpreter
  bool model_clock = false;
  Duration watchdog;       // the longest that a kernel may run; zero: for ever
  Duration page_fault;     // by how much longer each takes
  int driver_version = 0;  // that the driver reports, of CUDA
  int32_t priority = 0;    // of this process among those that use the device: higher goes first

  LiveOptions live;
  std::string live_file;  // where they may change; empty: nowhere
};

struct OptionRow {
  const char* name;
  const char* default_text;
  const char* help;
  Status (*parse)(const std::string& text, Options& options);
  bool live = false;  // it sets one of LiveOptions
};
std::span<const OptionRow> OptionTable();

using Environment = std::function<const char*(const char* name)>;
// Where the environment sets neither the devices nor their size, the user's setting does
// (SoftGpuSetting). `available`: the host's free memory, of which devices without a size have a
// part.
Result<Options> ParseOptions(
    const Environment& environment,
    const std::function<Bytes()>& available = [] { return AvailableHostMemory(); });

// What the driver reports, also before cuInit: TANDEM_SOFT_DRIVER_VERSION, or its default where
// that makes no sense.
int DriverVersion(const Environment& environment);

// Lines NAME=VALUE of live options; the others are as in `base`. Empty lines and those that begin
// with # say nothing.
Result<LiveOptions> ParseLiveOptions(const std::string& text, const LiveOptions& base);

// "8GB/s", "500MB/s": decimal multiples, as buses are sold.
Result<uint64_t> ParseBandwidth(const std::string& text);

}  // namespace tandem::soft
