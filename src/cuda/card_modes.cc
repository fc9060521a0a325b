#include "src/cuda/card_modes.h"

#include "src/cuda/nvml.h"

namespace tandem::cuda {

std::map<std::string, CardModes> ReadCardModes() {
  std::map<std::string, CardModes> cards;
  const Nvml* const nvml = TheNvml();
  if (nvml == nullptr) return cards;
  ForEachDevice(*nvml, [&](const std::string& uuid, nvmlDevice_t device) {
    CardModes& modes = cards[uuid];
    unsigned int now = 0, pending = 0;
    if (nvml->mig_mode != nullptr && nvml->mig_mode(device, &now, &pending) == NVML_SUCCESS) {
      modes.mig = now != 0;
    }
    int compute = 0;
    if (nvml->compute_mode != nullptr && nvml->compute_mode(device, &compute) == NVML_SUCCESS) {
      modes.compute = compute;
    }
  });
  return cards;
}

}  // namespace tandem::cuda
