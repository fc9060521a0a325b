#include "src/shim/swap/fingerprint.h"

#include <sys/random.h>

#include <algorithm>

namespace tandem::shim {
namespace {

constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
constexpr uint64_t kUnitsOfThread = 64;

uint64_t Remainder(uint64_t value) {
  const uint64_t folded = (value & kPrime) + (value >> 61);
  return folded >= kPrime ? folded - kPrime : folded;
}

uint64_t Product(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return Remainder((static_cast<uint64_t>(product) & kPrime) +
                   static_cast<uint64_t>(product >> 61));
}

uint64_t Power(uint64_t base, uint64_t exponent) {
  uint64_t power = 1;
  for (; exponent != 0; exponent >>= 1, base = Product(base, base)) {
    if ((exponent & 1) != 0) power = Product(power, base);
  }
  return power;
}

uint64_t Inner(const uint32_t* key, const uint32_t* words) {
  uint64_t sum = 0;
  for (int i = 0; i < 8; i += 2) {
    const uint32_t left = words[i] + key[i], right = words[i + 1] + key[i + 1];
    sum += uint64_t{left} * right;
  }
  return sum;
}

}  // namespace

bool MakeFingerprintKey(FingerprintKey* key) {
  if (getrandom(key, sizeof(*key), GRND_NONBLOCK) != static_cast<ssize_t>(sizeof(*key))) {
    return false;
  }
  for (uint64_t* pair : {key->polynomial, key->threads}) {
    for (uint64_t* factor : {pair, pair + 1}) *factor = Remainder(*factor);
  }
  return true;
}

uint64_t FingerprintBlocks(uint64_t bytes) {
  const uint64_t threads = bytes / kFingerprintUnit / kUnitsOfThread;
  return std::clamp<uint64_t>(threads / kFingerprintThreads, 1, kFingerprintBlocks);
}

Fingerprint Combine(const FingerprintKey& key, std::span<const FingerprintSums> blocks) {
  Fingerprint print;
  for (int hash = 0; hash < 2; ++hash) {
    const uint64_t next = Power(key.threads[hash], kFingerprintThreads);
    uint64_t factor = 1, sum = 0;
    for (const FingerprintSums& block : blocks) {
      const uint64_t low = Remainder(block.halves[hash][0]);
      const uint64_t high = Product(Remainder(block.halves[hash][1]), uint64_t{1} << 32);
      sum = Remainder(sum + Product(factor, Remainder(low + high)));
      factor = Product(factor, next);
    }
    print.hashes[hash] = sum;
  }
  return print;
}

FingerprintSums SumsOfBlock(const FingerprintKey& key, const uint32_t* words, uint64_t bytes,
                            uint64_t block) {
  const uint64_t stride = FingerprintBlocks(bytes) * kFingerprintThreads;
  FingerprintSums sums{};
  for (int hash = 0; hash < 2; ++hash) {
    for (uint64_t thread = 0; thread < kFingerprintThreads; ++thread) {
      uint64_t value = 0;
      for (uint64_t unit = block * kFingerprintThreads + thread; unit < bytes / kFingerprintUnit;
           unit += stride) {
        const uint64_t inner = Remainder(Inner(key.inner[hash], words + unit * 8));
        value = Remainder(Product(value, key.polynomial[hash]) + inner);
      }
      value = Product(value, Power(key.threads[hash], thread));
      sums.halves[hash][0] += value & 0xffffffff;
      sums.halves[hash][1] += value >> 32;
    }
  }
  return sums;
}

const char kFingerprintKernel[] =
#include <fingerprint_ptx.inc>
    ;

}  // namespace tandem::shim
