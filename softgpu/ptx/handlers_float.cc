// Floating-point arithmetic. The transcendental approximations are the C library's functions,
// which are the same for all paths and at least as exact as PTX asks.
#include <math.h>

#include "softgpu/ptx/float_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

template <class T, bool Ftz, bool Sat>
struct Traits : Same<T> {
  static auto In(T x) { return Flush<Ftz>(Widen(x)); }
  template <class W>
  static T Out(W x) {
    return Narrow<T>(Normalise<Ftz, Sat>(x));
  }
};

#define TANDEM_BINARY(NAME, EXPRESSION)            \
  template <class T, bool Ftz, bool Sat>           \
  struct NAME : Traits<T, Ftz, Sat> {              \
    using Base = Traits<T, Ftz, Sat>;              \
    static T Apply(T x, T y) {                     \
      const auto a = Base::In(x), b = Base::In(y); \
      return Base::Out(EXPRESSION);                \
    }                                              \
    static float Raw(float a, float b) {           \
      a = Flush<Ftz>(a), b = Flush<Ftz>(b);        \
      return Flush<Ftz>(EXPRESSION);               \
    }                                              \
  };
TANDEM_BINARY(Add, a + b)
TANDEM_BINARY(Sub, a - b)
TANDEM_BINARY(Mul, a* b)
TANDEM_BINARY(Div, a / b)
#undef TANDEM_BINARY

inline float FusedMultiplyAdd(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline double FusedMultiplyAdd(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}

template <class T, bool Ftz, bool Sat>
struct Fma : Traits<T, Ftz, Sat> {
  using Base = Traits<T, Ftz, Sat>;
  static T Apply(T x, T y, T z) {
    if constexpr (kSame<T, Half>) {
      // The product is exact in double and so, up to 2^40 apart, is the sum: one rounding.
      const double exact = static_cast<double>(HalfToFloat(x)) * HalfToFloat(y) + HalfToFloat(z);
      return DoubleToHalf(Sat ? Clamp01(exact) : exact, Round::kNearest);
    } else {
      return Base::Out(FusedMultiplyAdd(Base::In(x), Base::In(y), Base::In(z)));
    }
  }
  static float Raw(float x, float y, float z) {
    return Flush<Ftz>(FusedMultiplyAdd(Flush<Ftz>(x), Flush<Ftz>(y), Flush<Ftz>(z)));
  }
};

// min and max prefer the number over a NaN, unless .NaN is asked for; -0 < +0.
template <class T, bool Ftz, bool NaN, bool Smaller>
struct Extreme : Same<T> {
  static T Apply(T x, T y) {
    const auto a = Flush<Ftz>(Widen(x)), b = Flush<Ftz>(Widen(y));
    const bool negative_a = __builtin_signbit(a) != 0;
    const bool first = a == b ? negative_a == Smaller : Smaller ? a < b : a > b;
    auto r = first ? a : b;
    r = a != a ? b : b != b ? a : r;
    if (NaN && (a != a || b != b)) r = a + b;
    return Narrow<T>(Canonical(r));
  }
};
// .xorsign.abs: of the magnitudes, with the sign that the product would have.
template <bool Smaller>
bool RunXorsign(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<float>(w, in.dst, active);
  const auto* a = Source<float>(w, in.a);
  const auto* b = Source<float>(w, in.b);
  for (int i = 0; i < kLanes; ++i) {
    const float x = in.ftz ? Flush<true>(a[i]) : a[i], y = in.ftz ? Flush<true>(b[i]) : b[i];
    const float r = in.nan ? Extreme<float, false, true, Smaller>::Apply(Absolute(x), Absolute(y))
                           : Extreme<float, false, false, Smaller>::Apply(Absolute(x), Absolute(y));
    d[i] = r != r ? r : FloatOf(BitsOf(r) | ((BitsOf(x) ^ BitsOf(y)) & 0x80000000u));
  }
  Finish<float>(w, in.dst, active);
  return true;
}
template <class T, bool Ftz, bool NaN>
struct Min : Extreme<T, Ftz, NaN, true> {};
template <class T, bool Ftz, bool NaN>
struct Max : Extreme<T, Ftz, NaN, false> {};

inline float Root(float x) {
  return __builtin_sqrtf(x);
}
inline double Root(double x) {
  return __builtin_sqrt(x);
}

#define TANDEM_UNARY(NAME, EXPRESSION)   \
  template <class T, bool Ftz, bool Sat> \
  struct NAME : Traits<T, Ftz, Sat> {    \
    using Base = Traits<T, Ftz, Sat>;    \
    static T Apply(T x) {                \
      const auto a = Base::In(x);        \
      return Base::Out(EXPRESSION);      \
    }                                    \
  };
TANDEM_UNARY(Abs, Absolute(a))
TANDEM_UNARY(Neg, -a)
TANDEM_UNARY(Rcp, 1 / a)
TANDEM_UNARY(Sqrt, Root(a))
TANDEM_UNARY(Rsqrt, static_cast<decltype(a)>(1.0 / Root(static_cast<double>(a))))
TANDEM_UNARY(Ex2, ::exp2f(static_cast<float>(a)))
TANDEM_UNARY(Lg2, ::log2f(static_cast<float>(a)))
TANDEM_UNARY(Sin, ::sinf(static_cast<float>(a)))
TANDEM_UNARY(Cos, ::cosf(static_cast<float>(a)))
TANDEM_UNARY(Tanh, ::tanhf(static_cast<float>(a)))
#undef TANDEM_UNARY

// neg and abs of a half touch the sign alone.
template <bool Negate>
struct HalfSign : Same<Half> {
  static Half Apply(Half x) {
    return {static_cast<uint16_t>(Negate ? x.bits ^ 0x8000 : x.bits & 0x7fff)};
  }
};

template <class U>
bool RunCopysign(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<U>(w, in.dst, active);
  const auto* a = Source<U>(w, in.a);
  const auto* b = Source<U>(w, in.b);
  constexpr U kSign = U(1) << (kBits<U> - 1);
  TANDEM_LANES d[i] = (a[i] & kSign) | (b[i] & ~kSign);
  Finish<U>(w, in.dst, active);
  return true;
}

template <class T>
bool RunTestp(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* a = Source<T>(w, in.a);
  constexpr T kSmallest = sizeof(T) == 4 ? T(0x1p-126) : T(0x1p-1022);
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) {
    const T x = Absolute(a[i]);
    const bool finite = x - x == 0;
    bool yes = false;
    switch (in.test) {
      case Test::kFinite:
        yes = finite;
        break;
      case Test::kInfinite:
        yes = x == x && !finite;
        break;
      case Test::kNumber:
        yes = x == x;
        break;
      case Test::kNotANumber:
        yes = x != x;
        break;
      case Test::kNormal:
        yes = finite && (x >= kSmallest || x == 0);
        break;
      case Test::kSubnormal:
        yes = x < kSmallest && x != 0;
        break;
    }
    bits |= static_cast<uint32_t>(yes) << i;
  }
  SetPredicate(w, in.dst, bits, active);
  return true;
}

