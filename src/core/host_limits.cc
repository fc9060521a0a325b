#include "src/core/host_limits.h"

#include <algorithm>

namespace tandem::core {

bool HostLimits::Fits(int gpu, Bytes bytes) {
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

Bytes HostLimits::Left() {
  if (!available_) return SaturatingSubtract(limit_, promised());
  const Bytes there = available_();
  if (measured_) limit_ = std::max(limit_, Measured(there));
  return std::min(SaturatingSubtract(limit_, promised()), there);
}

}  // namespace tandem::core
