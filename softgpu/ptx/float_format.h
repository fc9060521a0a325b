// The formats of floats, of 16, 32 and 64 bits alike, and the one way to round to them: by looking
// for the neighbours of an exact value. For tests.
#pragma once

#include <algorithm>
#include <cmath>

#include "softgpu/ptx/code.h"
#include "softgpu/ptx/operations.h"

namespace tandem::ptx {

struct FloatFormat {
  const char* name;
  int bits, mantissa, least, most;  // exponents of normal numbers
  uint64_t nan;

  uint64_t sign() const { return uint64_t{1} << (bits - 1); }
  uint64_t infinity() const { return static_cast<uint64_t>(most - least + 2) << mantissa; }
  // Of a magnitude; infinity stands for the power of two that follows the largest number.
  Quad Magnitude(uint64_t magnitude) const {
    const int exponent = static_cast<int>(magnitude >> mantissa);
    const uint64_t fraction = magnitude & ((uint64_t{1} << mantissa) - 1);
    const uint64_t hidden = exponent == 0 ? 0 : uint64_t{1} << mantissa;
    return std::ldexp(static_cast<long double>(fraction + hidden),
                      std::max(exponent, 1) - 1 + least - mantissa);
  }
  // Of the lowest bits of a register.
  Quad Value(uint64_t raw) const {
    const uint64_t magnitude = raw & (sign() - 1);
    const Quad value = magnitude > infinity()    ? Quad(NAN)
                       : magnitude == infinity() ? Quad(INFINITY)
                                                 : Magnitude(magnitude);
    return (raw & sign()) != 0 ? -value : value;
  }
  // `value` plus the far smaller `rest`, in the direction that `round` says.
  uint64_t Rounded(Quad value, Quad rest, Round round) const {
    if (value != value) return nan;
    const bool negative = std::signbit(static_cast<double>(value));
    const Quad magnitude = negative ? -value : value;
    const Quad along = negative ? -rest : rest;
    const uint64_t place = RoundedMagnitude(magnitude, along, round, negative);
    return place | (negative ? sign() : 0);
  }
  uint64_t Nearest(Quad value, Quad rest = 0) const {
    return Rounded(value, rest, Round::kNearest);
  }
  uint64_t Sum(Quad a, Quad b) const {
    const Quad sum = a + b, part = sum - a;
    if (sum - sum != 0) return Nearest(sum);
    return Nearest(sum, (a - (sum - part)) + (b - part));
  }
  // A subnormal number becomes a zero of its sign.
  uint64_t Flush(uint64_t raw) const {
    return (raw & (sign() - 1)) >> mantissa == 0 ? raw & sign() : raw;
  }
  // To [0, 1]; NaN gives 0.
  uint64_t Saturated(uint64_t raw) const {
    const Quad value = Value(raw);
    return value > 0 ? std::min(raw, Nearest(1)) : 0;
  }

 private:
  uint64_t RoundedMagnitude(Quad magnitude, Quad along, Round round, bool negative) const {
    if (magnitude - magnitude != 0) return infinity();
    const bool away = round == (negative ? Round::kDown : Round::kUp);
    const bool nearest = round == Round::kNearest;
    uint64_t low = 0;
    for (uint64_t high = infinity(); low < high;) {
      const uint64_t middle = (low + high + 1) / 2;
      if (Magnitude(middle) <= magnitude) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    if (low == infinity()) return nearest || away ? low : low - 1;
    const Quad below = magnitude - Magnitude(low), above = Magnitude(low + 1) - magnitude;
    if (below == 0) {
      if (nearest || along == 0) return low;
      return along > 0 ? low + (away ? 1 : 0) : low - (away ? 0 : 1);
    }
    if (!nearest) return low + (away ? 1 : 0);
    const bool odd = (low & 1) != 0;
    const bool up = above < below || (above == below && (along > 0 || (along == 0 && odd)));
    return low + (up ? 1 : 0);
  }
};

inline constexpr FloatFormat kF16 = {"f16", 16, 10, -14, 15, 0x7fff};
inline constexpr FloatFormat kBf16 = {"bf16", 16, 7, -126, 127, 0x7fff};
inline constexpr FloatFormat kF32 = {"f32", 32, 23, -126, 127, 0x7fffffff};
inline constexpr FloatFormat kF64 = {"f64", 64, 52, -1022, 1023, 0x7ff8000000000000};

}  // namespace tandem::ptx
