#include "src/core/host_limits.h"

#include <algorithm>

namespace tandem::core {

bool HostLimits::Fits(int gpu, Bytes bytes) const {
  const auto at = promised_.find(gpu);
  const Bytes has = at == promised_.end() ? Bytes() : at->second;
  return bytes <= has || bytes - has <= Left();
}

void HostLimits::Promise(int gpu, Bytes bytes) {
  promised_[gpu] = bytes;
}

Bytes HostLimits::promised() const {
  Bytes sum;
  for (const auto& [gpu, bytes] : promised_) sum += bytes;
  return sum;
}

Bytes HostLimits::Left() const {
  const Bytes left = SaturatingSubtract(limit_, promised());
  return available_ ? std::min(left, available_()) : left;
}

}  // namespace tandem::core