template <template <class, bool, bool> class F>
Handler Floats1(const Selector& s) {
  if (s.type == Type::kF32) {
    if (s.sat) return nullptr;
    return s.ftz ? Map1<F<float, true, false>> : Map1<F<float, false, false>>;
  }
  return s.type == Type::kF64 && !s.ftz && !s.sat ? Map1<F<double, false, false>> : nullptr;
}
template <template <class, bool, bool> class F>
Handler Single1(const Selector& s) {
  if (s.type != Type::kF32 || s.sat) return nullptr;
  return s.ftz ? Map1<F<float, true, false>> : Map1<F<float, false, false>>;
}
template <template <class, bool, bool> class F>
Handler Floats2(const Selector& s) {
  switch (s.type) {
    case Type::kF32:
      if (s.sat) return s.ftz ? Map2<F<float, true, true>> : Map2<F<float, false, true>>;
      return s.ftz ? MapFloats2<F<float, true, false>> : MapFloats2<F<float, false, false>>;
    case Type::kF64:
      return s.ftz || s.sat ? nullptr : Map2<F<double, false, false>>;
    case Type::kF16:
      if (s.ftz) return nullptr;
      return s.sat ? Map2<F<Half, false, true>> : Map2<F<Half, false, false>>;
    default:
      return nullptr;
  }
}
template <template <class, bool, bool> class F>
Handler Floats3(const Selector& s) {
  switch (s.type) {
    case Type::kF32:
      if (s.sat) return s.ftz ? Map3<F<float, true, true>> : Map3<F<float, false, true>>;
      return s.ftz ? MapFloats3<F<float, true, false>> : MapFloats3<F<float, false, false>>;
    case Type::kF64:
      return s.ftz || s.sat ? nullptr : Map3<F<double, false, false>>;
    case Type::kF16:
      if (s.ftz) return nullptr;
      return s.sat ? Map3<F<Half, false, true>> : Map3<F<Half, false, false>>;
    default:
      return nullptr;
  }
}
template <template <class, bool, bool> class F>
Handler Extremes(const Selector& s) {
  switch (s.type) {
    case Type::kF32:
      if (s.nan) return s.ftz ? Map2<F<float, true, true>> : Map2<F<float, false, true>>;
      return s.ftz ? Map2<F<float, true, false>> : Map2<F<float, false, false>>;
    case Type::kF64:
      return s.ftz || s.nan ? nullptr : Map2<F<double, false, false>>;
    case Type::kF16:
      if (s.ftz) return nullptr;
      return s.nan ? Map2<F<Half, false, true>> : Map2<F<Half, false, false>>;
    default:
      return nullptr;
  }
}
template <template <class, bool, bool> class F, int Arity>
Handler Rounded(const Selector& s) {
  if (s.type == Type::kF32) {
    if (s.sat)
      return s.ftz ? MapRounded<F<float, true, true>, Arity>
                   : MapRounded<F<float, false, true>, Arity>;
    return s.ftz ? MapRounded<F<float, true, false>, Arity>
                 : MapRounded<F<float, false, false>, Arity>;
  }
  return s.type == Type::kF64 && !s.ftz && !s.sat ? MapRounded<F<double, false, false>, Arity>
                                                  : nullptr;
}

