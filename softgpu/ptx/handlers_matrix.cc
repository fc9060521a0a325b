// mma.sync and wmma.mma: D = A * B + C, where the matrices lie spread over a warp's registers as
// wmma.h says.
//
// A product of factors smaller than a double is exact in double precision. Their sum is taken
// there, in the order of the rows of B, and rounded once. Products of whole numbers of 8 bits and
// their sums are exact in single precision. Since products are exact, this file may be compiled to
// fused multiplications and additions, which give the same bits.
#include "softgpu/ptx/float_lanes.h"
#include "softgpu/ptx/vector_lanes.h"
#include "softgpu/ptx/wmma.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

// The registers of a matrix.
struct Matrix {
  Fragment fragment;
  const AliasU32* refs;

  int down() const { return fragment.rows / 8; }  // tiles below each other
};

struct Factors {
  Matrix d, a, b, c;
};

inline Factors FactorsOf(const WarpContext& w, const Instruction& in) {
  Factors factors;
  const AliasU32* words = Source<uint32_t>(w, in.c);
  for (Matrix* matrix : {&factors.d, &factors.a, &factors.b, &factors.c}) {
    __builtin_memcpy(static_cast<void*>(&matrix->fragment), words, sizeof matrix->fragment);
    matrix->refs = words + kFragmentWords;
    words = matrix->refs + matrix->fragment.registers;
  }
  return factors;
}

struct Tf32 {
  uint32_t bits;
};

// 8 elements that lie one after the other.
template <class T>
inline Many<float, 8> FloatsAt(const uint8_t* from) {
  if constexpr (kSame<T, Tf32>) {
    return Reinterpret<Many<float, 8>>(LoadVector<Many<uint32_t, 8>>(from) & 0xffffe000);
  } else if constexpr (kSame<T, Brain> || kSame<T, Half>) {
#if defined(__F16C__)
    if constexpr (kSame<T, Half>) {
      return Reinterpret<Many<float, 8>>(_mm256_cvtph_ps(LoadVector<__m128i>(from)));
    }
#endif
    Many<uint32_t, 8> bits;
    Convert<uint16_t, uint32_t, 8>(LoadVector<Many<uint16_t, 8>>(from), bits);
    if constexpr (kSame<T, Brain>) return Reinterpret<Many<float, 8>>(bits << 16);
    // The exponent has another bias, that of infinities and NaNs aside.
    const Many<uint32_t, 8> magnitude = bits & 0x7fff;
    const auto scaled = Reinterpret<Many<float, 8>>(magnitude << 13) * 0x1p112f;
    const auto special = Reinterpret<Many<uint32_t, 8>>(magnitude >= 0x7c00) & 0x7f800000;
    return Reinterpret<Many<float, 8>>(Reinterpret<Many<uint32_t, 8>>(scaled) | special |
                                       (bits & 0x8000) << 16);
  } else {
    using Wide = typename Neighbours<T>::Wider;
    Many<Wide, 8> wide;
    Convert<T, Wide, 8>(LoadVector<Many<T, 8>>(from), wide);
    const auto whole = __builtin_convertvector(wide, Many<int32_t, 8>);
    return __builtin_convertvector(whole, Many<float, 8>);
  }
}

template <class Sum>
inline Many<Sum, 4> Widened(const Many<float, 4>& from) {
#if defined(__AVX__)
  // Compilers take two steps.
  if constexpr (kSame<Sum, double>) {
    return Reinterpret<Many<double, 4>>(_mm256_cvtps_pd(Reinterpret<__m128>(from)));
  }
#endif
  return __builtin_convertvector(from, Many<Sum, 4>);
}

template <class T>
inline constexpr int kWidth = 16 / static_cast<int>(sizeof(T));  // of a tile of A and B

// The shape of a product.
struct Size {
  int rows, columns, depth;
};

