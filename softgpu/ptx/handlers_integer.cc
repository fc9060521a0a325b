// Integer arithmetic.
#include "softgpu/ptx/integer_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

template <class T>
struct Doubled;
template <>
struct Doubled<uint16_t> {
  using type = uint32_t;
};
template <>
struct Doubled<int16_t> {
  using type = int32_t;
};
template <>
struct Doubled<uint32_t> {
  using type = uint64_t;
};
template <>
struct Doubled<int32_t> {
  using type = int64_t;
};
template <>
struct Doubled<uint64_t> {
  using type = unsigned __int128;
};
template <>
struct Doubled<int64_t> {
  using type = __int128;
};

template <class T>
T HighProduct(T a, T b) {
  using D = typename Doubled<T>::type;
  if constexpr (sizeof(T) == 2) {
    return static_cast<T>((static_cast<int64_t>(a) * b) >> 16);
  } else {
    return static_cast<T>((static_cast<D>(a) * static_cast<D>(b)) >> kBits<T>);
  }
}

template <class T>
struct Add : Same<T> {
  static T Apply(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) + static_cast<Wide<T>>(b));
  }
};
template <class T>
struct Sub : Same<T> {
  static T Apply(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) - static_cast<Wide<T>>(b));
  }
};
inline int32_t Saturate(int64_t x) {
  return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : static_cast<int32_t>(x);
}
struct AddSat : Same<int32_t> {
  static int32_t Apply(int32_t a, int32_t b) { return Saturate(static_cast<int64_t>(a) + b); }
};
struct SubSat : Same<int32_t> {
  static int32_t Apply(int32_t a, int32_t b) { return Saturate(static_cast<int64_t>(a) - b); }
};
template <class T>
struct MulLo : Same<T> {
  static T Apply(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
  }
};
template <class T>
struct MulHi : Same<T> {
  static T Apply(T a, T b) { return HighProduct(a, b); }
};
template <class T>
struct MulWide : Same<T> {
  using R = typename Doubled<T>::type;
  static R Apply(T a, T b) {
    if constexpr (sizeof(T) == 2) {
      return static_cast<R>(static_cast<int64_t>(a) * b);
    } else {
      return static_cast<R>(a) * static_cast<R>(b);
    }
  }
};
template <class T>
struct MadLo : Same<T> {
  static T Apply(T a, T b, T c) { return Add<T>::Apply(MulLo<T>::Apply(a, b), c); }
};
template <class T>
struct MadHi : Same<T> {
  static T Apply(T a, T b, T c) { return Add<T>::Apply(HighProduct(a, b), c); }
};
struct MadHiSat : Same<int32_t> {
  static int32_t Apply(int32_t a, int32_t b, int32_t c) {
    return Saturate(static_cast<int64_t>(HighProduct(a, b)) + c);
  }
};
template <class T>
struct MadWide : Same<T> {
  using R = typename Doubled<T>::type;
  using C = R;
  static R Apply(T a, T b, R c) { return Add<R>::Apply(MulWide<T>::Apply(a, b), c); }
};

template <class T>
int64_t Product24(T a, T b) {
  if constexpr (kIsSigned<T>) {
    return (static_cast<int64_t>(static_cast<int32_t>(static_cast<uint32_t>(a) << 8)) >> 8) *
           (static_cast<int64_t>(static_cast<int32_t>(static_cast<uint32_t>(b) << 8)) >> 8);
  } else {
    return static_cast<int64_t>(a & 0xffffff) * (b & 0xffffff);
  }
}
template <class T>
struct Mul24Lo : Same<T> {
  static T Apply(T a, T b) { return static_cast<T>(Product24(a, b)); }
};
template <class T>
struct Mul24Hi : Same<T> {
  static T Apply(T a, T b) { return static_cast<T>(Product24(a, b) >> 16); }
};
template <class T>
struct Mad24Lo : Same<T> {
  static T Apply(T a, T b, T c) { return Add<T>::Apply(Mul24Lo<T>::Apply(a, b), c); }
};
template <class T>
struct Mad24Hi : Same<T> {
  static T Apply(T a, T b, T c) { return Add<T>::Apply(Mul24Hi<T>::Apply(a, b), c); }
};
struct Mad24HiSat : Same<int32_t> {
  static int32_t Apply(int32_t a, int32_t b, int32_t c) {
    return Saturate((Product24(a, b) >> 16) + c);
  }
};
template <class T>
struct Sad : Same<T> {
  static T Apply(T a, T b, T c) {
    return Add<T>::Apply(c, a < b ? Sub<T>::Apply(b, a) : Sub<T>::Apply(a, b));
  }
};

