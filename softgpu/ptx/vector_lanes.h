// Whole vector registers, said to the compiler: left to itself it unrolls loops over half a warp
// into single words, and a row that was written word by word cannot be read as vectors before all
// of it has reached the cache. Included like lanes.h.
#pragma once

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "softgpu/ptx/lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#else
inline constexpr int kVectorBytes = 32;
#endif

// N elements of A.
template <class A, int N>
struct VectorOf {
  typedef A type __attribute__((vector_size(N * sizeof(A)), may_alias));
};
template <class T, int N>
using Many = typename VectorOf<T, N>::type;

// At any address.
template <class V>
inline V LoadVector(const void* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

template <class V>
inline void StoreVector(void* to, const V& value) {
  __builtin_memcpy(to, &value, sizeof value);
}

template <class To, class From>
inline To Reinterpret(const From& from) {
  return LoadVector<To>(&from);
}

// As many as a register holds.
template <class A>
struct Vector : VectorOf<A, kVectorBytes / sizeof(A)> {
  static constexpr int kCount = kVectorBytes / sizeof(A);
};

template <class V>
inline bool AnyBit(V vector) {
#if defined(__AVX512F__) && !defined(__clang__)
  typedef long long Words __attribute__((vector_size(64)));
  const auto words = reinterpret_cast<Words>(vector);
  return __builtin_ia32_ptestmq512(words, words, 0xff) != 0;
#elif defined(__AVX__) && !defined(__AVX512F__)
  typedef long long Words __attribute__((vector_size(32)));
  const auto words = reinterpret_cast<Words>(vector);
  return __builtin_ia32_ptestz256(words, words) == 0;
#else
  uint64_t words[sizeof(V) / 8], any = 0;
  __builtin_memcpy(words, &vector, sizeof words);
  for (const uint64_t word : words) any |= word;
  return any != 0;
#endif
}

#if defined(__AVX2__)
// The elements' signs, the first one's in bit 0.
template <class V>
inline uint32_t Signs(V vector) {
  constexpr bool kWide = sizeof(vector[0]) == 8;
#if defined(__AVX512F__)
  typedef long long Wide __attribute__((vector_size(64)));
  typedef int Narrow __attribute__((vector_size(64)));
  if constexpr (kWide) return __builtin_ia32_cvtq2mask512(reinterpret_cast<Wide>(vector));
  return __builtin_ia32_cvtd2mask512(reinterpret_cast<Narrow>(vector));
#else
  typedef double Wide __attribute__((vector_size(32)));
  typedef float Narrow __attribute__((vector_size(32)));
  const int signs = kWide ? __builtin_ia32_movmskpd256(reinterpret_cast<Wide>(vector))
                          : __builtin_ia32_movmskps256(reinterpret_cast<Narrow>(vector));
  return static_cast<uint32_t>(signs);
#endif
}
#endif

// The types of twice and of half the width that values of T pass through on their way.
template <class T>
struct Neighbours;
template <>
struct Neighbours<uint8_t> {
  using Wider = uint16_t;
};
template <>
struct Neighbours<int8_t> {
  using Wider = int16_t;
};
template <>
struct Neighbours<uint16_t> {
  using Wider = uint32_t;
};
template <>
struct Neighbours<int16_t> {
  using Wider = int32_t;
};
template <>
struct Neighbours<uint32_t> {
  using Narrower = uint16_t;
};
template <>
struct Neighbours<uint64_t> {
  using Narrower = uint32_t;
};

// to = static_cast<To>(from), of N elements. One step doubles or halves the width at most, since
// only such steps are instructions.
template <class From, class To, int N>
inline void Convert(const typename VectorOf<From, N>::type& from,
                    typename VectorOf<To, N>::type& to) {
  if constexpr (sizeof(To) > 2 * sizeof(From)) {
    using Next = typename Neighbours<From>::Wider;
    const auto next = __builtin_convertvector(from, typename VectorOf<Next, N>::type);
    Convert<Next, To, N>(next, to);
  } else if constexpr (2 * sizeof(To) < sizeof(From)) {
    using Next = typename Neighbours<From>::Narrower;
    const auto next = __builtin_convertvector(from, typename VectorOf<Next, N>::type);
    Convert<Next, To, N>(next, to);
  } else {
    to = __builtin_convertvector(from, typename VectorOf<To, N>::type);
  }
}

// Turns 4 rows of 4 elements over.
template <class V>
inline void Turn(V (&x)[4]) {
  const V a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5);
  const V b = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
  const V c = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
  const V d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
  x[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  x[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  x[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  x[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

// Turns a square of 8 rows and columns over.
inline void Turn(Many<uint16_t, 8> (&x)[8]) {
  Many<uint16_t, 8> y[8];
  // Each step puts what lies 4 rows apart side by side; three make the columns rows.
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < 4; ++i) {
      y[2 * i] = __builtin_shufflevector(x[i], x[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; ++i) x[i] = y[i];
  }
}

inline constexpr int kHalf = kLanes / 2;

// Half a row of registers of type D from as many T that lie one after the other.
template <class T, class D>
inline void LoadHalf(const uint8_t* from, typename Cell<D>::Raw* d) {
  using Raw = decltype(Cell<D>::Put(D()));
  constexpr int kCount = Vector<Raw>::kCount;
  for (int i = 0; i < kHalf; i += kCount) {
    typename VectorOf<T, kCount>::type values;
    __builtin_memcpy(&values, from + static_cast<size_t>(i) * sizeof(T), sizeof values);
    typename VectorOf<D, kCount>::type extended;
    Convert<T, D, kCount>(values, extended);
    Convert<D, Raw, kCount>(extended, *reinterpret_cast<typename Vector<Raw>::type*>(d + i));
  }
}

// Half a row of registers of type S into as many T.
template <class T, class S>
inline void StoreHalf(const typename Cell<S>::Raw* s, uint8_t* to) {
  using Raw = decltype(Cell<S>::Put(S()));
  constexpr int kCount = Vector<Raw>::kCount;
  for (int i = 0; i < kHalf; i += kCount) {
    typename VectorOf<T, kCount>::type values;
    Convert<Raw, T, kCount>(*reinterpret_cast<const typename Vector<Raw>::type*>(s + i), values);
    __builtin_memcpy(to + static_cast<size_t>(i) * sizeof(T), &values, sizeof values);
  }
}

}  // namespace
}  // namespace tandem::ptx::TANDEM_PTX_PATH
