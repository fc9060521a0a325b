// Floating point for handlers: NaNs, flushing, saturation, half precision.
//
// A NaN result is always the canonical one, so that all paths, and every order of operands that a
// compiler may choose, give the same bits. Included like lanes.h.
#pragma once

#include <cfenv>

#include "softgpu/ptx/lanes.h"

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
inline F Normalise(F x) {
  x = Flush<Ftz>(x);
  if constexpr (Sat) return Clamp01(x);
  return Canonical(x);
}

#if defined(__AVX512F__)
inline constexpr bool kFindsNaNs = true;
inline bool AnyNaN(const AliasF32* row) {
  typedef float V __attribute__((vector_size(64), may_alias));
  constexpr int kUnordered = 3, kCurrentRounding = 4;
  const auto* v = reinterpret_cast<const V*>(row);
  return __builtin_ia32_cmpps512_mask(v[0], v[1], kUnordered, 0xffff, kCurrentRounding) != 0;
}
#elif defined(__AVX__)
inline constexpr bool kFindsNaNs = true;
// Of a row of 32, in fewer steps than making each number canonical.
inline bool AnyNaN(const AliasF32* row) {
  typedef float V __attribute__((vector_size(32), may_alias));
  constexpr int kUnordered = 3;
  const auto* v = reinterpret_cast<const V*>(row);
  const V low = __builtin_ia32_cmpps256(v[0], v[1], kUnordered);
  const V high = __builtin_ia32_cmpps256(v[2], v[3], kUnordered);
  return __builtin_ia32_movmskps256(low) != 0 || __builtin_ia32_movmskps256(high) != 0;
}
#else
inline constexpr bool kFindsNaNs = false;
inline bool AnyNaN(const AliasF32*) {
  return true;
}
#endif

// As Map2 and Map3, for a functor F that gives the result before it is canonical, F::Raw, too.
template <class F, class Raw, class Apply>
inline void AssignFloats(AliasF32* d, uint32_t active, Raw raw, Apply apply) {
  if constexpr (!kFindsNaNs) return Assign(d, active, apply);
  Assign(d, active, raw);
  // Lanes that take no part may hold what looks like one.
  if (AnyNaN(d)) [[unlikely]]
    Assign(d, active, [=](int i) { return Canonical(d[i]); });
}

template <class F>
bool MapFloats2(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* a = Source<float>(w, in.a);
  const auto* b = Source<float>(w, in.b);
  AssignFloats<F>(
      Register<float>(w, in.dst), active, [=](int i) { return F::Raw(a[i], b[i]); },
      [=](int i) { return F::Apply(a[i], b[i]); });
  return true;
}

template <class F>
bool MapFloats3(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* a = Source<float>(w, in.a);
  const auto* b = Source<float>(w, in.b);
  const auto* c = Source<float>(w, in.c);
  AssignFloats<F>(
      Register<float>(w, in.dst), active, [=](int i) { return F::Raw(a[i], b[i], c[i]); },
      [=](int i) { return F::Apply(a[i], b[i], c[i]); });
  return true;
}

// The upper half of a float.
struct Brain {
  uint16_t bits;
};
template <>
struct Cell<Brain> {
  using Raw = AliasU32;
  static Brain Get(uint32_t raw) { return {static_cast<uint16_t>(raw)}; }
  static uint32_t Put(Brain value) { return value.bits; }
};
template <class T>
inline constexpr bool kIsSmall = kSame<T, Half> || kSame<T, Brain>;

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

// Rounds a double (which holds any float exactly) to a float with kMantissa bits of fraction and
// normal exponents from kLeast to kMost.
template <int kMantissa, int kLeast, int kMost>
inline uint16_t DoubleToSmall(double x, Round round) {
  constexpr uint32_t kInfinity = static_cast<uint32_t>(kMost - kLeast + 2) << kMantissa;
  const double above = FloatOf(static_cast<uint64_t>(1024 + kMost) << 52);
  const uint64_t bits = BitsOf(x);
  const uint16_t sign = static_cast<uint16_t>(bits >> 48 & 0x8000);
  if (x != x) return 0x7fff;
  const double magnitude = FloatOf(bits & 0x7fffffffffffffff);
  const bool up = round == (sign != 0 ? Round::kDown : Round::kUp);
  if (magnitude - magnitude != 0) return static_cast<uint16_t>(sign | kInfinity);
  if (magnitude >= above) {
    const bool infinite = round == Round::kNearest || up;
    return static_cast<uint16_t>(sign | (infinite ? kInfinity : kInfinity - 1));
  }
  // In units of the result's last place the value is q + rest; below the least normal exponent
  // that is the least subnormal.
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  const int place = (exponent < kLeast ? kLeast : exponent) - kMantissa;
  const double scaled = magnitude * FloatOf(static_cast<uint64_t>(1023 - place) << 52);
  uint32_t q = static_cast<uint32_t>(scaled);
  const double rest = scaled - q;
  if (round == Round::kNearest ? (rest > 0.5 || (rest == 0.5 && (q & 1) != 0)) : (up && rest > 0)) {
    ++q;
  }
  // q carries the hidden bit when the value is normal, so that adding makes the exponent right.
  const uint32_t biased = exponent < kLeast ? 0 : static_cast<uint32_t>(exponent - kLeast);
  return static_cast<uint16_t>(sign | (q + (biased << kMantissa)));
}

// The one rounding of a result that is known in double precision.
template <class T>
inline T RoundDouble(double x, Round round);
template <>
inline Half RoundDouble<Half>(double x, Round round) {
  return {DoubleToSmall<10, -14, 15>(x, round)};
}
template <>
inline Brain RoundDouble<Brain>(double x, Round round) {
  return {DoubleToSmall<7, -126, 127>(x, round)};
}
inline Half DoubleToHalf(double x, Round round) {
  return RoundDouble<Half>(x, round);
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
inline float Widen(Brain x) {
  return FloatOf(static_cast<uint32_t>(x.bits) << 16);
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
template <>
inline Brain Narrow<Brain>(float x) {
  return RoundDouble<Brain>(x, Round::kNearest);
}
template <class T>
inline double Narrow(double x) {
  return x;
}

// a + b so that one more rounding, to a type of at most 24 bits, gives what rounding the exact sum
// would have given: the rest is kept in an odd last bit.
inline double SumToOdd(double a, double b) {
  const double sum = a + b;
  const double part = sum - a;
  const double error = (a - (sum - part)) + (b - part);
  const uint64_t bits = BitsOf(sum);
  if (sum - sum != 0 || error == 0 || (bits & 1) != 0) return sum;
  return FloatOf((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
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
