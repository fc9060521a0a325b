// Bytes: an amount of memory, as a type of its own so that it is never mixed up with a count.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/result.h"

namespace tandem {

struct Bytes {
  uint64_t count = 0;

  constexpr Bytes() = default;
  constexpr explicit Bytes(uint64_t count) : count(count) {}

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) {
    count += other.count;
    return *this;
  }
  // REQUIRES: other <= *this.
  constexpr Bytes& operator-=(Bytes other) {
    count -= other.count;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return a += b; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return a -= b; }
};

// a − b, or nothing where b is the larger.
constexpr Bytes SaturatingSubtract(Bytes a, Bytes b) {
  return a > b ? a - b : Bytes();
}

constexpr Bytes KiB(uint64_t n) {
  return Bytes(n << 10);
}
constexpr Bytes MiB(uint64_t n) {
  return Bytes(n << 20);
}
constexpr Bytes GiB(uint64_t n) {
  return Bytes(n << 30);
}

// "256M", "8G", "1.5GiB", "4096": binary multiples (K, M, G, T, each with or without iB or B).
Result<Bytes> ParseBytes(std::string_view text);

// A size that a person typed: as above, but a number other than 0 needs its unit. `--memory 8`
// never means eight bytes.
Result<Bytes> ParseSize(std::string_view text);

// For people: "180 MiB", "1.5 GiB".
std::string FormatBytes(Bytes bytes);

}  // namespace tandem
