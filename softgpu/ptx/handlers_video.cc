// The video instructions: arithmetic on bytes and halves of registers, a second step with a third
// operand, and saturation.
#include "softgpu/ptx/lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

int64_t Least(int bits, bool is_signed) {
  return is_signed ? -(int64_t{1} << (bits - 1)) : 0;
}
int64_t Most(int bits, bool is_signed) {
  return (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
}
int64_t Clamp(int64_t value, int bits, bool is_signed) {
  const int64_t least = Least(bits, is_signed), most = Most(bits, is_signed);
  return value < least ? least : value > most ? most : value;
}

// `bits` of a register from bit `start` on.
int64_t Part(uint64_t word, int start, int bits, bool is_signed) {
  const int64_t value = static_cast<int64_t>(word >> start & ((uint64_t{1} << bits) - 1));
  return is_signed && (value >> (bits - 1) & 1) != 0 ? value - (int64_t{1} << bits) : value;
}

bool Holds(Compare compare, int64_t a, int64_t b) {
  switch (compare) {
    case Compare::kEq:
      return a == b;
    case Compare::kNe:
      return a != b;
    case Compare::kLt:
      return a < b;
    case Compare::kLe:
      return a <= b;
    case Compare::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

// a has at most 33 bits. Shifted by 32, only its sign and a word of zeros are left to see.
int64_t ShiftLeft(int64_t a, uint32_t by) {
  if (by < 32) return static_cast<int64_t>(static_cast<uint64_t>(a) << by);
  return a == 0 ? 0 : a > 0 ? int64_t{1} << 62 : -(int64_t{1} << 62);
}

uint32_t Distance(const Video& v, int64_t b) {
  const uint32_t by = static_cast<uint32_t>(b);
  return v.wrap ? by & 31 : by < 32 ? by : 32;
}

int64_t Compute(const Video& v, Compare compare, int64_t a, int64_t b) {
  switch (v.op) {
    case VideoOp::kAdd:
      return a + b;
    case VideoOp::kSub:
      return a - b;
    case VideoOp::kAbsDiff:
      return a < b ? b - a : a - b;
    case VideoOp::kMin:
      return a < b ? a : b;
    case VideoOp::kMax:
      return a > b ? a : b;
    case VideoOp::kAverage:
      return (a + b + (a + b >= 0 ? 1 : 0)) >> 1;
    case VideoOp::kShl:
      return ShiftLeft(a, Distance(v, b));
    case VideoOp::kShr:
      return a >> Distance(v, b);
    case VideoOp::kSet:
      return Holds(compare, a, b) ? 1 : 0;
    case VideoOp::kMad:
      break;
  }
  return 0;
}

// vmad: the product and the sum have 64 bits, signed where a factor is.
uint32_t Mad(const Video& v, int64_t a, int64_t b, uint32_t c) {
  const bool is_signed = v.signed_a || v.signed_b;
  const int shift = v.shr7 ? 7 : v.shr15 ? 15 : 0;
  const uint64_t addend =
      is_signed ? static_cast<uint64_t>(int64_t{static_cast<int32_t>(c)}) : uint64_t{c};
  const uint64_t sum =
      static_cast<uint64_t>(a) * static_cast<uint64_t>(b) + addend + (v.plus_one ? 1 : 0);
  if (is_signed) {
    const int64_t result = static_cast<int64_t>(sum) >> shift;
    return static_cast<uint32_t>(v.sat ? Clamp(result, 32, true) : result);
  }
  const uint64_t result = sum >> shift;
  return v.sat && result > 0xffffffff ? 0xffffffff : static_cast<uint32_t>(result);
}

uint32_t Second(const Video& v, int64_t value, uint32_t c) {
  const int64_t other = v.signed_d ? int64_t{static_cast<int32_t>(c)} : int64_t{c};
  switch (v.secondary) {
    case Secondary::kAdd:
      return static_cast<uint32_t>(value + other);
    case Secondary::kMin:
      return static_cast<uint32_t>(value < other ? value : other);
    case Secondary::kMax:
      return static_cast<uint32_t>(value > other ? value : other);
    default:
      return static_cast<uint32_t>(value);
  }
}

uint32_t Scalar(const Video& v, Compare compare, uint32_t a, uint32_t b, uint32_t c) {
  const int64_t x = Part(a, 8 * (v.a & 15), 8 * (v.a >> 4), v.signed_a);
  const int64_t y = Part(b, 8 * (v.b & 15), 8 * (v.b >> 4), v.signed_b);
  if (v.op == VideoOp::kMad) return Mad(v, x, y, c);
  const int start = 8 * (v.target & 15), bits = 8 * (v.target >> 4);
  int64_t value = Compute(v, compare, x, y);
  if (v.sat) value = Clamp(value, bits, v.signed_d);
  if (bits == 32) return Second(v, value, c);
  const uint32_t mask = ((1u << bits) - 1) << start;
  return (static_cast<uint32_t>(value) << start & mask) | (c & ~mask);
}

// The elements of a and b are counted in one row, a's first. Lanes without a result take c's.
template <int kCount>
uint32_t Vector(const Video& v, Compare compare, uint32_t a, uint32_t b, uint32_t c) {
  constexpr int kWidth = 32 / kCount;
  const uint64_t both = uint64_t{b} << 32 | a;
  const bool adds = v.secondary == Secondary::kAdd;
  uint32_t result = adds ? c : 0;
  for (int lane = 0; lane < kCount; ++lane) {
    const bool chosen = (v.target >> lane & 1) != 0;
    const int64_t x = Part(both, kWidth * (v.a >> (4 * lane) & 15), kWidth, v.signed_a);
    const int64_t y = Part(both, kWidth * (v.b >> (4 * lane) & 15), kWidth, v.signed_b);
    int64_t value = Compute(v, compare, x, y);
    if (v.sat) value = Clamp(value, kWidth, v.signed_d);
    if (adds) {
      result += chosen ? static_cast<uint32_t>(value) : 0;
    } else {
      const uint32_t kept = chosen ? static_cast<uint32_t>(value) : c >> (kWidth * lane);
      result |= (kept & ((1u << kWidth) - 1)) << (kWidth * lane);
    }
  }
  return result;
}

bool RunVideo(WarpContext& w, const Instruction& in, uint32_t active) {
  const Video v = __builtin_bit_cast(Video, in.imm);
  const auto* a = Source<uint32_t>(w, in.a);
  const auto* b = Source<uint32_t>(w, in.b);
  const auto* c = Source<uint32_t>(w, in.c);
  auto* d = Target<uint32_t>(w, in.dst, active);
  for (int i = 0; i < kLanes; ++i) {
    d[i] = in.count == 4   ? Vector<4>(v, in.compare, a[i], b[i], c[i])
           : in.count == 2 ? Vector<2>(v, in.compare, a[i], b[i], c[i])
                           : Scalar(v, in.compare, a[i], b[i], c[i]);
  }
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

}  // namespace

Handler SelectVideo(const Selector& s) {
  return s.op == Op::kVideo ? RunVideo : nullptr;
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
