// Fingerprint: 122 bits by which two contents of a chunk are told apart.
//
// A keyed hash in two layers, twice, with keys of their own. Units of 32 bytes are hashed by NH (J.
// Black, S. Halevi, H. Krawczyk, T. Krovetz, P. Rogaway, "UMAC: Fast and Secure Message
// Authentication", CRYPTO '99), and what comes out of these by a polynomial modulo 2^61 - 1 (J. L.
// Carter, M. N. Wegman, "Universal Classes of Hash Functions", 1979). Two contents that are not
// chosen with the key in sight agree with a probability of at most 2^-55: NH gives 2^-32 for any
// difference of its results, the remainder modulo the prime makes 17 differences one, and the
// polynomial adds less than 2^-35.
//
// Each thread of the card has a polynomial of the units u, u + n, u + 2n and so on, n being all
// threads of the chunk; what each comes to is added up with powers of another random factor. Sums
// do not depend on their order, so the card may take blocks as it likes.
//
// Threading: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem::shim {

struct Fingerprint {
  uint64_t hashes[2] = {};

  bool operator==(const Fingerprint&) const = default;
};

// As the kernel takes it.
struct FingerprintKey {
  uint32_t inner[2][8];
  uint64_t polynomial[2];
  uint64_t threads[2];
};
static_assert(sizeof(FingerprintKey) == 96);

// A secret key. False: the system gives none.
bool MakeFingerprintKey(FingerprintKey* key);

inline constexpr uint64_t kFingerprintUnit = 32;
inline constexpr uint64_t kFingerprintThreads = 256;  // of a block
inline constexpr uint64_t kFingerprintBlocks = 128;   // at most, of a chunk

// What a block leaves: for each hash the sums of the low and of the high halves.
struct FingerprintSums {
  uint64_t halves[2][2];
};
// The number of blocks for a chunk of these bytes.
uint64_t FingerprintBlocks(uint64_t bytes);
Fingerprint Combine(const FingerprintKey& key, std::span<const FingerprintSums> blocks);

// The same as the kernel does, for tests.
FingerprintSums SumsOfBlock(const FingerprintKey& key, const uint32_t* words, uint64_t bytes,
                            uint64_t block);

// The kernel, as text.
extern const char kFingerprintKernel[];

}  // namespace tandem::shim
