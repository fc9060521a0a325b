// Arithmetic on halves and bfloats, one or two in a register, with all their modifiers.
//
// Every result is computed in double precision, exactly or rounded to odd, and then rounded once.
#include <math.h>

#include "softgpu/ptx/float_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

template <class V>
inline constexpr uint32_t kInfinity = kSame<V, Half> ? 0x7c00 : 0x7f80;
template <class V>
inline constexpr uint32_t kLeastNormal = kSame<V, Half> ? 0x400 : 0x80;

template <class V>
inline double Value(uint32_t bits) {
  return Widen(V{static_cast<uint16_t>(bits)});
}

template <class V>
inline uint32_t FlushBits(uint32_t bits) {
  return (bits & 0x7fff) < kLeastNormal<V> ? bits & 0x8000 : bits;
}

// min and max prefer the number over a NaN, unless .NaN is asked for; -0 < +0.
template <class V, bool Smaller>
uint32_t Extreme(const Instruction& in, uint32_t x, uint32_t y) {
  const bool nan_x = (x & 0x7fff) > kInfinity<V>, nan_y = (y & 0x7fff) > kInfinity<V>;
  if (nan_x || nan_y) {
    if ((nan_x && nan_y) || in.nan) return 0x7fff;
    const uint32_t number = nan_x ? y : x;
    return in.xorsign ? (number & 0x7fff) | ((x ^ y) & 0x8000) : number;
  }
  const uint32_t sign = (x ^ y) & 0x8000;
  if (in.xorsign) {
    x &= 0x7fff;
    y &= 0x7fff;
  }
  const double a = Value<V>(x), b = Value<V>(y);
  const bool first = a == b ? ((x & 0x8000) != 0) == Smaller : Smaller ? a < b : a > b;
  const uint32_t result = first ? x : y;
  return in.xorsign ? result | sign : result;
}

template <class V, Op op>
inline double Exactly(uint32_t x, uint32_t y, uint32_t z) {
  const double a = Value<V>(x), b = Value<V>(y);
  switch (op) {
    case Op::kAdd:
      return SumToOdd(a, b);
    case Op::kSub:
      return SumToOdd(a, -b);
    case Op::kMulLo:
      return a * b;
    case Op::kFma:
      return SumToOdd(a * b, Value<V>(z));
    case Op::kTanh:
      return ::tanh(a);
    default:
      return ::exp2(a);
  }
}

template <class V, Op op>
inline uint32_t Compute(const Instruction& in, uint32_t x, uint32_t y, uint32_t z) {
  if (in.ftz) {
    x = FlushBits<V>(x);
    y = FlushBits<V>(y);
    z = FlushBits<V>(z);
  }
  if (op == Op::kAbs) return x & 0x7fff;
  if (op == Op::kNeg) return x ^ 0x8000;
  if (op == Op::kMin) return Extreme<V, true>(in, x, y);
  if (op == Op::kMax) return Extreme<V, false>(in, x, y);
  double exact = Exactly<V, op>(x, y, z);
  if (in.sat) exact = Clamp01(exact);
  if (in.relu && !(exact > 0) && exact == exact) exact = 0;
  const uint32_t result = RoundDouble<V>(exact, Round::kNearest).bits;
  return in.ftz ? FlushBits<V>(result) : result;
}

