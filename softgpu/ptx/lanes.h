// What all handlers share: typed access to rows, the loop over 32 lanes, and the final merge.
//
// Included only by handlers_*.cc, which are compiled once for each instruction set, with
// TANDEM_PTX_PATH naming the namespace. Everything is in an anonymous namespace and takes nothing
// from std:: that could become a shared out-of-line function: the linker must never let the
// baseline path call code compiled for another.
#pragma once

#include <cstdint>
#include <cstring>

#include "softgpu/ptx/code.h"

#if defined(__clang__)
#define TANDEM_LANES _Pragma("clang loop vectorize(assume_safety)") for (int i = 0; i < kLanes; ++i)
#else
// A destination may be the very row that is read, but never overlaps one partly.
#define TANDEM_LANES _Pragma("GCC ivdep") for (int i = 0; i < kLanes; ++i)
#endif

#if defined(__clang__)
#define TANDEM_HALF \
  _Pragma("clang loop vectorize(assume_safety)") for (int i = 0; i < kLanes / 2; ++i)
#else
#define TANDEM_HALF _Pragma("GCC ivdep") for (int i = 0; i < kLanes / 2; ++i)
#endif

namespace tandem::ptx::TANDEM_PTX_PATH {

Handler SelectInteger(const Selector& s);
Handler SelectBits(const Selector& s);
Handler SelectFloat(const Selector& s);
Handler SelectHalf(const Selector& s);
Handler SelectCompare(const Selector& s);
Handler SelectConvert(const Selector& s);
Handler SelectMemory(const Selector& s);
Handler SelectAtomic(const Selector& s);
Handler SelectTexture(const Selector& s);
Handler SelectSurface(const Selector& s);
Handler SelectWarp(const Selector& s);
Handler SelectMatrix(const Selector& s);
Handler SelectWmma(const Selector& s);
Handler SelectVideo(const Selector& s);
Handler SelectBarrier(const Selector& s);
Handler SelectHeap(const Selector& s);

namespace {

#define TANDEM_ALIAS __attribute__((may_alias))
using AliasU32 = uint32_t TANDEM_ALIAS;
using AliasS32 = int32_t TANDEM_ALIAS;
using AliasU64 = uint64_t TANDEM_ALIAS;
using AliasS64 = int64_t TANDEM_ALIAS;
using AliasF32 = float TANDEM_ALIAS;
using AliasF64 = double TANDEM_ALIAS;

struct Half {
  uint16_t bits;
};

inline uint32_t BitsOf(float x) {
  return __builtin_bit_cast(uint32_t, x);
}
inline uint64_t BitsOf(double x) {
  return __builtin_bit_cast(uint64_t, x);
}
inline float FloatOf(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
inline double FloatOf(uint64_t bits) {
  return __builtin_bit_cast(double, bits);
}

// How a value of type T lies in a row: Raw is the slot, Get and Put convert.
template <class T>
struct Cell;
template <>
struct Cell<uint32_t> {
  using Raw = AliasU32;
  static uint32_t Get(uint32_t raw) { return raw; }
  static uint32_t Put(uint32_t value) { return value; }
};
template <>
struct Cell<int32_t> {
  using Raw = AliasS32;
  static int32_t Get(int32_t raw) { return raw; }
  static int32_t Put(int32_t value) { return value; }
};
template <>
struct Cell<uint64_t> {
  using Raw = AliasU64;
  static uint64_t Get(uint64_t raw) { return raw; }
  static uint64_t Put(uint64_t value) { return value; }
};
template <>
struct Cell<int64_t> {
  using Raw = AliasS64;
  static int64_t Get(int64_t raw) { return raw; }
  static int64_t Put(int64_t value) { return value; }
};
template <>
struct Cell<float> {
  using Raw = AliasF32;
  static float Get(float raw) { return raw; }
  static float Put(float value) { return value; }
};
template <>
struct Cell<double> {
  using Raw = AliasF64;
  static double Get(double raw) { return raw; }
  static double Put(double value) { return value; }
};
template <>
struct Cell<Half> {
  using Raw = AliasU32;
  static Half Get(uint32_t raw) { return {static_cast<uint16_t>(raw)}; }
  static uint32_t Put(Half value) { return value.bits; }
};
template <class T, class Unsigned>
struct NarrowCell {
  using Raw = AliasU32;
  static T Get(uint32_t raw) { return static_cast<T>(raw); }
  static uint32_t Put(T value) { return static_cast<Unsigned>(value); }
};
template <>
struct Cell<uint8_t> : NarrowCell<uint8_t, uint8_t> {};
template <>
struct Cell<int8_t> : NarrowCell<int8_t, uint8_t> {};
template <>
struct Cell<uint16_t> : NarrowCell<uint16_t, uint16_t> {};
template <>
struct Cell<int16_t> : NarrowCell<int16_t, uint16_t> {};

template <class T>
struct UnsignedOf {
  using type = T;
};
template <>
struct UnsignedOf<int8_t> {
  using type = uint8_t;
};
template <>
struct UnsignedOf<int16_t> {
  using type = uint16_t;
};
template <>
struct UnsignedOf<int32_t> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<int64_t> {
  using type = uint64_t;
};
template <class T>
using Unsigned = typename UnsignedOf<T>::type;

template <class T>
inline constexpr bool kIsSigned = T(-1) < T(0);
template <class T>
inline constexpr int kBits = static_cast<int>(sizeof(T)) * 8;
template <class A, class B>
inline constexpr bool kSame = false;
template <class A>
inline constexpr bool kSame<A, A> = true;

inline uint8_t* RowBytes(const WarpContext& w, uint32_t ref) {
  return w.frame + ref;
}
template <class T>
inline const typename Cell<T>::Raw* Source(const WarpContext& w, uint32_t ref) {
  return reinterpret_cast<const typename Cell<T>::Raw*>(
      __builtin_assume_aligned(RowBytes(w, ref), 64));
}

template <class T>
inline typename Cell<T>::Raw* Register(const WarpContext& w, uint32_t ref) {
  return reinterpret_cast<typename Cell<T>::Raw*>(__builtin_assume_aligned(w.frame + ref, 64));
}

// Where a result goes: its register when all lanes run, else the scratch row, to be merged.
template <class T>
inline typename Cell<T>::Raw* Target(const WarpContext& w, uint32_t ref, uint32_t active) {
  uint8_t* row = active == ~0u ? w.frame + ref : w.scratch;
  return reinterpret_cast<typename Cell<T>::Raw*>(__builtin_assume_aligned(row, 64));
}

alignas(64) constexpr uint32_t kLaneBit[kLanes] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
    1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
    1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
    1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};

// d[i] = lane i in mask ? a[i] : b[i]
template <class Slot>
inline void Choose(Slot* d, const Slot* a, const Slot* b, uint32_t mask) {
  TANDEM_LANES d[i] = (mask & kLaneBit[i]) != 0 ? a[i] : b[i];
}

// Brings a partial result from the scratch row home.
template <class T>
inline void Finish(const WarpContext& w, uint32_t ref, uint32_t active) {
  if (active == ~0u) return;
  if constexpr (sizeof(typename Cell<T>::Raw) == 8) {
    auto* home = reinterpret_cast<AliasU64*>(w.frame + ref);
    Choose<AliasU64>(home, reinterpret_cast<const AliasU64*>(w.scratch), home, active);
  } else {
    auto* home = reinterpret_cast<AliasU32*>(w.frame + ref);
    Choose<AliasU32>(home, reinterpret_cast<const AliasU32*>(w.scratch), home, active);
  }
}

inline uint32_t PredicateOf(const WarpContext& w, uint32_t ref, bool negated) {
  return w.predicates[ref] ^ (negated ? ~0u : 0);
}

inline void SetPredicate(const WarpContext& w, uint32_t ref, uint32_t bits, uint32_t active) {
  w.predicates[ref] = (w.predicates[ref] & ~active) | (bits & active);
}

// Leaves a fault for the interpreter.
inline bool Fail(WarpContext& w, WarpContext::FaultKind kind, uint64_t address) {
  w.fault = kind;
  w.fault_address = address;
  return false;
}

// Whether the device has memory at this offset.
inline bool GranuleExists(const WarpContext& w, uint64_t offset, bool write) {
  if (offset >= w.device_size) return false;
  const uint64_t granule = offset >> w.granule_shift;
  const std::atomic<uint64_t>* bits = write ? w.writable : w.readable;
  return (bits[granule >> 6].load(std::memory_order_relaxed) >> (granule & 63) & 1) != 0;
}

// setp's and set's optional second step: a boolean with predicate c, which may be negated.
inline uint32_t Combine(const WarpContext& w, const Instruction& in, uint32_t bits) {
  const uint32_t other = PredicateOf(w, in.c, in.negate_c);
  switch (in.logic) {
    case Logic::kAnd:
      return bits & other;
    case Logic::kOr:
      return bits | other;
    case Logic::kXor:
      return bits ^ other;
    default:
      return bits;
  }
}

// R, A, B, C all T unless a functor says otherwise.
template <class T>
struct Same {
  using R = T;
  using A = T;
  using B = T;
  using C = T;
};

// d[i] = value(i) for the lanes in `active`.
template <class Slot, class Value>
inline void Assign(Slot* d, uint32_t active, Value value) {
  if (active == ~0u) {
    TANDEM_LANES d[i] = value(i);
  } else {
    TANDEM_LANES {
      const Slot computed = value(i);
      d[i] = (active & kLaneBit[i]) != 0 ? computed : d[i];
    }
  }
}

// A handler from a functor F with types R, A, B, C and a static Apply of as many operands.
template <class F>
bool Map1(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* a = Source<typename F::A>(w, in.a);
  Assign(Register<typename F::R>(w, in.dst), active,
         [=](int i) { return Cell<typename F::R>::Put(F::Apply(Cell<typename F::A>::Get(a[i]))); });
  return true;
}

template <class F>
bool Map2(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* a = Source<typename F::A>(w, in.a);
  const auto* b = Source<typename F::B>(w, in.b);
  Assign(Register<typename F::R>(w, in.dst), active, [=](int i) {
    return Cell<typename F::R>::Put(
        F::Apply(Cell<typename F::A>::Get(a[i]), Cell<typename F::B>::Get(b[i])));
  });
  return true;
}

template <class F>
bool Map3(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* a = Source<typename F::A>(w, in.a);
  const auto* b = Source<typename F::B>(w, in.b);
  const auto* c = Source<typename F::C>(w, in.c);
  Assign(Register<typename F::R>(w, in.dst), active, [=](int i) {
    return Cell<typename F::R>::Put(F::Apply(Cell<typename F::A>::Get(a[i]),
                                             Cell<typename F::B>::Get(b[i]),
                                             Cell<typename F::C>::Get(c[i])));
  });
  return true;
}

}  // namespace
}  // namespace tandem::ptx::TANDEM_PTX_PATH
