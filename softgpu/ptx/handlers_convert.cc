// cvt: between all types, with rounding, saturation and flushing.
#include "softgpu/ptx/float_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

template <class T>
struct Limits {
  static constexpr T kMin = kIsSigned<T> ? T(Unsigned<T>(1) << (kBits<T> - 1)) : T(0);
  static constexpr T kMax =
      static_cast<T>(static_cast<Unsigned<T>>(~Unsigned<T>(0)) >> (kIsSigned<T> ? 1 : 0));
};

// Integer to integer. The destination register may be wider than D: the result is extended as D.
template <class D, class S, bool Sat>
struct IntToInt {
  using R = D;
  using A = S;
  static D Apply(S x) {
    if constexpr (Sat) {
      if constexpr (kIsSigned<S>) {
        if (x < 0) {
          if constexpr (!kIsSigned<D>) return 0;
          return static_cast<int64_t>(x) < static_cast<int64_t>(Limits<D>::kMin)
                     ? Limits<D>::kMin
                     : static_cast<D>(x);
        }
      }
      return static_cast<uint64_t>(x) > static_cast<uint64_t>(Limits<D>::kMax) ? Limits<D>::kMax
                                                                               : static_cast<D>(x);
    } else {
      return static_cast<D>(x);
    }
  }
};

template <Round round, class F>
inline F RoundToIntegral(F x) {
  if constexpr (sizeof(F) == 4) {
    if constexpr (round == Round::kNearest) return __builtin_rintf(x);
    if constexpr (round == Round::kZero) return __builtin_truncf(x);
    if constexpr (round == Round::kDown) return __builtin_floorf(x);
    return __builtin_ceilf(x);
  } else {
    if constexpr (round == Round::kNearest) return __builtin_rint(x);
    if constexpr (round == Round::kZero) return __builtin_trunc(x);
    if constexpr (round == Round::kDown) return __builtin_floor(x);
    return __builtin_ceil(x);
  }
}

// Float to integer always saturates; NaN gives 0.
template <class D, class S, Round round, bool Ftz>
struct FloatToInt {
  using R = D;
  using A = S;
  static D Apply(S raw) {
    using F = decltype(Widen(raw));
    F x = Flush<Ftz>(Widen(raw));
    if constexpr (round != Round::kZero) x = RoundToIntegral<round>(x);
    // 2^digits, the first value too large, is exact in any float; so is the least value.
    constexpr int kDigits = kBits<D> - (kIsSigned<D> ? 1 : 0);
    constexpr F kAbove = static_cast<F>(uint64_t{1} << (kDigits - 1)) * F(2);
    constexpr F kLeast = kIsSigned<D> ? -kAbove : F(0);
    const F inside = x > kLeast && x < kAbove ? x : F(0);
    D r;
    if constexpr (sizeof(D) < 4) {
      r = static_cast<D>(static_cast<int32_t>(inside));
    } else {
      r = static_cast<D>(inside);
    }
    r = x >= kAbove ? Limits<D>::kMax : r;
    return x <= kLeast ? Limits<D>::kMin : r;
  }
};

// As a double that can be rounded once more: what lies below its 53 bits is kept in the last one.
template <class S>
inline double ToOdd(S x) {
  const bool negative = x < 0;
  const uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(x));
  const uint64_t magnitude = negative ? 0 - bits : bits;
  const uint64_t kept = magnitude >> 53 == 0 ? magnitude
                                             : (magnitude & ~uint64_t{0x7ff}) |
                                                   ((magnitude & 0x7ff) != 0 ? uint64_t{0x800} : 0);
  const double value = static_cast<double>(kept);
  return negative ? -value : value;
}

template <class D, class S, bool Sat>
struct IntToFloat {
  using R = D;
  using A = S;
  using B = S;
  using C = S;
  static D Apply(S x) {
    if constexpr (kIsSmall<D>) {
      const double value = ToOdd(x);
      return RoundDouble<D>(Sat ? Clamp01(value) : value, Round::kNearest);
    } else if constexpr (kSame<D, double> && kSame<S, uint64_t>) {
      // Compilers may convert by a subtraction, which rounded down makes 0 a −0.
      const double value = static_cast<double>(static_cast<uint32_t>(x >> 32)) * 0x1p32 +
                           static_cast<double>(static_cast<uint32_t>(x));
      return Sat ? Clamp01(value) : value;
    } else {
      const D value = static_cast<D>(x);
      return Sat ? Clamp01(value) : value;
    }
  }
};

