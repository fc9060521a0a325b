// wmma: matrices whose places in a warp's registers PTX leaves open. Here they lie as mma's do.
//
// A matrix, B turned over, is cut into tiles of 8 rows. Of a tile, a lane has `run` elements of row
// lane / 4: as many as a register holds, of C and D two. Tiles below each other come first. Where a
// fragment has more elements than that makes, it begins anew.
#include "softgpu/ptx/float_lanes.h"
#include "softgpu/ptx/memory_lanes.h"
#include "softgpu/ptx/wmma.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

constexpr int kMost = 32;  // rows and columns

struct Place {
  uint32_t row, column;
};

Place PlaceOf(const Fragment& f, uint32_t lane, uint32_t element) {
  const uint32_t index = element % (f.rows * f.columns / kLanes);
  const uint32_t tile = index / f.run, down = f.rows / 8;
  return {tile % down * 8 + lane / 4, tile / down * 4 * f.run + lane % 4 * f.run + index % f.run};
}

uint32_t ElementsIn(const Fragment& f) {
  return f.registers * f.in_register;
}

const AliasU32* List(const WarpContext& w, const Instruction& in) {
  return Source<uint32_t>(w, in.c);
}

Fragment FragmentAt(const AliasU32* words) {
  Fragment fragment;
  __builtin_memcpy(static_cast<void*>(&fragment), words, sizeof fragment);
  return fragment;
}

// The addresses of one element of each lane.
void Addresses(const WarpContext& w, const Instruction& in, const Fragment& f, uint32_t element,
               uint32_t leader, Plan& plan) {
  Plan base;
  FillOffsets(w, in, base);
  const uint64_t stride = Source<uint32_t>(w, in.b)[leader];
  for (uint32_t i = 0; i < kLanes; ++i) {
    const Place p = PlaceOf(f, i, element);
    const uint64_t index = in.transposed ? p.column * stride + p.row : p.row * stride + p.column;
    plan.offset[i] = base.offset[leader] + index * f.bytes;
  }
}

template <bool Store>
bool RunFragment(WarpContext& w, const Instruction& in, uint32_t active) {
  const AliasU32* const list = List(w, in);
  const Fragment f = FragmentAt(list);
  const AliasU32* const refs = list + kFragmentWords;
  const uint32_t leader = static_cast<uint32_t>(__builtin_ctz(active));
  uint64_t values[kMaxFragmentRegisters][kLanes] = {};
  for (uint32_t e = 0; e < ElementsIn(f); ++e) {
    const uint32_t reg = e / f.in_register, shift = e % f.in_register * f.bytes * 8;
    Plan plan;
    Addresses(w, in, f, e, leader, plan);
    if (!LocateAddresses(w, in.space, ~0u, f.bytes, Store, plan)) return false;
    for (int i = 0; i < kLanes; ++i) {
      uint8_t* at = plan.base + plan.offset[i];
      uint64_t value = 0;
      if (Store) {
        value = f.bytes == 8 ? Source<uint64_t>(w, refs[reg])[i]
                             : Source<uint32_t>(w, refs[reg])[i] >> shift;
        __builtin_memcpy(at, &value, f.bytes);
      } else {
        __builtin_memcpy(&value, at, f.bytes);
        values[reg][i] |= value << shift;
      }
    }
  }
  for (uint32_t reg = 0; !Store && reg < f.registers; ++reg) {
    if (f.bytes == 8) {
      auto* d = Target<uint64_t>(w, refs[reg], active);
      TANDEM_LANES d[i] = values[reg][i];
      Finish<uint64_t>(w, refs[reg], active);
    } else {
      auto* d = Target<uint32_t>(w, refs[reg], active);
      TANDEM_LANES d[i] = static_cast<uint32_t>(values[reg][i]);
      Finish<uint32_t>(w, refs[reg], active);
    }
  }
  return true;
}

