// setp, set, selp, slct, predicate logic, and mov with its packing.
#include "softgpu/ptx/float_lanes.h"
#include "softgpu/ptx/vector_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

inline bool Not(bool holds) {
  return !holds;
}
inline bool Not(int holds) {  // what | makes of two bools
  return holds == 0;
}
template <class V>
inline V Not(V holds) {  // of a vector, whose elements are 0 and −1
  return ~holds;
}

// Of two numbers, or of two vectors of them.
template <Compare compare, class V>
inline auto Holds(V a, V b) {
  if constexpr (compare == Compare::kEq) return a == b;
  if constexpr (compare == Compare::kNe) return (a < b) | (a > b);
  if constexpr (compare == Compare::kLt) return a < b;
  if constexpr (compare == Compare::kLe) return a <= b;
  if constexpr (compare == Compare::kGt) return a > b;
  if constexpr (compare == Compare::kGe) return a >= b;
  if constexpr (compare == Compare::kEqu) return Not((a < b) | (a > b));
  if constexpr (compare == Compare::kNeu) return Not(a == b);
  if constexpr (compare == Compare::kLtu) return Not(a >= b);
  if constexpr (compare == Compare::kLeu) return Not(a > b);
  if constexpr (compare == Compare::kGtu) return Not(a <= b);
  if constexpr (compare == Compare::kGeu) return Not(a < b);
  if constexpr (compare == Compare::kNum) return (a == a) & (b == b);
  if constexpr (compare == Compare::kNan) return (a != a) | (b != b);
}

#if defined(__AVX2__)
// Takes the answers' signs together, rather than a bit from each.
template <class T, Compare compare>
uint32_t CompareRows(const typename Cell<T>::Raw* a, const typename Cell<T>::Raw* b) {
  using V = typename Vector<T>::type;
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; i += Vector<T>::kCount) {
    bits |= Signs(Holds<compare>(*reinterpret_cast<const V*>(a + i),
                                 *reinterpret_cast<const V*>(b + i)))
            << i;
  }
  return bits;
}
#else
template <class T, Compare compare>
uint32_t CompareRows(const typename Cell<T>::Raw* a, const typename Cell<T>::Raw* b) {
  uint32_t bits = 0;
  TANDEM_LANES bits |= Holds<compare, T>(a[i], b[i]) ? kLaneBit[i] : 0;
  return bits;
}
#endif

template <class T, Compare compare, bool Ftz>
uint32_t CompareLanes(const WarpContext& w, const Instruction& in) {
  const auto* a = Source<T>(w, in.a);
  const auto* b = Source<T>(w, in.b);
  if constexpr (!kSame<T, Half> && !Ftz && sizeof(T) == sizeof(*a)) {
    return CompareRows<T, compare>(a, b);
  } else {
    uint32_t bits = 0;
    if constexpr (kSame<T, Half> || Ftz) {
      TANDEM_LANES bits |= Holds<compare>(Flush<Ftz>(Widen(Cell<T>::Get(a[i]))),
                                          Flush<Ftz>(Widen(Cell<T>::Get(b[i]))))
                               ? kLaneBit[i]
                               : 0;
    } else {
      TANDEM_LANES bits |= Holds<compare>(Cell<T>::Get(a[i]), Cell<T>::Get(b[i])) ? kLaneBit[i] : 0;
    }
    return bits;
  }
}

template <class T, Compare compare, bool Ftz>
bool RunSetp(WarpContext& w, const Instruction& in, uint32_t active) {
  const uint32_t bits = CompareLanes<T, compare, Ftz>(w, in);
  if (in.logic == Logic::kNone && in.d == kSinkPredicate) [[likely]] {
    SetPredicate(w, in.dst, bits, active);
    return true;
  }
  // Both results before either write: c may be a destination too.
  const uint32_t p = Combine(w, in, bits), q = Combine(w, in, ~bits);
  SetPredicate(w, in.dst, p, active);
  SetPredicate(w, in.d, q, active);
  return true;
}