template <class D, class S, bool Ftz, bool Sat>
struct FloatToFloat {
  using R = D;
  using A = S;
  using B = S;
  using C = S;
  static D Apply(S raw) {
    const auto x = Flush<Ftz>(Widen(raw));
    if constexpr (kIsSmall<D>) {
      const double value = x;
      return RoundDouble<D>(Sat ? Clamp01(value) : value, Round::kNearest);
    } else {
      return Normalise<Ftz, Sat>(static_cast<D>(x));
    }
  }
};

inline double Exact(float x) {
  return x;
}
inline double Exact(double x) {
  return x;
}
inline double Exact(Half x) {
  return Widen(x);
}
inline double Exact(Brain x) {
  return Widen(x);
}
template <class S>
inline double Exact(S x) {
  return ToOdd(x);
}

// One result of what RunToSmall and RunPackSmall do.
template <class D, class S>
inline uint16_t ToSmall(const Instruction& in, S raw) {
  double x = Exact(raw);
  if constexpr (kSame<S, float>) {
    if (in.ftz) x = Flush<true>(raw);
  }
  if (in.sat) x = Clamp01(x);
  if (in.relu && !(x > 0) && x == x) x = 0;
  const uint16_t bits = RoundDouble<D>(x, in.round).bits;
  // .satfinite: the infinities give way to the largest numbers.
  constexpr uint16_t kInfinity = kSame<D, Half> ? 0x7c00 : 0x7f80;
  if (in.finite && (bits & 0x7fff) == kInfinity) return static_cast<uint16_t>(bits - 1);
  return bits;
}

