#include "softgpu/card/busy_time.h"

#include <algorithm>

namespace tandem::soft {
namespace {

constexpr int64_t kBucketNs = 1'000'000'000 / kBusyBuckets;

// A bucket: its number since the clock's beginning (32 bits), microseconds of it (32).
uint32_t NumberOf(uint64_t bucket) {
  return static_cast<uint32_t>(bucket >> 32);
}
uint32_t MicrosOf(uint64_t bucket) {
  return static_cast<uint32_t>(bucket);
}

void AddTo(Slot& slot, int64_t number, int64_t micros) {
  std::atomic<uint64_t>& bucket = slot.busy[number % kBusyBuckets];
  const auto wanted = static_cast<uint32_t>(number);
  uint64_t old = bucket.load();
  uint64_t sum;
  do {
    const uint32_t before = NumberOf(old) == wanted ? MicrosOf(old) : 0;
    sum = uint64_t{wanted} << 32 | (before + static_cast<uint32_t>(micros));
  } while (!bucket.compare_exchange_weak(old, sum));
}

}  // namespace

void AddBusyTime(Slot& slot, Duration length, Instant now) {
  int64_t end = now.ns;
  int64_t left = std::min(length.ns, kBucketNs * (kBusyBuckets - 1));
  while (left > 0) {
    const int64_t part = std::min(left, (end - 1) % kBucketNs + 1);
    AddTo(slot, (end - 1) / kBucketNs, (part + 500) / 1000);
    end -= part;
    left -= part;
  }
}

unsigned int BusyPercent(const Slot& slot, Instant now) {
  const auto current = static_cast<uint32_t>(now.ns / kBucketNs);
  int64_t micros = 0;
  for (const auto& word : slot.busy) {
    const uint64_t bucket = word.load();
    if (current - NumberOf(bucket) < kBusyBuckets) micros += MicrosOf(bucket);
  }
  // The bucket of the moment has only begun.
  const int64_t span = (kBusyBuckets - 1) * kBucketNs + now.ns % kBucketNs;
  return static_cast<unsigned int>(std::min<int64_t>(micros * 1000 * 100 / span, 100));
}

void ClearBusyTime(Slot& slot) {
  for (auto& bucket : slot.busy) bucket.store(0);
}

}  // namespace tandem::soft
