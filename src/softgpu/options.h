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
  uint64_t fail_alloc = 0;            // the number of the allocation that fails; 0: none does
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
