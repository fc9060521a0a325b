#include "src/core/host_limits.h"

namespace tandem::core {

bool HostLimits::Fits(int gpu, Bytes bytes) const {
  const auto at = promised_.find(gpu);
  const Bytes has = at == promised_.end() ? Bytes() : at->second;
  return bytes <= has || bytes - has <= free();
}

void HostLimits::Promise(int gpu, Bytes bytes) {
  promised_[gpu] = bytes;
}

Bytes HostLimits::promised() const {
  Bytes sum;
  for (const auto& [gpu, bytes] : promised_) sum += bytes;
  return sum;
}

}  // namespace tandem::core