// set writes in.imm where the comparison holds.
template <class T, Compare compare, bool Ftz>
bool RunSet(WarpContext& w, const Instruction& in, uint32_t active) {
  const uint32_t bits = Combine(w, in, CompareLanes<T, compare, Ftz>(w, in));
  const uint32_t yes = static_cast<uint32_t>(in.imm);
  auto* d = Target<uint32_t>(w, in.dst, active);
  TANDEM_LANES d[i] = (bits & kLaneBit[i]) != 0 ? yes : 0;
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

template <class T, bool Ftz>
Handler SelectComparison(const Selector& s) {
#define TANDEM_COMPARE(NAME) \
  case Compare::NAME:        \
    return s.op == Op::kSetp ? RunSetp<T, Compare::NAME, Ftz> : RunSet<T, Compare::NAME, Ftz>;
  switch (s.compare) {
    TANDEM_COMPARE(kEq)
    TANDEM_COMPARE(kNe)
    TANDEM_COMPARE(kLt)
    TANDEM_COMPARE(kLe)
    TANDEM_COMPARE(kGt)
    TANDEM_COMPARE(kGe)
    default:
      break;
  }
  if constexpr (kSame<T, float> || kSame<T, double> || kSame<T, Half>) {
    switch (s.compare) {
      TANDEM_COMPARE(kEqu)
      TANDEM_COMPARE(kNeu)
      TANDEM_COMPARE(kLtu)
      TANDEM_COMPARE(kLeu)
      TANDEM_COMPARE(kGtu)
      TANDEM_COMPARE(kGeu)
      TANDEM_COMPARE(kNum)
      TANDEM_COMPARE(kNan)
      default:
        break;
    }
  }
#undef TANDEM_COMPARE
  return nullptr;
}

Handler SelectSetp(const Selector& s) {
  if (s.ftz) return s.from == Type::kF32 ? SelectComparison<float, true>(s) : nullptr;
  switch (s.from) {
    case Type::kU16:
      return SelectComparison<uint16_t, false>(s);
    case Type::kU32:
      return SelectComparison<uint32_t, false>(s);
    case Type::kU64:
      return SelectComparison<uint64_t, false>(s);
    case Type::kS16:
      return SelectComparison<int16_t, false>(s);
    case Type::kS32:
      return SelectComparison<int32_t, false>(s);
    case Type::kS64:
      return SelectComparison<int64_t, false>(s);
    case Type::kF16:
      return SelectComparison<Half, false>(s);
    case Type::kF32:
      return SelectComparison<float, false>(s);
    case Type::kF64:
      return SelectComparison<double, false>(s);
    default:
      return nullptr;
  }
}

template <class T>
bool RunSelp(WarpContext& w, const Instruction& in, uint32_t active) {
  const uint32_t mask = PredicateOf(w, in.c, in.negate_c);
  auto* d = Target<T>(w, in.dst, active);
  Choose<typename Cell<T>::Raw>(d, Source<T>(w, in.a), Source<T>(w, in.b), mask);
  Finish<T>(w, in.dst, active);
  return true;
}

// slct: a where c >= 0, else b. C is int32_t or float; -0 counts as zero, NaN as less.
template <class T, class C, bool Ftz>
bool RunSlct(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* c = Source<C>(w, in.c);
  uint32_t mask = 0;
  TANDEM_LANES mask |= c[i] >= 0 || (Ftz && c[i] > C(-0x1p-126f)) ? kLaneBit[i] : 0;
  auto* d = Target<T>(w, in.dst, active);
  Choose<typename Cell<T>::Raw>(d, Source<T>(w, in.a), Source<T>(w, in.b), mask);
  Finish<T>(w, in.dst, active);
  return true;
}

template <class T>
Handler SelectSlct(const Selector& s) {
  if (s.from == Type::kS32) return RunSlct<T, int32_t, false>;
  if (s.from != Type::kF32) return nullptr;
  return s.ftz ? RunSlct<T, float, true> : RunSlct<T, float, false>;
}

template <class T>
bool RunMov(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* a = Source<T>(w, in.a);
  Assign(Register<T>(w, in.dst), active, [=](int i) { return a[i]; });
  return true;
}

template <Op op>
bool RunPredicate(WarpContext& w, const Instruction& in, uint32_t active) {
  const uint32_t a = PredicateOf(w, in.a, in.negate_a), b = PredicateOf(w, in.b, in.negate_b);
  uint32_t r = a;
  if (op == Op::kPredAnd) r = a & b;
  if (op == Op::kPredOr) r = a | b;
  if (op == Op::kPredXor) r = a ^ b;
  if (op == Op::kPredNot) r = ~a;
  SetPredicate(w, in.dst, r, active);
  return true;
}

// mov.bN d, {a, b, ...}: Part and T are the widths of the pieces and of the whole.
template <class T, class Part>
bool RunPack(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<T>(w, in.dst, active);
  const uint32_t refs[4] = {in.a, in.b, in.c, in.d};
  for (int i = 0; i < kLanes; ++i) {
    uint64_t value = 0;
    for (int part = 0; part < in.count; ++part) {
      const uint64_t piece = Source<Part>(w, refs[part])[i];
      value |= (piece & static_cast<Part>(~Part(0))) << (kBits<Part> * part);
    }
    d[i] = static_cast<T>(value);
  }
  Finish<T>(w, in.dst, active);
  return true;
}

// mov.bN {d, b, c, ...}, a: the destinations are dst, b, c and d.
template <class T, class Part>
bool RunUnpack(WarpContext& w, const Instruction& in, uint32_t active) {
  T whole[kLanes];
  const auto* a = Source<T>(w, in.a);
  for (int i = 0; i < kLanes; ++i) whole[i] = a[i];
  const uint32_t refs[4] = {in.dst, in.b, in.c, in.d};
  for (int part = 0; part < in.count; ++part) {
    auto* d = Target<Part>(w, refs[part], active);
    TANDEM_LANES d[i] = static_cast<Part>(whole[i] >> (kBits<Part> * part));
    Finish<Part>(w, refs[part], active);
  }
  return true;
}

Handler SelectPack(const Selector& s) {
  const bool pack = s.op == Op::kPack;
  if (s.type == Type::kU64) {
    if (s.from == Type::kU32)
      return pack ? RunPack<uint64_t, uint32_t> : RunUnpack<uint64_t, uint32_t>;
    if (s.from == Type::kU16)
      return pack ? RunPack<uint64_t, uint16_t> : RunUnpack<uint64_t, uint16_t>;
  }
  if (s.type == Type::kU32) {
    if (s.from == Type::kU16)
      return pack ? RunPack<uint32_t, uint16_t> : RunUnpack<uint32_t, uint16_t>;
    if (s.from == Type::kU8)
      return pack ? RunPack<uint32_t, uint8_t> : RunUnpack<uint32_t, uint8_t>;
  }
  if (s.type == Type::kU16 && s.from == Type::kU8) {
    return pack ? RunPack<uint16_t, uint8_t> : RunUnpack<uint16_t, uint8_t>;
  }
  return nullptr;
}

bool RunImageAddress(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<uint64_t>(w, in.dst, active);
  const uint64_t value = w.image_address + static_cast<uint64_t>(in.imm);
  TANDEM_LANES d[i] = value;
  Finish<uint64_t>(w, in.dst, active);
  return true;
}

template <class T>
Handler SelectMove(const Selector& s) {
  switch (s.op) {
    case Op::kSelp:
      return RunSelp<T>;
    case Op::kSlct:
      return SelectSlct<T>(s);
    default:
      return RunMov<T>;
  }
}

}  // namespace

Handler SelectCompare(const Selector& s) {
  const bool wide = s.type == Type::kU64 || s.type == Type::kS64 || s.type == Type::kF64;
  switch (s.op) {
    case Op::kSetp:
    case Op::kSet:
      if (s.from == Type::kF16 && s.ftz) return SelectHalf(s);
      if (s.from == Type::kBf16 || s.from == Type::kF16x2 || s.from == Type::kBf16x2) {
        return SelectHalf(s);
      }
      return SelectSetp(s);
    case Op::kSelp:
    case Op::kSlct:
    case Op::kMov:
      return wide ? SelectMove<uint64_t>(s) : SelectMove<uint32_t>(s);
    case Op::kPredAnd:
      return RunPredicate<Op::kPredAnd>;
    case Op::kPredOr:
      return RunPredicate<Op::kPredOr>;
    case Op::kPredXor:
      return RunPredicate<Op::kPredXor>;
    case Op::kPredNot:
      return RunPredicate<Op::kPredNot>;
    case Op::kPredMov:
      return RunPredicate<Op::kPredMov>;
    case Op::kPack:
    case Op::kUnpack:
      return SelectPack(s);
    case Op::kImageAddress:
      return RunImageAddress;
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