// A by rows.
template <class T, class Sum>
[[gnu::always_inline]] inline void ReadLeft(const WarpContext& w, const Matrix& a, Size size,
                                            Sum* left) {
  const AliasU32* ref = a.refs;
  for (int column = 0; column < size.depth; column += kWidth<T>) {
    for (int row = 0; row < size.rows; row += 8) {
      const uint8_t* from = RowBytes(w, *ref++);
      Sum* const to = left + row * size.depth + column;
      for (int i = 0; i < 8 * kWidth<T>; i += 8, from += 8 * sizeof(T)) {
        const Many<float, 8> x = FloatsAt<T>(from);
        const int next = i + 4;
        StoreVector(to + i / kWidth<T> * size.depth + i % kWidth<T>,
                    Widened<Sum>(__builtin_shufflevector(x, x, 0, 1, 2, 3)));
        StoreVector(to + next / kWidth<T> * size.depth + next % kWidth<T>,
                    Widened<Sum>(__builtin_shufflevector(x, x, 4, 5, 6, 7)));
      }
    }
  }
}

// B, whose fragment is turned over: 8 columns, the even ones first, then the next 8.
template <class T, class Sum>
[[gnu::always_inline]] inline void ReadRight(const WarpContext& w, const Matrix& b, Size size,
                                             Sum* right) {
  const AliasU32* ref = b.refs;
  for (int row = 0; row < size.depth; row += kWidth<T>) {
    for (int column = 0; column < size.columns; column += 8) {
      const uint8_t* const from = RowBytes(w, *ref++);
      alignas(32) float tile[8][kWidth<T>];
      for (int i = 0; i < 8 * kWidth<T>; i += 8) {
        StoreVector(&tile[0][0] + i, FloatsAt<T>(from + static_cast<size_t>(i) * sizeof(T)));
      }
      Sum* to = right + column * size.depth + row * 8;
      for (int k = 0; k < kWidth<T>; k += 4) {
        for (int odd = 0; odd < 2; ++odd) {
          Many<float, 4> x[4];
          for (int i = 0; i < 4; ++i) x[i] = LoadVector<Many<float, 4>>(&tile[2 * i + odd][k]);
          Turn(x);
          for (int i = 0; i < 4; ++i) StoreVector(to + (k + i) * 8 + 4 * odd, Widened<Sum>(x[i]));
        }
      }
    }
  }
}

[[gnu::always_inline]] inline void ReadFactors(const WarpContext& w, const Factors& f, Size size,
                                               double* left, double* right) {
  switch (f.a.fragment.type) {
    case Type::kF16:
      ReadLeft<Half>(w, f.a, size, left);
      return ReadRight<Half>(w, f.b, size, right);
    case Type::kBf16:
      ReadLeft<Brain>(w, f.a, size, left);
      return ReadRight<Brain>(w, f.b, size, right);
    default:
      ReadLeft<Tf32>(w, f.a, size, left);
      return ReadRight<Tf32>(w, f.b, size, right);
  }
}

[[gnu::always_inline]] inline void ReadFactors(const WarpContext& w, const Factors& f, Size size,
                                               float* left, float* right) {
  f.a.fragment.type == Type::kS8 ? ReadLeft<int8_t>(w, f.a, size, left)
                                 : ReadLeft<uint8_t>(w, f.a, size, left);
  f.b.fragment.type == Type::kS8 ? ReadRight<int8_t>(w, f.b, size, right)
                                 : ReadRight<uint8_t>(w, f.b, size, right);
}

// What of a tile of D is computed at once: some rows of 8 sums, those of the even columns first. 8
// vectors of them are as many as processors have on their way.
template <class Sum>
struct Block {
#if defined(__AVX__)
  static constexpr int kVectors = static_cast<int>(sizeof(Sum)) / 4;  // of a row
#else
  static constexpr int kVectors = static_cast<int>(sizeof(Sum)) / 2;
#endif
  static constexpr int kRows = 8 / kVectors;
  using Vector = Many<Sum, 8 / kVectors>;
  Vector rows[kRows][kVectors];

  // The sums of the even or the odd columns of a row.
  Many<Sum, 4> Half(int row, int odd) const {
    if constexpr (kVectors == 1) {
      const Vector& x = rows[row][0];
      return odd == 0 ? Many<Sum, 4>(__builtin_shufflevector(x, x, 0, 1, 2, 3))
                      : Many<Sum, 4>(__builtin_shufflevector(x, x, 4, 5, 6, 7));
    } else if constexpr (kVectors == 2) {
      return rows[row][odd];
    } else {
      return __builtin_shufflevector(rows[row][2 * odd], rows[row][2 * odd + 1], 0, 1, 2, 3);
    }
  }
  void SetHalf(int row, int odd, const Many<Sum, 4>& x) {
    if constexpr (kVectors == 2) {
      rows[row][odd] = x;
    } else {
      rows[row][2 * odd] = __builtin_shufflevector(x, x, 0, 1);
      rows[row][2 * odd + 1] = __builtin_shufflevector(x, x, 2, 3);
    }
  }
};