// .approx.ftz.f64: of the operand's upper 32 bits, to 32 bits.
template <bool Root2>
struct Gross : Same<double> {
  static double Apply(double x) {
    const double a = FloatOf(BitsOf(x) & 0xffffffff00000000);
    if (x != x) return Canonical(x);
    if (Absolute(a) < 0x1p-1022)
      return FloatOf((BitsOf(x) & uint64_t{1} << 63) | 0x7ff0000000000000);
    const double r = 1 / (Root2 ? Root(a) : a);
    const uint64_t kept = Absolute(r) < 0x1p-1022 ? uint64_t{1} << 63 : 0xffffffff00000000;
    return Canonical(FloatOf(BitsOf(r) & kept));
  }
};

// a times the reciprocal of b, which is too small to be a number where b is very large.
template <class T, bool Ftz, bool Sat>
struct ApproximateDiv : Traits<float, Ftz, false> {
  using Base = Traits<float, Ftz, false>;
  static float Apply(float x, float y) {
    const float a = Base::In(x), b = Base::In(y), size = Absolute(b);
    if (size > 0x1p126f && size - size == 0) return Canonical(a * __builtin_copysignf(0.0f, b));
    return Base::Out(a / b);
  }
};

// What has modifiers, or rules, that its relatives lack.
Handler SelectRare(const Selector& s) {
  switch (s.op) {
    case Op::kMin:
      return RunXorsign<true>;
    case Op::kMax:
      return RunXorsign<false>;
    case Op::kRcp:
      return Map1<Gross<false>>;
    case Op::kRsqrt:
      return Map1<Gross<true>>;
    case Op::kDiv:
      return s.ftz ? Map2<ApproximateDiv<float, true, false>>
                   : Map2<ApproximateDiv<float, false, false>>;
    default:
      return nullptr;
  }
}

Handler SelectRounded(const Selector& s) {
  switch (s.op) {
    case Op::kAdd:
      return Rounded<Add, 2>(s);
    case Op::kSub:
      return Rounded<Sub, 2>(s);
    case Op::kMulLo:
      return Rounded<Mul, 2>(s);
    case Op::kDiv:
      return Rounded<Div, 2>(s);
    case Op::kFma:
      return Rounded<Fma, 3>(s);
    case Op::kRcp:
      return Rounded<Rcp, 1>(s);
    case Op::kSqrt:
      return Rounded<Sqrt, 1>(s);
    default:
      return nullptr;
  }
}

}  // namespace

Handler SelectFloat(const Selector& s) {
  if (s.round != Round::kNearest) return SelectRounded(s);
  const bool half = s.type == Type::kF16;
  if (s.more) return SelectRare(s);
  switch (s.op) {
    case Op::kAdd:
      return Floats2<Add>(s);
    case Op::kSub:
      return Floats2<Sub>(s);
    case Op::kMulLo:
      return Floats2<Mul>(s);
    case Op::kDiv:
      return half ? nullptr : Floats2<Div>(s);
    case Op::kFma:
      return Floats3<Fma>(s);
    case Op::kMin:
      return Extremes<Min>(s);
    case Op::kMax:
      return Extremes<Max>(s);
    case Op::kAbs:
      return half ? Handler(Map1<HalfSign<false>>) : Floats1<Abs>(s);
    case Op::kNeg:
      return half ? Handler(Map1<HalfSign<true>>) : Floats1<Neg>(s);
    case Op::kRcp:
      return Floats1<Rcp>(s);
    case Op::kSqrt:
      return Floats1<Sqrt>(s);
    case Op::kRsqrt:
      return Floats1<Rsqrt>(s);
    case Op::kEx2:
      return Single1<Ex2>(s);
    case Op::kLg2:
      return Single1<Lg2>(s);
    case Op::kSin:
      return Single1<Sin>(s);
    case Op::kCos:
      return Single1<Cos>(s);
    case Op::kTanh:
      return Single1<Tanh>(s);
    case Op::kCopysign:
      if (s.type == Type::kF32) return RunCopysign<uint32_t>;
      return s.type == Type::kF64 ? RunCopysign<uint64_t> : nullptr;
    case Op::kTestp:
      if (s.type == Type::kF32) return RunTestp<float>;
      return s.type == Type::kF64 ? RunTestp<double> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
