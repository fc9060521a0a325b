// What the TANDEM_SOFT_* environment variables say. One table (OptionTable) holds every variable's
// name, default and meaning; parsing is made from it, and docs/software-gpu.md holds its rows.
//
// Threading: plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/result.h"
#include "src/base/time.h"
#include "src/softgpu/ptx/execute.h"

namespace tandem::soft {

// Of all of a process's devices together.
inline constexpr Bytes kMaxVram = GiB(256);

struct DeviceOption {
  std::string name;  // letters, digits, '-', '_' and '.': it becomes a file name
  Bytes vram;
};

struct Options {
  Bytes vram;                         // of a device that gives no size of its own
  std::vector<DeviceOption> devices;  // in the order of their ordinals
  std::string directory;              // of the devices' shared files; empty: the default one
  Bytes context;                      // VRAM that every context costs
  uint64_t bus_bytes_per_second = 0;  // per direction
  ptx::Path path = ptx::Path::kAuto;  // of the interpreter
  bool model_clock = false;
  Duration watchdog;     // the longest that a kernel may run; zero: for ever
  int32_t priority = 0;  // of this process among those that use the device: higher goes first

  // Faults. A number counts from 1; 0: it does not happen.
  uint64_t fail_alloc = 0;   // the allocation that fails
  uint64_t kill_launch = 0;  // the launch that fails with CUDA_ERROR_LAUNCH_FAILED
  uint64_t ecc_launch = 0;   // the launch that fails with CUDA_ERROR_ECC_UNCORRECTABLE
  uint64_t slow_copy = 0;    // the copy over the bus from which on it has this bandwidth
  uint64_t slow_bytes_per_second = 0;
};

struct OptionRow {
  const char* name;
  const char* default_text;
  const char* help;
  Status (*parse)(const std::string& text, Options& options);
};
std::span<const OptionRow> OptionTable();

using Environment = std::function<const char*(const char* name)>;
Result<Options> ParseOptions(const Environment& environment);

// "8GB/s", "500MB/s": decimal multiples, as buses are sold.
Result<uint64_t> ParseBandwidth(const std::string& text);

}  // namespace tandem::soft
