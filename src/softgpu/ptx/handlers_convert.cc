// cvt: between all types, with rounding, saturation and flushing.
#include "src/softgpu/ptx/float_lanes.h"

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

template <class D, class S, bool Sat>
struct IntToFloat {
  using R = D;
  using A = S;
  using B = S;
  using C = S;
  static D Apply(S x) {
    if constexpr (kSame<D, Half>) {
      // Beyond 2^53 the double is inexact, but every such value overflows a half anyway.
      const double value = static_cast<double>(x);
      return DoubleToHalf(Sat ? Clamp01(value) : value, Round::kNearest);
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
    if constexpr (kSame<D, Half>) {
      const double value = x;
      return DoubleToHalf(Sat ? Clamp01(value) : value, Round::kNearest);
    } else {
      return Settle<Ftz, Sat>(static_cast<D>(x));
    }
  }
};

// A half or float64 to half by a directed mode, which the host's rounding does not reach.
template <class S, Round round>
struct FloatToHalfRounded {
  using R = Half;
  using A = S;
  static Half Apply(S x) { return DoubleToHalf(static_cast<double>(Widen(x)), round); }
};

template <class T, Round round, bool Ftz, bool Sat>
struct ToIntegral {
  using R = T;
  using A = T;
  static T Apply(T raw) {
    return Narrow<T>(Settle<Ftz, Sat>(RoundToIntegral<round>(Flush<Ftz>(Widen(raw)))));
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
    if constexpr (kSame<D, Half>) {
      return nullptr;
    } else {
      return s.sat ? nullptr : MapRounded<IntToFloat<D, S, false>, 1>;
    }
  }
  return s.sat ? Map1<IntToFloat<D, S, true>> : Map1<IntToFloat<D, S, false>>;
}

template <class T>
Handler SelectToIntegral(const Selector& s) {
  constexpr bool kCanFlush = sizeof(T) == 4;
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
    if constexpr (kSame<D, Half>) {
      if (s.sat || s.ftz) return nullptr;
      switch (s.round) {
        case Round::kZero:
          return Map1<FloatToHalfRounded<S, Round::kZero>>;
        case Round::kDown:
          return Map1<FloatToHalfRounded<S, Round::kDown>>;
        default:
          return Map1<FloatToHalfRounded<S, Round::kUp>>;
      }
    } else if constexpr (kSame<S, Half>) {
      return nullptr;  // exact: PTX knows no rounding here
    } else {
      if (s.sat) return nullptr;
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

}  // namespace

Handler SelectConvert(const Selector& s) {
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
    case Type::kF32:
      return ToFloat<float>(s);
    case Type::kF64:
      return ToFloat<double>(s);
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