// Adds rows of A, `depth` apart, times 8 columns of B.
template <class Sum>
inline void AddProducts(const Sum* left, const Sum* right, int depth, Block<Sum>& sums) {
  using B = Block<Sum>;
  B block = sums;
  for (int k = 0; k < depth; ++k) {
    typename B::Vector row[B::kVectors];
    for (int v = 0; v < B::kVectors; ++v) {
      row[v] = LoadVector<typename B::Vector>(right + 8 * k + 8 / B::kVectors * v);
    }
    for (int i = 0; i < B::kRows; ++i) {
      const Sum factor = left[i * depth + k];
      for (int v = 0; v < B::kVectors; ++v) block.rows[i][v] += factor * row[v];
    }
  }
  sums = block;
}

// The first register of a tile of C or D, and the first lane that holds elements of a row.
struct Place {
  int reg, lane;
};
inline Place PlaceOf(const Matrix& matrix, int row, int column) {
  const int tile = column / 8 * matrix.down() + row / 8;
  return {matrix.fragment.in_register == 1 ? 2 * tile : tile, row % 8 * 4};
}

using Registers = uint32_t[kMaxFragmentRegisters][kLanes];

inline void ReadSums(const WarpContext& w, const Matrix& c, Place place, Block<double>& sums) {
  for (int i = 0; i < Block<double>::kRows; ++i) {
    const int at = (place.lane + 4 * i) * static_cast<int>(sizeof(uint32_t));
    if (c.fragment.type == Type::kF16) {
      const Many<float, 8> x = FloatsAt<Half>(RowBytes(w, c.refs[place.reg]) + at);
      sums.SetHalf(i, 0, Widened<double>(__builtin_shufflevector(x, x, 0, 2, 4, 6)));
      sums.SetHalf(i, 1, Widened<double>(__builtin_shufflevector(x, x, 1, 3, 5, 7)));
    } else {
      for (int odd = 0; odd < 2; ++odd) {
        const uint8_t* const from = RowBytes(w, c.refs[place.reg + odd]) + at;
        sums.SetHalf(i, odd, Widened<double>(LoadVector<Many<float, 4>>(from)));
      }
    }
  }
}

#if defined(__F16C__)
// So that one more rounding, to a half, gives what rounding the double would have given: bits that
// a float lacks are kept in its last one.
inline Many<float, 4> RoundedToOdd(const Many<double, 4>& x) {
  const auto bits = Reinterpret<Many<uint64_t, 4>>(x);
  const auto rest = Reinterpret<Many<uint64_t, 4>>((bits & 0x1fffffff) != 0);
  const auto odd = (bits & ~uint64_t{0x1fffffff}) | (rest & 0x20000000);
  return __builtin_convertvector(Reinterpret<Many<double, 4>>(odd), Many<float, 4>);
}
#endif

// Halves of even and of odd columns, each pair a word.
inline void PutHalves(const Many<double, 4>& even, const Many<double, 4>& odd, uint32_t* to) {
#if defined(__F16C__)
  const auto x =
      __builtin_shufflevector(RoundedToOdd(even), RoundedToOdd(odd), 0, 4, 1, 5, 2, 6, 3, 7);
  const auto halves = Reinterpret<Many<uint16_t, 8>>(_mm256_cvtps_ph(Reinterpret<__m256>(x), 0));
  const auto nan = Reinterpret<Many<uint16_t, 8>>((halves & 0x7fff) > 0x7c00);
  StoreVector(to, (halves & ~nan) | (nan & 0x7fff));
#else
  for (int i = 0; i < 4; ++i) {
    to[i] = DoubleToHalf(even[i], Round::kNearest).bits |
            static_cast<uint32_t>(DoubleToHalf(odd[i], Round::kNearest).bits) << 16;
  }
#endif
}