// Division by zero gives all ones, as the hardware does; 32-bit quotients are exact in double,
// which vectorises.
template <class T>
T Quotient(T a, T b) {
  if constexpr (sizeof(T) == 4) {
    const int64_t wide_a = a, wide_b = b == 0 ? 1 : b;
    const int64_t q =
        static_cast<int64_t>(static_cast<double>(wide_a) / static_cast<double>(wide_b));
    return b == 0 ? static_cast<T>(~T(0)) : static_cast<T>(q);
  } else {
    if (b == 0) return static_cast<T>(~T(0));
    if constexpr (kIsSigned<T>) {
      if (b == T(-1)) return Sub<T>::Apply(0, a);
    }
    return static_cast<T>(a / b);
  }
}
template <class T>
struct Div : Same<T> {
  static T Apply(T a, T b) { return Quotient(a, b); }
};
template <class T>
struct Rem : Same<T> {
  static T Apply(T a, T b) {
    const T r = Sub<T>::Apply(a, MulLo<T>::Apply(Quotient(a, b), b));
    return b == 0 ? static_cast<T>(~T(0)) : r;
  }
};
template <class T>
struct Abs : Same<T> {
  static T Apply(T a) { return a < 0 ? Sub<T>::Apply(0, a) : a; }
};
template <class T>
struct Neg : Same<T> {
  static T Apply(T a) { return Sub<T>::Apply(0, a); }
};
template <class T>
struct Min : Same<T> {
  static T Apply(T a, T b) { return a < b ? a : b; }
};
template <class T>
struct Max : Same<T> {
  static T Apply(T a, T b) { return a > b ? a : b; }
};
// add.cc, addc, sub.cc, subc, mad.lo.cc, madc.hi and the rest of the family. Only the high product
// depends on the sign of S. A subtraction is the sum with the complement, and carries where it does
// not borrow: compilers let addc take what sub.cc gave.
template <class S, Op op>
bool RunCarry(WarpContext& w, const Instruction& in, uint32_t active) {
  using T = Unsigned<S>;
  auto* d = Target<T>(w, in.dst, active);
  const auto* a = Source<T>(w, in.a);
  const auto* b = Source<T>(w, in.b);
  const auto* c = Source<T>(w, in.c);
  constexpr bool kSubtracts = op == Op::kSubBorrow;
  const uint32_t carry_in = in.carry_in ? w.carry : kSubtracts ? ~0u : 0;
  uint32_t carry_out = 0;
  for (int i = 0; i < kLanes; ++i) {
    T x = a[i], y = b[i];
    const T extra = carry_in >> i & 1;
    if constexpr (op == Op::kMadLoCarry) {
      x = static_cast<T>(x * y);
      y = c[i];
    } else if constexpr (op == Op::kMadHiCarry) {
      x = static_cast<T>(HighProduct<S>(static_cast<S>(x), static_cast<S>(y)));
      y = c[i];
    }
    if constexpr (kSubtracts) y = static_cast<T>(~y);
    const T first = x + y;
    const T sum = first + extra;
    d[i] = sum;
    carry_out |= static_cast<uint32_t>(first < x || sum < first) << i;
  }
  Finish<T>(w, in.dst, active);
  if (in.carry_out) w.carry = (w.carry & ~active) | (carry_out & active);
  return true;
}

