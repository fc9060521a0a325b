// mma.sync: the product of two matrices whose elements lie spread over a warp's registers.
//
// Of a 32-bit register with E elements, lane i holds, counted from 0: of A those of row i / 4 (or
// 8 further for odd registers) and columns E * (i % 4) on; of B those of column i / 4 and rows
// E * (i % 4) on; the next register of B, the next two of A, lie 4 * E columns or rows further. Of
// C and D it holds the elements 2 * (i % 4) and the next of row i / 4, and of that 8 below.
//
// Products and their sums are computed in double precision and rounded once.
#include "softgpu/ptx/float_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

constexpr int kRows = 16, kColumns = 8, kMaxDepth = 16;

// The registers: of D, A, B and C, in this order, as the constant in.a lists them.
using Refs = const AliasU32*;

// Element e of a register.
template <class V>
inline double ElementOf(uint32_t bits, int e) {
  if constexpr (kIsSmall<V>) {
    return Widen(V{static_cast<uint16_t>(bits >> (16 * e))});
  } else {
    return FloatOf(bits & 0xffffe000);
  }
}

template <class Result>
inline uint32_t ReadSum(const WarpContext& w, Refs c, int lane, int i) {
  return Source<uint32_t>(w, c[kSame<Result, Half> ? i / 2 : i])[lane];
}

template <class V, class Result>
bool RunMma(WarpContext& w, const Instruction& in, uint32_t active) {
  constexpr int kElements = kIsSmall<V> ? 2 : 1;
  constexpr int kSums = kSame<Result, Half> ? 2 : 4;  // registers of C and of D
  const int count = in.count;                         // registers of B; A has twice as many
  const int depth = 4 * kElements * count;
  const size_t registers = in.count;
  const Refs d = Source<uint32_t>(w, in.a), a = d + kSums, b = a + 2 * registers, c = b + registers;
  double left[kRows][kMaxDepth], right[kMaxDepth][kColumns];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4, start = lane % 4 * kElements;
    for (int r = 0; r < 2 * count; ++r) {
      const uint32_t bits = Source<uint32_t>(w, a[r])[lane];
      for (int e = 0; e < kElements; ++e) {
        left[group + 8 * (r & 1)][r / 2 * 4 * kElements + start + e] = ElementOf<V>(bits, e);
      }
    }
    for (int r = 0; r < count; ++r) {
      const uint32_t bits = Source<uint32_t>(w, b[r])[lane];
      for (int e = 0; e < kElements; ++e) {
        right[r * 4 * kElements + start + e][group] = ElementOf<V>(bits, e);
      }
    }
  }
  uint32_t results[4][kLanes] = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
      const uint32_t before = ReadSum<Result>(w, c, lane, i);
      double sum = kSame<Result, Half> ? ElementOf<Half>(before, i & 1) : FloatOf(before);
      for (int k = 0; k < depth; ++k) sum += left[row][k] * right[k][column];
      if constexpr (kSame<Result, Half>) {
        results[i / 2][lane] |= static_cast<uint32_t>(DoubleToHalf(sum, Round::kNearest).bits)
                                << (16 * (i & 1));
      } else {
        results[i][lane] = BitsOf(Canonical(static_cast<float>(sum)));
      }
    }
  }
  for (int r = 0; r < kSums; ++r) {
    auto* out = Target<uint32_t>(w, d[r], active);
    for (int i = 0; i < kLanes; ++i) out[i] = results[r][i];
    Finish<uint32_t>(w, d[r], active);
  }
  return true;
}

// m8n8k4 in f64: one element of A and of B to a lane, two of C.
bool RunMmaDouble(WarpContext& w, const Instruction& in, uint32_t active) {
  const Refs refs = Source<uint32_t>(w, in.a);
  const auto* a = Source<double>(w, refs[2]);
  const auto* b = Source<double>(w, refs[3]);
  double results[2][kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 2; ++i) {
      double sum = Source<double>(w, refs[4 + i])[lane];
      const int column = lane % 4 * 2 + i;
      for (int k = 0; k < 4; ++k) sum = __builtin_fma(a[lane / 4 * 4 + k], b[column * 4 + k], sum);
      results[i][lane] = Canonical(sum);
    }
  }
  for (int i = 0; i < 2; ++i) {
    auto* out = Target<double>(w, refs[i], active);
    for (int lane = 0; lane < kLanes; ++lane) out[lane] = results[i][lane];
    Finish<double>(w, refs[i], active);
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

// m8n8 and m16n8 on whole numbers of 8, 4 or 1 bits.
bool RunMmaInteger(WarpContext& w, const Instruction& in, uint32_t active) {
  constexpr int kMaxWords = 8;
  const int count = in.count, tall = in.high ? 2 : 1, sums = 2 * tall;
  const int left_count = tall * count;
  const Refs d = Source<uint32_t>(w, in.a), a = d + sums, b = a + left_count, c = b + count;
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
  if (s.op == Op::kMmaInteger) return RunMmaInteger;
  if (s.op != Op::kMma) return nullptr;
  switch (s.from) {
    case Type::kF16:
      return s.type == Type::kF16 ? RunMma<Half, Half> : RunMma<Half, float>;
    case Type::kBf16:
      return RunMma<Brain, float>;
    case Type::kTf32:
      return RunMma<float, float>;
    case Type::kF64:
      return RunMmaDouble;
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