inline void PutFloats(const Many<double, 4>& sums, uint32_t* to) {
  const Many<float, 4> x = __builtin_convertvector(sums, Many<float, 4>);
  const Many<float, 4> nan = Many<float, 4>{} + FloatOf(uint32_t{0x7fffffff});
  StoreVector(to, x != x ? nan : x);
}

inline void PutSums(const Matrix& d, Place place, const Block<double>& sums, Registers& results) {
  for (int i = 0; i < Block<double>::kRows; ++i) {
    const Many<double, 4> even = sums.Half(i, 0), odd = sums.Half(i, 1);
    uint32_t* const to = &results[place.reg][place.lane + 4 * i];
    if (d.fragment.type == Type::kF16) {
      PutHalves(even, odd, to);
    } else {
      PutFloats(even, to);
      PutFloats(odd, to + kLanes);
    }
  }
}

// Whole numbers wrap, or end at the largest.
inline void PutWhole(const WarpContext& w, const Matrix& c, Place place, bool finite,
                     const Block<float>& sums, Registers& results) {
  using Words = Many<uint32_t, 4>;
  for (int i = 0; i < Block<float>::kRows; ++i) {
    const int lane = place.lane + 4 * i;
    for (int odd = 0; odd < 2; ++odd) {
      const auto product =
          Reinterpret<Words>(__builtin_convertvector(sums.Half(i, odd), Many<int32_t, 4>));
      const auto before = LoadVector<Words>(Source<uint32_t>(w, c.refs[place.reg + odd]) + lane);
      Words sum = before + product;
      if (finite) {
        const auto beyond =
            Reinterpret<Words>(Reinterpret<Many<int32_t, 4>>((before ^ sum) & (product ^ sum)) < 0);
        sum = (sum & ~beyond) | (((before >> 31) + 0x7fffffff) & beyond);
      }
      StoreVector(&results[place.reg + odd][lane], sum);
    }
  }
}

// A size of 0 is known when the instruction runs.
template <class Sum, int kRows, int kColumns, int kDepth>
bool RunProduct(WarpContext& w, const Instruction& in, uint32_t active) {
  const Factors f = FactorsOf(w, in);
  const Size size = kRows != 0
                        ? Size{kRows, kColumns, kDepth}
                        : Size{f.d.fragment.rows, f.d.fragment.columns, f.a.fragment.columns};
  alignas(64) Sum left[kMaxFactorElements], right[kMaxFactorElements];
  alignas(64) Registers results;
  ReadFactors(w, f, size, left, right);
  for (int column = 0; column < size.columns; column += 8) {
    for (int row = 0; row < size.rows; row += Block<Sum>::kRows) {
      Block<Sum> sums;
      if constexpr (kSame<Sum, double>) {
        ReadSums(w, f.c, PlaceOf(f.c, row, column), sums);
      } else {
        sums = {};
      }
      AddProducts(left + row * size.depth, right + column * size.depth, size.depth, sums);
      const Place place = PlaceOf(f.d, row, column);
      if constexpr (kSame<Sum, double>) {
        PutSums(f.d, place, sums, results);
      } else {
        PutWhole(w, f.c, place, in.finite, sums, results);
      }
    }
  }
  for (int i = 0; i < f.d.fragment.registers; ++i) {
    auto* d = reinterpret_cast<AliasU32*>(RowBytes(w, f.d.refs[i]));
    if (active == ~0u) {
      __builtin_memcpy(d, results[i], sizeof results[i]);
    } else {
      Choose<AliasU32>(d, results[i], d, active);
    }
  }
  return true;
}

// m8n8k4 in f64: one element of A and of B to a lane, two of C.
bool RunProductOfDoubles(WarpContext& w, const Instruction& in, uint32_t active) {
  const Factors f = FactorsOf(w, in);
  const auto* a = Source<double>(w, f.a.refs[0]);
  const auto* b = Source<double>(w, f.b.refs[0]);
  double results[2][kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 2; ++i) {
      double sum = Source<double>(w, f.c.refs[i])[lane];
      const int column = lane % 4 * 2 + i;
      for (int k = 0; k < 4; ++k) sum = __builtin_fma(a[lane / 4 * 4 + k], b[column * 4 + k], sum);
      results[i][lane] = Canonical(sum);
    }
  }
  for (int i = 0; i < 2; ++i) {
    auto* out = Target<double>(w, f.d.refs[i], active);
    for (int lane = 0; lane < kLanes; ++lane) out[lane] = results[i][lane];
    Finish<double>(w, f.d.refs[i], active);
  }
  return true;
}

