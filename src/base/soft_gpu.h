// The size of the software GPU where the environment does not set it: the user's setting, which a
// file keeps, or a part of the host's free memory. `tandem gpu soft` writes the file, and the
// software GPU reads it.
//
// Threading: any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "src/base/bytes.h"
#include "src/base/result.h"

namespace tandem {

inline constexpr int kMaxSoftGpus = 16;
inline constexpr Bytes kMaxSoftVram = GiB(256);  // of all devices of a process together

struct SoftGpuSetting {
  std::optional<Bytes> memory;  // of each card; none: a part of the host's
  int count = 1;                // of cards
  bool operator==(const SoftGpuSetting&) const = default;
};

// $XDG_CONFIG_HOME/tandem/soft-gpu, else ~/.config/tandem/soft-gpu. Empty where `environment`,
// which gives the value of a variable or null, names no home.
std::string SoftGpuFile(const std::function<const char*(const char*)>& environment);

// A file that does not exist gives the defaults. kInvalid, with the file's name, where a line makes
// no sense.
Result<SoftGpuSetting> ReadSoftGpuSetting(const std::string& file);

// Makes the file and the two folders above it.
Status WriteSoftGpuSetting(const std::string& file, const SoftGpuSetting& setting);

// The memory of each of `count` cards where no size is set: half of the host's free memory, divided
// among the cards. It is in whole GiB, and at least 1 GiB.
Bytes SoftGpuMemory(Bytes available, int count);

}  // namespace tandem