// A double holds every element exactly.
double ElementOf(const WarpContext& w, uint32_t ref, Type type, uint32_t lane, uint32_t part) {
  if (type == Type::kF64) return Source<double>(w, ref)[lane];
  const uint32_t word = Source<uint32_t>(w, ref)[lane];
  switch (type) {
    case Type::kF16:
      return HalfToFloat({static_cast<uint16_t>(word >> (16 * part))});
    case Type::kBf16:
      return Widen(Brain{static_cast<uint16_t>(word >> (16 * part))});
    case Type::kTf32:
      return FloatOf(word & 0xffffe000);
    case Type::kS8:
      return static_cast<int8_t>(word >> (8 * part));
    case Type::kU8:
      return static_cast<uint8_t>(word >> (8 * part));
    case Type::kS32:
      return static_cast<int32_t>(word);
    default:
      return FloatOf(word);
  }
}

void ReadMatrix(const WarpContext& w, const Fragment& f, const AliasU32* refs,
                double (&matrix)[kMost][kMost]) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (uint32_t e = 0; e < f.rows * f.columns / kLanes; ++e) {
      const Place p = PlaceOf(f, lane, e);
      matrix[p.row][p.column] =
          ElementOf(w, refs[e / f.in_register], f.type, lane, e % f.in_register);
    }
  }
}

uint64_t BitsOfSum(double sum, Type type, bool finite) {
  switch (type) {
    case Type::kF16:
      return DoubleToHalf(sum, Round::kNearest).bits;
    case Type::kF64:
      return BitsOf(Canonical(sum));
    case Type::kS32: {
      if (finite) sum = sum < -0x1p31 ? -0x1p31 : sum > 0x1p31 - 1 ? 0x1p31 - 1 : sum;
      return static_cast<uint32_t>(static_cast<int64_t>(sum));
    }
    default:
      return BitsOf(Canonical(static_cast<float>(sum)));
  }
}

void WriteMatrix(const WarpContext& w, const Instruction& in, const Fragment& f,
                 const AliasU32* refs, const double (&matrix)[kMost][kMost], uint32_t active) {
  uint64_t values[kMaxFragmentRegisters][kLanes] = {};
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (uint32_t e = 0; e < ElementsIn(f); ++e) {
      const Place p = PlaceOf(f, lane, e);
      values[e / f.in_register][lane] |= BitsOfSum(matrix[p.row][p.column], f.type, in.finite)
                                         << (e % f.in_register * f.bytes * 8);
    }
  }
  for (uint32_t reg = 0; reg < f.registers; ++reg) {
    for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
      const int i = __builtin_ctz(rest);
      if (f.bytes == 8) {
        reinterpret_cast<AliasU64*>(w.frame + refs[reg])[i] = values[reg][i];
      } else {
        reinterpret_cast<AliasU32*>(w.frame + refs[reg])[i] = static_cast<uint32_t>(values[reg][i]);
      }
    }
  }
}

// Products of types smaller than a double are exact in it, and so are their sums, unless they have
// many terms.
bool RunWmma(WarpContext& w, const Instruction& in, uint32_t active) {
  double left[kMost][kMost], right[kMost][kMost], sums[kMost][kMost];
  Fragment f[4];  // D, A, B, C
  const AliasU32* refs[4];
  const AliasU32* words = List(w, in);
  for (int i = 0; i < 4; ++i) {
    f[i] = FragmentAt(words);
    refs[i] = words + kFragmentWords;
    words = refs[i] + f[i].registers;
  }
  ReadMatrix(w, f[1], refs[1], left);
  ReadMatrix(w, f[2], refs[2], right);
  ReadMatrix(w, f[3], refs[3], sums);
  for (uint32_t row = 0; row < f[0].rows; ++row) {
    for (uint32_t column = 0; column < f[0].columns; ++column) {
      double sum = sums[row][column];
      for (uint32_t k = 0; k < f[1].columns; ++k) {
        sum = __builtin_fma(left[row][k], right[column][k], sum);
      }
      sums[row][column] = sum;
    }
  }
  WriteMatrix(w, in, f[0], refs[0], sums, active);
  return true;
}

}  // namespace

Handler SelectWmma(const Selector& s) {
  switch (s.op) {
    case Op::kWmma:
      return RunWmma;
    case Op::kWmmaLoad:
      return RunFragment<false>;
    case Op::kWmmaStore:
      return RunFragment<true>;
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