// To half or bfloat with whatever the instruction asks for.
template <class D, class S>
bool RunToSmall(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<uint32_t>(w, in.dst, active);
  const auto* a = Source<S>(w, in.a);
  for (int i = 0; i < kLanes; ++i) d[i] = ToSmall<D, S>(in, Cell<S>::Get(a[i]));
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

// Two floats to a pair, the first to the upper half.
template <class D>
bool RunPackSmall(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<uint32_t>(w, in.dst, active);
  const auto* a = Source<float>(w, in.a);
  const auto* b = Source<float>(w, in.b);
  for (int i = 0; i < kLanes; ++i) {
    d[i] = static_cast<uint32_t>(ToSmall<D, float>(in, a[i])) << 16 | ToSmall<D, float>(in, b[i]);
  }
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

// To tf32: the fraction's lowest 13 bits go. in.away: ties go away from zero.
bool RunToTf32(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<uint32_t>(w, in.dst, active);
  const auto* a = Source<uint32_t>(w, in.a);
  for (int i = 0; i < kLanes; ++i) {
    uint32_t x = a[i];
    const bool nan = (x & 0x7fffffff) > 0x7f800000, infinite = (x & 0x7fffffff) == 0x7f800000;
    if (!nan && !infinite) {
      if (in.away) {
        x += 0x1000;
      } else if (in.round == Round::kNearest) {
        x += 0xfff + (x >> 13 & 1);
      }
      x &= 0xffffe000;
    }
    if (nan) x = 0x7fffffff;
    if (in.relu && !nan && x >> 31 != 0) x = 0;
    if (in.finite && (x & 0x7fffffff) == 0x7f800000) x = (x & 0x80000000) | 0x7f7fe000;
    d[i] = x;
  }
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

// cvt.pack.sat: D is 8 or 16 bits wide; what c holds moves up.
template <class D>
bool RunPackInts(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<uint32_t>(w, in.dst, active);
  const auto* a = Source<int32_t>(w, in.a);
  const auto* b = Source<int32_t>(w, in.b);
  const auto* c = Source<uint32_t>(w, in.c);
  using U = Unsigned<D>;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t high = static_cast<U>(IntToInt<D, int32_t, true>::Apply(a[i]));
    const uint32_t low = static_cast<U>(IntToInt<D, int32_t, true>::Apply(b[i]));
    const uint32_t above = sizeof(D) == 1 ? c[i] << 16 : 0;
    d[i] = above | high << kBits<D> | low;
  }
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

template <class T, Round round, bool Ftz, bool Sat>
struct ToIntegral {
  using R = T;
  using A = T;
  static T Apply(T raw) {
    return Narrow<T>(Normalise<Ftz, Sat>(RoundToIntegral<round>(Flush<Ftz>(Widen(raw)))));
  }
};

template <class D, class S>
Handler PairIntToInt(const Selector& s) {
  return s.sat ? Map1<IntToInt<D, S, true>> : Map1<IntToInt<D, S, false>>;
}

template <class D>
Handler FromInt(const Selector& s) {
  switch (s.from) {
    case Type::kU8:
      return PairIntToInt<D, uint8_t>(s);
    case Type::kU16:
      return PairIntToInt<D, uint16_t>(s);
    case Type::kU32:
      return PairIntToInt<D, uint32_t>(s);
    case Type::kU64:
      return PairIntToInt<D, uint64_t>(s);
    case Type::kS8:
      return PairIntToInt<D, int8_t>(s);
    case Type::kS16:
      return PairIntToInt<D, int16_t>(s);
    case Type::kS32:
      return PairIntToInt<D, int32_t>(s);
    case Type::kS64:
      return PairIntToInt<D, int64_t>(s);
    default:
      return nullptr;
  }
}

template <class D, class S, bool Ftz>
Handler PairFloatToInt(const Selector& s) {
  switch (s.round) {
    case Round::kNearest:
      return Map1<FloatToInt<D, S, Round::kNearest, Ftz>>;
    case Round::kZero:
      return Map1<FloatToInt<D, S, Round::kZero, Ftz>>;
    case Round::kDown:
      return Map1<FloatToInt<D, S, Round::kDown, Ftz>>;
    case Round::kUp:
      return Map1<FloatToInt<D, S, Round::kUp, Ftz>>;
  }
  return nullptr;
}

template <class D>
Handler ToInt(const Selector& s) {
  switch (s.from) {
    case Type::kF16:
      return s.ftz ? nullptr : PairFloatToInt<D, Half, false>(s);
    case Type::kBf16:
      return s.ftz ? nullptr : PairFloatToInt<D, Brain, false>(s);
    case Type::kF32:
      return s.ftz ? PairFloatToInt<D, float, true>(s) : PairFloatToInt<D, float, false>(s);
    case Type::kF64:
      return s.ftz ? nullptr : PairFloatToInt<D, double, false>(s);
    default:
      return FromInt<D>(s);
  }
}

template <class D, class S>
Handler PairIntToFloat(const Selector& s) {
  if (s.round != Round::kNearest) {
    if constexpr (kIsSmall<D>) {
      return RunToSmall<D, S>;
    } else {
      return s.sat ? MapRounded<IntToFloat<D, S, true>, 1> : MapRounded<IntToFloat<D, S, false>, 1>;
    }
  }
  return s.sat ? Map1<IntToFloat<D, S, true>> : Map1<IntToFloat<D, S, false>>;
}

template <class T>
Handler SelectToIntegral(const Selector& s) {
  constexpr bool kCanFlush = kSame<T, float>;
  if (s.ftz && !kCanFlush) return nullptr;
#define TANDEM_ROUND(MODE)                                        \
  case MODE:                                                      \
    if (s.ftz) {                                                  \
      return s.sat ? Map1<ToIntegral<T, MODE, kCanFlush, true>>   \
                   : Map1<ToIntegral<T, MODE, kCanFlush, false>>; \
    }                                                             \
    return s.sat ? Map1<ToIntegral<T, MODE, false, true>> : Map1<ToIntegral<T, MODE, false, false>>;
  switch (s.round) {
    TANDEM_ROUND(Round::kNearest)
    TANDEM_ROUND(Round::kZero)
    TANDEM_ROUND(Round::kDown)
    TANDEM_ROUND(Round::kUp)
  }
#undef TANDEM_ROUND
  return nullptr;
}

template <class D, class S>
Handler PairFloatToFloat(const Selector& s) {
  if (s.to_integral) {
    if constexpr (kSame<D, S>) return SelectToIntegral<D>(s);
    return nullptr;
  }
  if (s.round != Round::kNearest) {
    if constexpr (kIsSmall<D>) {
      return RunToSmall<D, S>;
    } else if constexpr (kIsSmall<S>) {
      return nullptr;  // exact: PTX knows no rounding here
    } else {
      if (s.sat) {
        return s.ftz ? MapRounded<FloatToFloat<D, S, true, true>, 1>
                     : MapRounded<FloatToFloat<D, S, false, true>, 1>;
      }
      return s.ftz ? MapRounded<FloatToFloat<D, S, true, false>, 1>
                   : MapRounded<FloatToFloat<D, S, false, false>, 1>;
    }
  }
  if (s.ftz) {
    return s.sat ? Map1<FloatToFloat<D, S, true, true>> : Map1<FloatToFloat<D, S, true, false>>;
  }
  return s.sat ? Map1<FloatToFloat<D, S, false, true>> : Map1<FloatToFloat<D, S, false, false>>;
}

template <class D>
Handler ToFloat(const Selector& s) {
  switch (s.from) {
    case Type::kF16:
      return PairFloatToFloat<D, Half>(s);
    case Type::kBf16:
      return PairFloatToFloat<D, Brain>(s);
    case Type::kF32:
      return PairFloatToFloat<D, float>(s);
    case Type::kF64:
      return PairFloatToFloat<D, double>(s);
    case Type::kU8:
      return PairIntToFloat<D, uint8_t>(s);
    case Type::kU16:
      return PairIntToFloat<D, uint16_t>(s);
    case Type::kU32:
      return PairIntToFloat<D, uint32_t>(s);
    case Type::kU64:
      return PairIntToFloat<D, uint64_t>(s);
    case Type::kS8:
      return PairIntToFloat<D, int8_t>(s);
    case Type::kS16:
      return PairIntToFloat<D, int16_t>(s);
    case Type::kS32:
      return PairIntToFloat<D, int32_t>(s);
    case Type::kS64:
      return PairIntToFloat<D, int64_t>(s);
    default:
      return nullptr;
  }
}

// What makes one register of several sources, and what has more modifiers than cvt between numbers.
Handler SelectPacking(const Selector& s) {
  switch (s.type) {
    case Type::kF16:
      return RunToSmall<Half, float>;
    case Type::kBf16:
      return RunToSmall<Brain, float>;
    case Type::kF16x2:
      return RunPackSmall<Half>;
    case Type::kBf16x2:
      return RunPackSmall<Brain>;
    case Type::kTf32:
      return RunToTf32;
    case Type::kU8:
      return RunPackInts<uint8_t>;
    case Type::kS8:
      return RunPackInts<int8_t>;
    case Type::kU16:
      return RunPackInts<uint16_t>;
    case Type::kS16:
      return RunPackInts<int16_t>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler SelectConvert(const Selector& s) {
  if (s.op == Op::kCvtPack) return SelectPacking(s);
  switch (s.type) {
    case Type::kU8:
      return ToInt<uint8_t>(s);
    case Type::kU16:
      return ToInt<uint16_t>(s);
    case Type::kU32:
      return ToInt<uint32_t>(s);
    case Type::kU64:
      return ToInt<uint64_t>(s);
    case Type::kS8:
      return ToInt<int8_t>(s);
    case Type::kS16:
      return ToInt<int16_t>(s);
    case Type::kS32:
      return ToInt<int32_t>(s);
    case Type::kS64:
      return ToInt<int64_t>(s);
    case Type::kF16:
      return ToFloat<Half>(s);
    case Type::kBf16:
      return ToFloat<Brain>(s);
    case Type::kF32:
      return ToFloat<float>(s);
    case Type::kF64:
      return ToFloat<double>(s);
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
