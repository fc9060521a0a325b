// Floating point for handlers: NaNs, flushing, saturation, half precision.
//
// A NaN result is always the canonical one, so that both paths, and every order of operands that a
// compiler may choose, give the same bits. Included like lanes.h.
#pragma once

#include <cfenv>

#include "src/softgpu/ptx/lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

inline float Absolute(float x) {
  return __builtin_fabsf(x);
}
inline double Absolute(double x) {
  return __builtin_fabs(x);
}

inline float Canonical(float x) {
  return x != x ? FloatOf(uint32_t{0x7fffffff}) : x;
}
inline double Canonical(double x) {
  return x != x ? FloatOf(uint64_t{0x7ff8000000000000}) : x;
}

// A subnormal becomes a zero of its sign. f64 is never flushed.
template <bool Ftz>
inline float Flush(float x) {
  if constexpr (Ftz) return Absolute(x) < 0x1p-126f ? FloatOf(BitsOf(x) & 0x80000000u) : x;
  return x;
}
template <bool Ftz>
inline double Flush(double x) {
  return x;
}

// To [0, 1]; NaN gives +0.
template <class F>
inline F Clamp01(F x) {
  x = x > F(0) ? x : F(0);
  return x < F(1) ? x : F(1);
}

template <bool Ftz, bool Sat, class F>
inline F Settle(F x) {
  x = Flush<Ftz>(x);
  if constexpr (Sat) return Clamp01(x);
  return Canonical(x);
}

inline float HalfToFloat(Half h) {
  const uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000) << 16;
  const uint32_t magnitude = h.bits & 0x7fff;
  if (magnitude >= 0x7c00) return FloatOf(sign | 0x7f800000u | (magnitude & 0x3ff) << 13);
  if (magnitude < 0x400) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return FloatOf(sign | BitsOf(value));
  }
  return FloatOf(sign | ((magnitude << 13) + (112u << 23)));
}

// Rounds a double (which holds any float exactly) to half.
inline Half DoubleToHalf(double x, Round round) {
  const uint64_t bits = BitsOf(x);
  const uint16_t sign = static_cast<uint16_t>(bits >> 48 & 0x8000);
  if (x != x) return {0x7fff};
  const double magnitude = FloatOf(bits & 0x7fffffffffffffff);
  const bool up = round == (sign != 0 ? Round::kDown : Round::kUp);
  if (magnitude - magnitude != 0) return {static_cast<uint16_t>(sign | 0x7c00)};
  if (magnitude >= 65536.0) {
    const bool infinite = round == Round::kNearest || up;
    return {static_cast<uint16_t>(sign | (infinite ? 0x7c00 : 0x7bff))};
  }
  // In units of the result's last place the value is q + rest; below 2^-14 that is 2^-24.
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  const int place = (exponent < -14 ? -14 : exponent) - 10;
  const double scaled = magnitude * FloatOf(static_cast<uint64_t>(1023 - place) << 52);
  uint32_t q = static_cast<uint32_t>(scaled);
  const double rest = scaled - q;
  if (round == Round::kNearest ? (rest > 0.5 || (rest == 0.5 && (q & 1) != 0)) : (up && rest > 0)) {
    ++q;
  }
  // q carries the hidden bit when the value is normal, so that adding makes the exponent right.
  const uint32_t biased = exponent < -14 ? 0 : static_cast<uint32_t>(exponent + 14);
  return {static_cast<uint16_t>(sign | (q + (biased << 10)))};
}
inline Half FloatToHalf(float x) {
  return DoubleToHalf(x, Round::kNearest);
}

// Half computes in float; the one rounding to half is exact for + - * / and sqrt, since 24 bits
// are at least 2 * 11 + 2.
inline float Widen(float x) {
  return x;
}
inline double Widen(double x) {
  return x;
}
inline float Widen(Half x) {
  return HalfToFloat(x);
}
template <class T>
inline T Narrow(float x);
template <>
inline float Narrow<float>(float x) {
  return x;
}
template <>
inline Half Narrow<Half>(float x) {
  return FloatToHalf(x);
}
template <class T>
inline double Narrow(double x) {
  return x;
}

inline int HostRound(Round round) {
  switch (round) {
    case Round::kZero:
      return FE_TOWARDZERO;
    case Round::kDown:
      return FE_DOWNWARD;
    case Round::kUp:
      return FE_UPWARD;
    default:
      return FE_TONEAREST;
  }
}

// Runs F lane by lane under the rounding mode in.round. The volatile copies pin each operation
// between the two changes of mode.
template <class F, int Arity>
bool MapRounded(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<typename F::R>(w, in.dst, active);
  const auto* a = Source<typename F::A>(w, in.a);
  const auto* b = Source<typename F::B>(w, in.b);
  const auto* c = Source<typename F::C>(w, in.c);
  std::fesetround(HostRound(in.round));
  for (int i = 0; i < kLanes; ++i) {
    const volatile typename F::A x = Cell<typename F::A>::Get(a[i]);
    if constexpr (Arity == 1) {
      const volatile typename F::R r = F::Apply(x);
      d[i] = Cell<typename F::R>::Put(r);
    } else {
      const volatile typename F::B y = Cell<typename F::B>::Get(b[i]);
      if constexpr (Arity == 2) {
        const volatile typename F::R r = F::Apply(x, y);
        d[i] = Cell<typename F::R>::Put(r);
      } else {
        const volatile typename F::C z = Cell<typename F::C>::Get(c[i]);
        const volatile typename F::R r = F::Apply(x, y, z);
        d[i] = Cell<typename F::R>::Put(r);
      }
    }
  }
  std::fesetround(FE_TONEAREST);
  Finish<typename F::R>(w, in.dst, active);
  return true;
}

}  // namespace
}  // namespace tandem::ptx::TANDEM_PTX_PATH
