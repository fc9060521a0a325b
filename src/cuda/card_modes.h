// CardModes: settings of a card that decide whether programs can share it. NVML is asked, as in
// memory_use.h.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace tandem::cuda {

// Of nvmlDeviceGetComputeMode.
inline constexpr int kComputeExclusiveThread = 1;
inline constexpr int kComputeProhibited = 2;
inline constexpr int kComputeExclusiveProcess = 3;

struct CardModes {
  std::optional<bool> mig;  // divided into instances; none: the card cannot be
  std::optional<int> compute;
};

// By the uuid of the GPU, as FormatUuid prints it. Empty without NVML.
std::map<std::string, CardModes> ReadCardModes();

}  // namespace tandem::cuda