// Element `index` of a lane's integer registers, elements of this number of bits counted through
// them.
int64_t IntegerOf(uint32_t word, int bits, int index, bool is_signed) {
  const uint32_t part = word >> (bits * index) & ((1u << bits) - 1);
  const bool negative = is_signed && (part >> (bits - 1)) != 0;
  return static_cast<int64_t>(part) - (negative ? int64_t{1} << bits : 0);
}

// One row of A with one column of B: `words` registers, 4 lanes.
int64_t Dot(const Instruction& in, const uint32_t* a, const uint32_t* b, int words) {
  const int bits = static_cast<int>(in.imm);
  int64_t sum = 0;
  for (int i = 0; i < words; ++i) {
    if (bits == 1) {
      sum += __builtin_popcount(in.logic == Logic::kAnd ? a[i] & b[i] : a[i] ^ b[i]);
      continue;
    }
    for (int e = 0; e < 32 / bits; ++e) {
      sum += IntegerOf(a[i], bits, e, in.negate_a) * IntegerOf(b[i], bits, e, in.negate_b);
    }
  }
  return sum;
}

// m8n8 and m16n8 on whole numbers of 4 bits or 1.
bool RunMmaBits(WarpContext& w, const Instruction& in, uint32_t active) {
  constexpr int kRows = 16, kColumns = 8, kMaxWords = 8;
  const int count = in.count, tall = in.high ? 2 : 1, sums = 2 * tall;
  const int left_count = tall * count;
  const AliasU32 *const d = Source<uint32_t>(w, in.a), *const a = d + sums,
                        *const b = a + left_count, *const c = b + count;
  // The words of a row follow each other: of each register, of each of its 4 lanes.
  uint32_t left[kRows][kMaxWords], right[kColumns][kMaxWords];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int r = 0; r < left_count; ++r) {
      left[lane / 4 + (tall == 2 ? 8 * (r & 1) : 0)][r / tall * 4 + lane % 4] =
          Source<uint32_t>(w, a[r])[lane];
    }
    for (int r = 0; r < count; ++r) {
      right[lane / 4][r * 4 + lane % 4] = Source<uint32_t>(w, b[r])[lane];
    }
  }
  uint32_t results[4][kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < sums; ++i) {
      const int row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
      int64_t sum = Source<int32_t>(w, c[i])[lane] + Dot(in, left[row], right[column], 4 * count);
      if (in.finite) sum = sum < INT32_MIN ? INT32_MIN : sum > INT32_MAX ? INT32_MAX : sum;
      results[i][lane] = static_cast<uint32_t>(sum);
    }
  }
  for (int i = 0; i < sums; ++i) {
    auto* out = Target<uint32_t>(w, d[i], active);
    for (int lane = 0; lane < kLanes; ++lane) out[lane] = results[i][lane];
    Finish<uint32_t>(w, d[i], active);
  }
  return true;
}

}  // namespace

Handler SelectMatrix(const Selector& s) {
  if (s.op == Op::kMmaBits) return RunMmaBits;
  if (s.op != Op::kMma) return nullptr;
  if (s.from == Type::kF64) return RunProductOfDoubles;
  const bool whole = s.from == Type::kS8 || s.from == Type::kU8;
  const auto is = [&](int rows, int columns, int depth) {
    return s.rows == rows && s.columns == columns && s.count == depth;
  };
  // The most common sizes, for speed.
  if (whole) {
    if (is(16, 8, 32)) return RunProduct<float, 16, 8, 32>;
    return is(16, 16, 16) ? RunProduct<float, 16, 16, 16> : RunProduct<float, 0, 0, 0>;
  }
  if (is(16, 8, 16)) return RunProduct<double, 16, 8, 16>;
  if (is(16, 8, 8)) return RunProduct<double, 16, 8, 8>;
  if (is(16, 16, 8)) return RunProduct<double, 16, 16, 8>;
  return is(16, 16, 16) ? RunProduct<double, 16, 16, 16> : RunProduct<double, 0, 0, 0>;
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