template <class V, Op op, int Parts>
bool RunHalf(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<uint32_t>(w, in.dst, active);
  const auto* a = Source<uint32_t>(w, in.a);
  const auto* b = Source<uint32_t>(w, in.b);
  const auto* c = Source<uint32_t>(w, in.c);
  for (int i = 0; i < kLanes; ++i) {
    uint32_t result = Compute<V, op>(in, a[i] & 0xffff, b[i] & 0xffff, c[i] & 0xffff);
    if (Parts == 2) result |= Compute<V, op>(in, a[i] >> 16, b[i] >> 16, c[i] >> 16) << 16;
    d[i] = result;
  }
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

template <class V, int Parts>
Handler SelectOperation(Op op) {
  switch (op) {
    case Op::kAdd:
      return RunHalf<V, Op::kAdd, Parts>;
    case Op::kSub:
      return RunHalf<V, Op::kSub, Parts>;
    case Op::kMulLo:
      return RunHalf<V, Op::kMulLo, Parts>;
    case Op::kFma:
      return RunHalf<V, Op::kFma, Parts>;
    case Op::kMin:
      return RunHalf<V, Op::kMin, Parts>;
    case Op::kMax:
      return RunHalf<V, Op::kMax, Parts>;
    case Op::kAbs:
      return RunHalf<V, Op::kAbs, Parts>;
    case Op::kNeg:
      return RunHalf<V, Op::kNeg, Parts>;
    case Op::kTanh:
      return RunHalf<V, Op::kTanh, Parts>;
    case Op::kEx2:
      return RunHalf<V, Op::kEx2, Parts>;
    default:
      return nullptr;
  }
}

inline bool Holds(Compare compare, double a, double b) {
  switch (compare) {
    case Compare::kEq:
      return a == b;
    case Compare::kNe:
      return a < b || a > b;
    case Compare::kLt:
      return a < b;
    case Compare::kLe:
      return a <= b;
    case Compare::kGt:
      return a > b;
    case Compare::kGe:
      return a >= b;
    case Compare::kEqu:
      return !(a < b || a > b);
    case Compare::kNeu:
      return !(a == b);
    case Compare::kLtu:
      return !(a >= b);
    case Compare::kLeu:
      return !(a > b);
    case Compare::kGtu:
      return !(a <= b);
    case Compare::kGeu:
      return !(a < b);
    case Compare::kNum:
      return a == a && b == b;
    case Compare::kNan:
      return a != a || b != b;
  }
  return false;
}

// The lanes whose low (0) or high (1) parts compare so.
template <class V>
uint32_t CompareParts(const WarpContext& w, const Instruction& in, int part) {
  const auto* a = Source<uint32_t>(w, in.a);
  const auto* b = Source<uint32_t>(w, in.b);
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) {
    uint32_t x = a[i] >> (16 * part) & 0xffff, y = b[i] >> (16 * part) & 0xffff;
    if (in.ftz) {
      x = FlushBits<V>(x);
      y = FlushBits<V>(y);
    }
    bits |= Holds(in.compare, Value<V>(x), Value<V>(y)) ? kLaneBit[i] : 0;
  }
  return bits;
}

// Of one: p and its opposite. Of a pair: p for the low part, q for the high one.
template <class V, int Parts>
bool RunSetp(WarpContext& w, const Instruction& in, uint32_t active) {
  const uint32_t low = CompareParts<V>(w, in, 0);
  const uint32_t other = Parts == 2 ? CompareParts<V>(w, in, 1) : ~low;
  const uint32_t p = Combine(w, in, low), q = Combine(w, in, other);
  SetPredicate(w, in.dst, p, active);
  SetPredicate(w, in.d, q, active);
  return true;
}

// set writes in.imm where the comparison holds; of a pair, 16 bits of it to each part.
template <class V, int Parts>
bool RunSet(WarpContext& w, const Instruction& in, uint32_t active) {
  const uint32_t low = Combine(w, in, CompareParts<V>(w, in, 0));
  const uint32_t high = Parts == 2 ? Combine(w, in, CompareParts<V>(w, in, 1)) : 0;
  const uint32_t yes = static_cast<uint32_t>(in.imm);
  auto* d = Target<uint32_t>(w, in.dst, active);
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t one = (low & kLaneBit[i]) != 0 ? yes : 0;
    d[i] = Parts == 1 ? one : (one & 0xffff) | ((high & kLaneBit[i]) != 0 ? yes << 16 : 0);
  }
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

template <class V, int Parts>
Handler SelectPart(const Selector& s) {
  if (s.op == Op::kSetp) return RunSetp<V, Parts>;
  if (s.op == Op::kSet) return RunSet<V, Parts>;
  return SelectOperation<V, Parts>(s.op);
}

}  // namespace

Handler SelectHalf(const Selector& s) {
  switch (s.op == Op::kSetp || s.op == Op::kSet ? s.from : s.type) {
    case Type::kF16:
      return SelectPart<Half, 1>(s);
    case Type::kBf16:
      return SelectPart<Brain, 1>(s);
    case Type::kF16x2:
      return SelectPart<Half, 2>(s);
    case Type::kBf16x2:
      return SelectPart<Brain, 2>(s);
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