template <template <class> class F>
Handler Ints3(Type t) {
  switch (t) {
    case Type::kU16:
      return Map3<F<uint16_t>>;
    case Type::kS16:
      return Map3<F<int16_t>>;
    case Type::kU32:
      return Map3<F<uint32_t>>;
    case Type::kS32:
      return Map3<F<int32_t>>;
    case Type::kU64:
      return Map3<F<uint64_t>>;
    case Type::kS64:
      return Map3<F<int64_t>>;
    default:
      return nullptr;
  }
}
template <template <class> class F>
Handler Signed1(Type t) {
  switch (t) {
    case Type::kS16:
      return Map1<F<int16_t>>;
    case Type::kS32:
      return Map1<F<int32_t>>;
    case Type::kS64:
      return Map1<F<int64_t>>;
    default:
      return nullptr;
  }
}
template <template <class> class F>
Handler Words2(Type t) {
  return t == Type::kU32   ? Handler(Map2<F<uint32_t>>)
         : t == Type::kS32 ? Handler(Map2<F<int32_t>>)
                           : nullptr;
}
template <template <class> class F>
Handler Words3(Type t) {
  return t == Type::kU32   ? Handler(Map3<F<uint32_t>>)
         : t == Type::kS32 ? Handler(Map3<F<int32_t>>)
                           : nullptr;
}
Handler SelectWide(Op op, Type t) {
  const bool mul = op == Op::kMulWide;
  switch (t) {
    case Type::kU16:
      return mul ? Map2<MulWide<uint16_t>> : Map3<MadWide<uint16_t>>;
    case Type::kS16:
      return mul ? Map2<MulWide<int16_t>> : Map3<MadWide<int16_t>>;
    case Type::kU32:
      return mul ? Map2<MulWide<uint32_t>> : Map3<MadWide<uint32_t>>;
    case Type::kS32:
      return mul ? Map2<MulWide<int32_t>> : Map3<MadWide<int32_t>>;
    default:
      return nullptr;
  }
}
template <Op op>
Handler SelectCarry(Type t) {
  switch (op == Op::kMadHiCarry ? t : Unsign(t)) {
    case Type::kU32:
      return RunCarry<uint32_t, op>;
    case Type::kU64:
      return RunCarry<uint64_t, op>;
    case Type::kS32:
      return RunCarry<int32_t, op>;
    case Type::kS64:
      return RunCarry<int64_t, op>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler SelectInteger(const Selector& s) {
  const Type t = s.type;
  if (s.sat) {
    if (t != Type::kS32) return nullptr;
    if (s.op == Op::kAdd) return Map2<AddSat>;
    if (s.op == Op::kSub) return Map2<SubSat>;
    if (s.op == Op::kMadHi) return Map3<MadHiSat>;
    if (s.op == Op::kMad24Hi) return Map3<Mad24HiSat>;
    return nullptr;
  }
  switch (s.op) {
    case Op::kAdd:
      return Bits2<Add>(t);
    case Op::kSub:
      return Bits2<Sub>(t);
    case Op::kMulLo:
      return Bits2<MulLo>(t);
    case Op::kMulHi:
      return Ints2<MulHi>(t);
    case Op::kMulWide:
    case Op::kMadWide:
      return SelectWide(s.op, t);
    case Op::kMadLo:
      return Ints3<MadLo>(t);
    case Op::kMadHi:
      return Ints3<MadHi>(t);
    case Op::kMul24Lo:
      return Words2<Mul24Lo>(t);
    case Op::kMul24Hi:
      return Words2<Mul24Hi>(t);
    case Op::kMad24Lo:
      return Words3<Mad24Lo>(t);
    case Op::kMad24Hi:
      return Words3<Mad24Hi>(t);
    case Op::kSad:
      return Ints3<Sad>(t);
    case Op::kDiv:
      return Ints2<Div>(t);
    case Op::kRem:
      return Ints2<Rem>(t);
    case Op::kAbs:
      return Signed1<Abs>(t);
    case Op::kNeg:
      return Signed1<Neg>(t);
    case Op::kMin:
      return Ints2<Min>(t);
    case Op::kMax:
      return Ints2<Max>(t);
    case Op::kAddCarry:
      return SelectCarry<Op::kAddCarry>(t);
    case Op::kSubBorrow:
      return SelectCarry<Op::kSubBorrow>(t);
    case Op::kMadLoCarry:
      return SelectCarry<Op::kMadLoCarry>(t);
    case Op::kMadHiCarry:
      return SelectCarry<Op::kMadHiCarry>(t);
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
