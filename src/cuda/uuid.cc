#include "src/cuda/uuid.h"

namespace tandem::cuda {

std::string FormatUuid(const CUuuid& uuid) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

CUuuid UuidOf(const RealDriver& real, CUdevice device) {
  CUuuid uuid{};
  const auto get =
      real.cuDeviceGetUuid_v2 != nullptr ? real.cuDeviceGetUuid_v2 : real.cuDeviceGetUuid;
  if (get != nullptr) get(&uuid, device);
  return uuid;
}

}  // namespace tandem::cuda
