// Bit operations: logic, shifts, fields, permutations and counts.
#include "softgpu/ptx/integer_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

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
  for (int bit = 0; bit < 8; ++bit) term[bit] = (in.table >> bit & 1) != 0 ? ~0u : 0;
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
    const uint32_t selectors =
        in.permute == Permute::kIndex ? c[i] : kPermutes[static_cast<int>(in.permute)][c[i] & 3];
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
Handler Words1(Type t) {
  return t == Type::kU32   ? Handler(Map1<F<uint32_t>>)
         : t == Type::kU64 ? Handler(Map1<F<uint64_t>>)
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

// Part `index` of `bits` wide pieces, extended as the type says.
inline int64_t Piece(uint32_t word, Type type, int index, int bits) {
  const uint32_t piece = word >> (bits * index) & ((1u << bits) - 1);
  const bool negative = type == Type::kS32 && (piece >> (bits - 1) & 1) != 0;
  return static_cast<int64_t>(piece) - (negative ? int64_t{1} << bits : 0);
}

// dp4a: c plus the products of four bytes each; dp2a: of two 16-bit pieces of a and two bytes of b.
template <Type A, Type B, bool Four>
bool RunDot(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<uint32_t>(w, in.dst, active);
  const auto* a = Source<uint32_t>(w, in.a);
  const auto* b = Source<uint32_t>(w, in.b);
  const auto* c = Source<uint32_t>(w, in.c);
  for (int i = 0; i < kLanes; ++i) {
    int64_t sum = c[i];
    for (int part = 0; part < (Four ? 4 : 2); ++part) {
      const int byte = Four ? part : part + (in.high ? 2 : 0);
      sum += Piece(a[i], A, part, Four ? 8 : 16) * Piece(b[i], B, byte, 8);
    }
    d[i] = static_cast<uint32_t>(sum);
  }
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

template <bool Four>
Handler SelectDot(const Selector& s) {
  constexpr Type kS = Type::kS32, kU = Type::kU32;
  if (s.type == kS) return s.from == kS ? RunDot<kS, kS, Four> : RunDot<kS, kU, Four>;
  return s.from == kS ? RunDot<kU, kS, Four> : RunDot<kU, kU, Four>;
}

// bmsk: b ones from bit a on.
template <bool Clamp>
struct Bmsk : Same<uint32_t> {
  static uint32_t Apply(uint32_t a, uint32_t b) {
    if (!Clamp) {
      a &= 31;
      b &= 31;
    }
    if (a > 31) return 0;
    return (b > 31 ? ~0u : (1u << b) - 1) << a;
  }
};

// szext: the lowest b bits, extended.
template <class T, bool Clamp>
struct Szext : Same<T> {
  static T Apply(T a, T b) {
    uint32_t bits = static_cast<uint32_t>(b);
    if (!Clamp) bits &= 31;
    if (bits > 31) return a;
    if (bits == 0) return 0;
    const uint32_t up = 32 - bits;
    return static_cast<T>(static_cast<uint32_t>(a) << up) >> up;
  }
};

// fns: the place of the c-th set bit at or above b (for negative c, at or below), else all ones.
struct Fns : Same<uint32_t> {
  static uint32_t Apply(uint32_t mask, uint32_t base, uint32_t offset) {
    const int step = offset >> 31 != 0 ? -1 : 1;
    uint32_t left = offset >> 31 != 0 ? 0 - offset : offset;
    if (left == 0) return (mask >> (base & 31) & 1) != 0 ? base & 31 : ~0u;
    for (int at = static_cast<int>(base & 31); at >= 0 && at < 32; at += step) {
      if ((mask >> at & 1) != 0 && --left == 0) return static_cast<uint32_t>(at);
    }
    return ~0u;
  }
};

}  // namespace

Handler SelectBits(const Selector& s) {
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
    case Op::kDp2a:
      return SelectDot<false>(s);
    case Op::kDp4a:
      return SelectDot<true>(s);
    case Op::kBmsk:
      return s.clamp ? Map2<Bmsk<true>> : Map2<Bmsk<false>>;
    case Op::kSzext:
      if (t == Type::kS32)
        return s.clamp ? Map2<Szext<int32_t, true>> : Map2<Szext<int32_t, false>>;
      return s.clamp ? Map2<Szext<uint32_t, true>> : Map2<Szext<uint32_t, false>>;
    case Op::kFns:
      return Map3<Fns>;
    case Op::kPopc:
      return Words1<Popc>(t);
    case Op::kClz:
      return Words1<Clz>(t);
    case Op::kBrev:
      return Words1<Brev>(t);
    case Op::kBfind:
      return s.clamp ? SelectBfind<true>(t) : SelectBfind<false>(t);
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
