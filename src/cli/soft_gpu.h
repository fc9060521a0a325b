// `tandem gpu soft`: the size of the software GPU.
#pragma once

#include <optional>
#include <string>

#include "src/base/result.h"
#include "src/base/soft_gpu.h"

namespace tandem::cli {

struct SoftGpuOptions {
  std::string kind;
  std::optional<std::string> memory;  // "auto", or a size
  std::optional<int> count;
  bool json = false;
};

// The setting once `options` are applied. Errors: kInvalid where the host has less memory (`host`),
// or no context would fit on a card.
Result<SoftGpuSetting> ChangedSetting(SoftGpuSetting setting, const SoftGpuOptions& options,
                                      Bytes host);

// Whether the daemon whose `status` this is has other cards than `setting` says. Where that names
// no size, only the number of cards counts. False where `status` is not a daemon's answer.
bool NeedsRestart(const SoftGpuSetting& setting, const std::string& status);

int ShowOrSetSoftGpu(const SoftGpuOptions& options);

}  // namespace tandem::cli
