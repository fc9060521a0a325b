// Integer arithmetic and bit operations.
#include "src/softgpu/ptx/lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

// R, A, B, C all T unless a functor says otherwise.
template <class T>
struct Same {
  using R = T;
  using A = T;
  using B = T;
  using C = T;
};

// Wrapping arithmetic happens in an unsigned type at least as wide as int.
template <class T>
struct WideOf {
  using type = uint32_t;
};
template <>
struct WideOf<uint64_t> {
  using type = uint64_t;
};
template <>
struct WideOf<int64_t> {
  using type = uint64_t;
};
template <class T>
using Wide = typename WideOf<T>::type;

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

template <class T>
struct And : Same<T> {
  static T Apply(T a, T b) { return a & b; }
};
template <class T>
struct Or : Same<T> {
  static T Apply(T a, T b) { return a | b; }
};
template <class T>
struct Xor : Same<T> {
  static T Apply(T a, T b) { return a ^ b; }
};
template <class T>
struct Not : Same<T> {
  static T Apply(T a) { return static_cast<T>(~a); }
};
template <class T>
struct Cnot : Same<T> {
  static T Apply(T a) { return a == 0 ? 1 : 0; }
};
template <class T>
struct Shl : Same<T> {
  using B = uint32_t;
  static T Apply(T a, uint32_t n) {
    return n < kBits<T> ? static_cast<T>(static_cast<Wide<T>>(a) << (n & (kBits<T> - 1))) : T(0);
  }
};
template <class T>
struct Shr : Same<T> {
  using B = uint32_t;
  static T Apply(T a, uint32_t n) {
    if constexpr (kIsSigned<T>) {
      return static_cast<T>(a >> (n < kBits<T> ? n : kBits<T> - 1));
    } else {
      return n < kBits<T> ? static_cast<T>(a >> (n & (kBits<T> - 1))) : T(0);
    }
  }
};
template <bool Left, bool Clamp>
struct Shf : Same<uint32_t> {
  static uint32_t Apply(uint32_t low, uint32_t high, uint32_t n) {
    const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    n = Clamp ? (n < 32 ? n : 32) : n & 31;
    return static_cast<uint32_t>(Left ? (both << n) >> 32 : both >> n);
  }
};
template <class T>
struct Bfe : Same<T> {
  using B = uint32_t;
  using C = uint32_t;
  static T Apply(T a, uint32_t position, uint32_t length) {
    using U = Unsigned<T>;
    position &= 0xff;
    length &= 0xff;
    if (length == 0) return 0;
    const uint32_t top = position + length - 1 < kBits<T> ? position + length - 1 : kBits<T> - 1;
    const bool sign = kIsSigned<T> && ((static_cast<U>(a) >> top) & 1) != 0;
    const U shifted = position < kBits<T> ? static_cast<U>(a) >> position : 0;
    // Bits of the field that lie inside the word; the rest is filled with the sign.
    const uint32_t inside = position < kBits<T> ? top - position + 1 : 0;
    const U mask = inside >= kBits<T> ? ~U(0) : (U(1) << inside) - 1;
    return static_cast<T>((shifted & mask) | (sign ? ~mask : 0));
  }
};
template <class T>
T Insert(T a, T b, uint32_t position, uint32_t length) {
  position &= 0xff;
  length &= 0xff;
  if (length == 0 || position >= kBits<T>) return b;
  const T field = length >= kBits<T> ? ~T(0) : (T(1) << length) - 1;
  return (b & ~(field << position)) | ((a & field) << position);
}
template <class T>
struct Popc : Same<T> {
  using R = uint32_t;
  static uint32_t Apply(T a) { return static_cast<uint32_t>(__builtin_popcountll(a)); }
};
template <class T>
uint32_t LeadingZeros(T a) {
  return a == 0 ? kBits<T> : static_cast<uint32_t>(__builtin_clzll(a)) - (64 - kBits<T>);
}
template <class T>
struct Clz : Same<T> {
  using R = uint32_t;
  static uint32_t Apply(T a) { return LeadingZeros(a); }
};
template <class T, bool ShiftAmount>
struct Bfind : Same<T> {
  using R = uint32_t;
  static uint32_t Apply(T a) {
    using U = Unsigned<T>;
    const U bits = kIsSigned<T> && a < 0 ? ~static_cast<U>(a) : static_cast<U>(a);
    if (bits == 0) return ~0u;
    const uint32_t zeros = LeadingZeros(bits);
    return ShiftAmount ? zeros : kBits<T> - 1 - zeros;
  }
};
template <class T>
struct Brev : Same<T> {
  static T Apply(T a) {
    T r = 0;
    for (int bit = 0; bit < kBits<T>; ++bit) r |= ((a >> bit) & 1) << (kBits<T> - 1 - bit);
    return r;
  }
};

