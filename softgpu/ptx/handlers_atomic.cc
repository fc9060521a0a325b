// Atomic operations.
#include "softgpu/ptx/float_lanes.h"
#include "softgpu/ptx/memory_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

template <class T>
T Combined(Atomic op, T old, T b, T c) {
  if constexpr (kSame<T, float> || kSame<T, double>) {
    return op == Atomic::kAdd ? Canonical(old + b) : b;
  } else {
    switch (op) {
      case Atomic::kAdd:
        return static_cast<T>(static_cast<Unsigned<T>>(old) + static_cast<Unsigned<T>>(b));
      case Atomic::kMin:
        return b < old ? b : old;
      case Atomic::kMax:
        return b > old ? b : old;
      case Atomic::kInc:
        return old >= b ? 0 : old + 1;
      case Atomic::kDec:
        return old == 0 || old > b ? b : old - 1;
      case Atomic::kAnd:
        return old & b;
      case Atomic::kOr:
        return old | b;
      case Atomic::kXor:
        return old ^ b;
      case Atomic::kExch:
        return b;
      case Atomic::kCas:
        return old == b ? c : old;
    }
    return old;
  }
}

template <uint32_t kBytes>
struct WordOf {
  using type TANDEM_ALIAS = uint16_t;
};
template <>
struct WordOf<4> {
  using type = AliasU32;
};
template <>
struct WordOf<8> {
  using type = AliasU64;
};

// Replaces *old by `next`, in one operation of the processor: the host and other devices may change
// the same word. False: it is not *old, and *old is what it is.
template <class T>
inline bool Exchange(uint8_t* at, T* old, T next) {
  using Word = typename WordOf<sizeof(T)>::type;
  Word expected, wanted;
  __builtin_memcpy(&expected, old, sizeof expected);
  __builtin_memcpy(&wanted, &next, sizeof wanted);
  const bool done = __atomic_compare_exchange_n(reinterpret_cast<Word*>(at), &expected, wanted,
                                                false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  __builtin_memcpy(old, &expected, sizeof expected);
  return done;
}

template <class T>
inline T Next(const WarpContext& w, const Instruction& in, const uint8_t* at, T old, T b, T c) {
  const T next = Combined<T>(in.atomic, old, b, c);
  if constexpr (kSame<T, float>) {
    // The adder of global memory flushes subnormals, that of shared memory does not.
    const bool global = reinterpret_cast<uint64_t>(at) - w.device_base < w.device_size;
    if (global && in.atomic == Atomic::kAdd) {
      return Flush<true>(Canonical(Flush<true>(old) + Flush<true>(b)));
    }
  }
  return next;
}

// Lanes go one after the other, in order.
template <class T, bool kSystem>
bool RunAtom(WarpContext& w, const Instruction& in, uint32_t active) {
  Plan plan;
  if (!Locate(w, in, active, sizeof(T), true, plan)) return false;
  const auto* b = Source<T>(w, in.b);
  const auto* c = Source<T>(w, in.c);
  auto* d = reinterpret_cast<typename Cell<T>::Raw*>(w.scratch);
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    uint8_t* at = plan.base + plan.offset[i];
    T old = Read<T>(at);
    T next = Next<T>(w, in, at, old, b[i], c[i]);
    if constexpr (kSystem) {
      while (!Exchange(at, &old, next)) next = Next<T>(w, in, at, old, b[i], c[i]);
    } else {
      __builtin_memcpy(at, &next, sizeof next);
    }
    d[i] = old;
  }
  auto* home = reinterpret_cast<typename Cell<T>::Raw*>(w.frame + in.dst);
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    home[i] = d[i];
  }
  return true;
}

template <class V, class Word>
inline Word SumOfHalves(Word old, uint32_t b) {
  Word next = 0;
  for (int shift = 0; shift < kBits<Word>; shift += 16) {
    const V x{static_cast<uint16_t>(old >> shift)}, y{static_cast<uint16_t>(b >> shift)};
    const V sum = RoundDouble<V>(SumToOdd(Widen(x), Widen(y)), Round::kNearest);
    next = static_cast<Word>(next | static_cast<Word>(sum.bits) << shift);
  }
  return next;
}

// atom.add of halves and bfloats, one or a pair. Lanes go one after the other, in order.
template <class V, class Word, bool kSystem>
bool RunAtomHalf(WarpContext& w, const Instruction& in, uint32_t active) {
  Plan plan;
  if (!Locate(w, in, active, sizeof(Word), true, plan)) return false;
  const auto* b = Source<uint32_t>(w, in.b);
  uint32_t before[kLanes];
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    uint8_t* at = plan.base + plan.offset[i];
    Word old = Read<Word>(at);
    Word next = SumOfHalves<V>(old, b[i]);
    if constexpr (kSystem) {
      while (!Exchange(at, &old, next)) next = SumOfHalves<V>(old, b[i]);
    } else {
      __builtin_memcpy(at, &next, sizeof next);
    }
    before[i] = old;
  }
  auto* home = Target<uint32_t>(w, in.dst, ~0u);
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    home[i] = before[i];
  }
  return true;
}

template <bool kSystem>
Handler SelectFor(const Selector& s) {
  switch (s.type) {
    case Type::kU16:
      return RunAtom<uint16_t, kSystem>;
    case Type::kF16:
      return RunAtomHalf<Half, uint16_t, kSystem>;
    case Type::kBf16:
      return RunAtomHalf<Brain, uint16_t, kSystem>;
    case Type::kF16x2:
      return RunAtomHalf<Half, uint32_t, kSystem>;
    case Type::kBf16x2:
      return RunAtomHalf<Brain, uint32_t, kSystem>;
    case Type::kU32:
      return RunAtom<uint32_t, kSystem>;
    case Type::kS32:
      return RunAtom<int32_t, kSystem>;
    case Type::kU64:
      return RunAtom<uint64_t, kSystem>;
    case Type::kS64:
      return RunAtom<int64_t, kSystem>;
    case Type::kF32:
      return RunAtom<float, kSystem>;
    case Type::kF64:
      return RunAtom<double, kSystem>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler SelectAtomic(const Selector& s) {
  return s.system ? SelectFor<true>(s) : SelectFor<false>(s);
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