template <class T>
bool RunBfi(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<T>(w, in.dst, active);
  const auto* a = Source<T>(w, in.a);
  const auto* b = Source<T>(w, in.b);
  const auto* c = Source<uint32_t>(w, in.c);
  const auto* length = Source<uint32_t>(w, in.d);
  TANDEM_LANES d[i] = Insert<T>(a[i], b[i], c[i], length[i]);
  Finish<T>(w, in.dst, active);
  return true;
}

bool RunLop3(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<uint32_t>(w, in.dst, active);
  const auto* a = Source<uint32_t>(w, in.a);
  const auto* b = Source<uint32_t>(w, in.b);
  const auto* c = Source<uint32_t>(w, in.c);
  uint32_t term[8];
  for (int bit = 0; bit < 8; ++bit) term[bit] = (in.mode >> bit & 1) != 0 ? ~0u : 0;
  TANDEM_LANES {
    const uint32_t x = a[i], y = b[i], z = c[i];
    const uint32_t low =
        (~y & ((~z & term[0]) | (z & term[1]))) | (y & ((~z & term[2]) | (z & term[3])));
    const uint32_t high =
        (~y & ((~z & term[4]) | (z & term[5]))) | (y & ((~z & term[6]) | (z & term[7])));
    d[i] = (~x & low) | (x & high);
  }
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

// The four selectors of prmt's special modes, for each value of c's low two bits.
constexpr uint16_t kPermutes[7][4] = {
    {0, 0, 0, 0},
    {0x3210, 0x4321, 0x5432, 0x6543},  // f4e
    {0x5670, 0x6701, 0x7012, 0x0123},  // b4e
    {0x0000, 0x1111, 0x2222, 0x3333},  // rc8
    {0x3210, 0x3211, 0x3222, 0x3333},  // ecl
    {0x0000, 0x1110, 0x2210, 0x3210},  // ecr
    {0x1010, 0x3232, 0x1010, 0x3232},  // rc16
};

bool RunPrmt(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<uint32_t>(w, in.dst, active);
  const auto* a = Source<uint32_t>(w, in.a);
  const auto* b = Source<uint32_t>(w, in.b);
  const auto* c = Source<uint32_t>(w, in.c);
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t both = static_cast<uint64_t>(b[i]) << 32 | a[i];
    const uint32_t selectors = in.mode == 0 ? c[i] : kPermutes[in.mode][c[i] & 3];
    uint32_t result = 0;
    for (int byte = 0; byte < 4; ++byte) {
      const uint32_t selector = selectors >> (4 * byte) & 0xf;
      uint32_t value = static_cast<uint32_t>(both >> (8 * (selector & 7))) & 0xff;
      if ((selector & 8) != 0) value = (value & 0x80) != 0 ? 0xff : 0;
      result |= value << (8 * byte);
    }
    d[i] = result;
  }
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

// add.cc, addc, sub.cc, subc, mad.lo.cc, madc.hi and the rest of the family. T is unsigned.
template <class T, Op op>
bool RunCarry(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<T>(w, in.dst, active);
  const auto* a = Source<T>(w, in.a);
  const auto* b = Source<T>(w, in.b);
  const auto* c = Source<T>(w, in.c);
  const uint32_t carry_in = (in.flags & kCarryIn) != 0 ? w.carry : 0;
  uint32_t carry_out = 0;
  for (int i = 0; i < kLanes; ++i) {
    T x = a[i], y = b[i];
    const T extra = carry_in >> i & 1;
    if constexpr (op == Op::kMadLoCarry) {
      x = static_cast<T>(x * y);
      y = c[i];
    } else if constexpr (op == Op::kMadHiCarry) {
      x = in.mode != 0 ? static_cast<T>(
                             HighProduct<int32_t>(static_cast<int32_t>(x), static_cast<int32_t>(y)))
                       : HighProduct<T>(x, y);
      y = c[i];
    }
    if constexpr (op == Op::kSubBorrow) {
      const T first = x - y;
      d[i] = first - extra;
      carry_out |= static_cast<uint32_t>(x < y || first < extra) << i;
    } else {
      const T first = x + y;
      const T sum = first + extra;
      d[i] = sum;
      carry_out |= static_cast<uint32_t>(first < x || sum < first) << i;
    }
  }
  Finish<T>(w, in.dst, active);
  if ((in.flags & kCarryOut) != 0) w.carry = (w.carry & ~active) | (carry_out & active);
  return true;
}

template <template <class> class F>
Handler Ints2(Type t) {
  switch (t) {
    case Type::kU16:
      return Map2<F<uint16_t>>;
    case Type::kS16:
      return Map2<F<int16_t>>;
    case Type::kU32:
      return Map2<F<uint32_t>>;
    case Type::kS32:
      return Map2<F<int32_t>>;
    case Type::kU64:
      return Map2<F<uint64_t>>;
    case Type::kS64:
      return Map2<F<int64_t>>;
    default:
      return nullptr;
  }
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
// Those whose result does not depend on the sign.
Type Unsign(Type t) {
  switch (t) {
    case Type::kS16:
      return Type::kU16;
    case Type::kS32:
      return Type::kU32;
    case Type::kS64:
      return Type::kU64;
    default:
      return t;
  }
}
template <template <class> class F>
Handler Bits2(Type t) {
  switch (Unsign(t)) {
    case Type::kU16:
      return Map2<F<uint16_t>>;
    case Type::kU32:
      return Map2<F<uint32_t>>;
    case Type::kU64:
      return Map2<F<uint64_t>>;
    default:
      return nullptr;
  }
}
template <template <class> class F>
Handler Bits1(Type t) {
  switch (Unsign(t)) {
    case Type::kU16:
      return Map1<F<uint16_t>>;
    case Type::kU32:
      return Map1<F<uint32_t>>;
    case Type::kU64:
      return Map1<F<uint64_t>>;
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
Handler Words1(Type t) {
  return t == Type::kU32   ? Handler(Map1<F<uint32_t>>)
         : t == Type::kU64 ? Handler(Map1<F<uint64_t>>)
                           : nullptr;
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
template <bool ShiftAmount>
Handler SelectBfind(Type t) {
  switch (t) {
    case Type::kU32:
      return Map1<Bfind<uint32_t, ShiftAmount>>;
    case Type::kS32:
      return Map1<Bfind<int32_t, ShiftAmount>>;
    case Type::kU64:
      return Map1<Bfind<uint64_t, ShiftAmount>>;
    case Type::kS64:
      return Map1<Bfind<int64_t, ShiftAmount>>;
    default:
      return nullptr;
  }
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
Handler SelectBfe(Type t) {
  switch (t) {
    case Type::kU32:
      return Map3<Bfe<uint32_t>>;
    case Type::kS32:
      return Map3<Bfe<int32_t>>;
    case Type::kU64:
      return Map3<Bfe<uint64_t>>;
    case Type::kS64:
      return Map3<Bfe<int64_t>>;
    default:
      return nullptr;
  }
}
template <Op op>
Handler SelectCarry(Type t) {
  const Type u = Unsign(t);
  if (u == Type::kU32) return RunCarry<uint32_t, op>;
  // Only the unsigned 64-bit high product is right in RunCarry.
  if (u == Type::kU64 && !(op == Op::kMadHiCarry && t == Type::kS64)) return RunCarry<uint64_t, op>;
  return nullptr;
}

Handler SelectArithmetic(const Selector& s) {
  const Type t = s.type;
  if (s.sat) {
    if (t != Type::kS32) return nullptr;
    if (s.op == Op::kAdd) return Map2<AddSat>;
    if (s.op == Op::kSub) return Map2<SubSat>;
    if (s.op == Op::kMadHi) return Map3<MadHiSat>;
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

}  // namespace

Handler SelectInteger(const Selector& s) {
  const Type t = s.type;
  switch (s.op) {
    case Op::kAnd:
      return Bits2<And>(t);
    case Op::kOr:
      return Bits2<Or>(t);
    case Op::kXor:
      return Bits2<Xor>(t);
    case Op::kNot:
      return Bits1<Not>(t);
    case Op::kCnot:
      return Bits1<Cnot>(t);
    case Op::kShl:
      return Bits2<Shl>(t);
    case Op::kShr:
      return Ints2<Shr>(t);
    case Op::kShfLeft:
      return s.clamp ? Map3<Shf<true, true>> : Map3<Shf<true, false>>;
    case Op::kShfRight:
      return s.clamp ? Map3<Shf<false, true>> : Map3<Shf<false, false>>;
    case Op::kPrmt:
      return RunPrmt;
    case Op::kLop3:
      return RunLop3;
    case Op::kBfe:
      return SelectBfe(t);
    case Op::kBfi:
      return t == Type::kU32   ? Handler(RunBfi<uint32_t>)
             : t == Type::kU64 ? Handler(RunBfi<uint64_t>)
                               : nullptr;
    case Op::kPopc:
      return Words1<Popc>(t);
    case Op::kClz:
      return Words1<Clz>(t);
    case Op::kBrev:
      return Words1<Brev>(t);
    case Op::kBfind:
      return s.clamp ? SelectBfind<true>(t) : SelectBfind<false>(t);
    default:
      return SelectArithmetic(s);
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
