// wmma.load and wmma.store: matrices in memory to and from registers, where they lie as wmma.h
// says.
#include "softgpu/ptx/float_lanes.h"
#include "softgpu/ptx/memory_lanes.h"
#include "softgpu/ptx/wmma.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

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

// Element by element.
template <bool Store>
[[gnu::noinline]] bool RunAnywhere(WarpContext& w, const Instruction& in, uint32_t active) {
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

// Where a matrix lies, all of it in the device's or in shared memory. Null: not that case, or a
// fault; see RunAnywhere().
uint8_t* LocateMatrix(const WarpContext& w, const Instruction& in, const Fragment& f,
                      uint64_t first, uint64_t stride, bool store) {
  const uint64_t lines = in.transposed ? f.columns : f.rows;
  const uint64_t length = uint64_t{in.transposed ? f.rows : f.columns} * f.bytes;
  uint64_t last = first + (lines - 1) * stride + length - 1;
  if (first % f.bytes != 0 || last < first) return nullptr;
  Space space = in.space;
  if (space == Space::kGeneric) {
    if ((first ^ last) >> kWindowShift != 0) return nullptr;
    space = WindowSpace(first);
  }
  if (space == Space::kShared) {
    const uint64_t mask = in.space == Space::kShared ? ~uint64_t{0} : kInWindow;
    first &= mask;
    last &= mask;
    return last < w.shared_bytes ? w.shared + first : nullptr;
  }
  if (space != Space::kGlobal) return nullptr;
  const uint64_t offset = first - w.device_base, end = last - w.device_base;
  if ((offset ^ end) >> w.granule_shift == 0) {
    return GranuleExists(w, offset, store) ? reinterpret_cast<uint8_t*>(first) : nullptr;
  }
  for (uint64_t i = 0; i < lines; ++i) {
    const uint64_t line = offset + i * stride;
    if (!GranuleExists(w, line, store) || !GranuleExists(w, line + length - 1, store)) {
      return nullptr;
    }
  }
  return reinterpret_cast<uint8_t*>(first);
}

template <size_t kBytes>
inline void CopyBytes(void* to, const void* from) {
  using V = Many<uint8_t, 16>;
  for (size_t i = 0; i < kBytes; i += sizeof(V)) {
    StoreVector(static_cast<uint8_t*>(to) + i,
                LoadVector<V>(static_cast<const uint8_t*>(from) + i));
  }
}

// A tile by rows.
template <class T, bool kPairs>
struct Tile {
  static constexpr int kWidth = kPairs ? 8 : sizeof(T) == 8 ? 4 : 16 / sizeof(T);
  alignas(32) T of[8][kWidth];
};

// The lines of memory are its rows, or else its columns.
template <class T, bool kPairs, bool Store>
inline void MoveLines(uint8_t* at, uint64_t stride, bool transposed, Tile<T, kPairs>& tile) {
  constexpr int kWidth = Tile<T, kPairs>::kWidth;
  if (!transposed) {
    for (int i = 0; i < 8; ++i, at += stride) {
      Store ? CopyBytes<sizeof tile.of[i]>(at, tile.of[i])
            : CopyBytes<sizeof tile.of[i]>(tile.of[i], at);
    }
    return;
  }
  if constexpr (sizeof(T) == 2) {
    Many<uint16_t, 8> x[8];
    for (int i = 0; i < 8; ++i) {
      x[i] = LoadVector<Many<uint16_t, 8>>(Store ? reinterpret_cast<uint8_t*>(tile.of[i])
                                                 : at + static_cast<uint64_t>(i) * stride);
    }
    Turn(x);
    for (int i = 0; i < 8; ++i) {
      StoreVector(
          Store ? at + static_cast<uint64_t>(i) * stride : reinterpret_cast<uint8_t*>(tile.of[i]),
          x[i]);
    }
    return;
  }
  for (int j = 0; j < kWidth; ++j, at += stride) {
    T column[8];
    if (!Store) __builtin_memcpy(column, at, sizeof column);
    for (int i = 0; i < 8; ++i)
      (Store ? column[i] : tile.of[i][j]) = (Store ? tile.of[i][j] : column[i]);
    if (Store) __builtin_memcpy(at, column, sizeof column);
  }
}

// The tile is a register, or its even and its odd columns are one each.
template <class T, bool kPairs, bool Store>
inline void MoveRegisters(const WarpContext& w, const AliasU32* refs, Tile<T, kPairs>& tile) {
  uint8_t* const first = RowBytes(w, refs[0]);
  if constexpr (!kPairs) {
    Store ? CopyBytes<sizeof tile>(&tile, first) : CopyBytes<sizeof tile>(first, &tile);
  } else {
    using V = Many<T, 4>;
    uint8_t* const second = RowBytes(w, refs[1]);
    for (size_t i = 0; i < 8; ++i) {
      uint8_t* const even = first + i * sizeof(V);
      uint8_t* const odd = second + i * sizeof(V);
      const V a = LoadVector<V>(Store ? even : static_cast<const void*>(tile.of[i]));
      const V b = LoadVector<V>(Store ? odd : static_cast<const void*>(tile.of[i] + 4));
      if (Store) {
        StoreVector(tile.of[i], V(__builtin_shufflevector(a, b, 0, 4, 1, 5)));
        StoreVector(tile.of[i] + 4, V(__builtin_shufflevector(a, b, 2, 6, 3, 7)));
      } else {
        StoreVector(even, V(__builtin_shufflevector(a, b, 0, 2, 4, 6)));
        StoreVector(odd, V(__builtin_shufflevector(a, b, 1, 3, 5, 7)));
      }
    }
  }
}

template <class T, bool kPairs, bool Store>
void MoveFragment(const WarpContext& w, const Fragment& f, const AliasU32* refs, uint8_t* matrix,
                  uint64_t stride, bool transposed) {
  constexpr uint32_t kRegisters = kPairs ? 2 : 1;
  uint32_t reg = 0;
  for (uint32_t column = 0; column < f.columns; column += Tile<T, kPairs>::kWidth) {
    for (uint32_t row = 0; row < f.rows; row += 8, reg += kRegisters) {
      uint8_t* const at = matrix + (transposed ? column * stride + row * sizeof(T)
                                               : row * stride + column * sizeof(T));
      Tile<T, kPairs> tile;
      if (Store) MoveRegisters<T, kPairs, true>(w, refs + reg, tile);
      MoveLines<T, kPairs, Store>(at, stride, transposed, tile);
      if (!Store) MoveRegisters<T, kPairs, false>(w, refs + reg, tile);
    }
  }
  for (uint32_t i = reg; !Store && i < f.registers; ++i) {
    CopyBytes<kRowBytes>(RowBytes(w, refs[i]), RowBytes(w, refs[i - reg]));
  }
}

template <bool Store>
bool RunFragment(WarpContext& w, const Instruction& in, uint32_t active) {
  const AliasU32* const list = List(w, in);
  const Fragment f = FragmentAt(list);
  const AliasU32* const refs = list + kFragmentWords;
  const uint64_t stride = uint64_t{Source<uint32_t>(w, in.b)[0]} * f.bytes;
  const uint64_t first =
      in.narrow ? uint64_t{Source<uint32_t>(w, in.a)[0] + static_cast<uint32_t>(in.imm)}
                : Source<uint64_t>(w, in.a)[0] + static_cast<uint64_t>(in.imm);
  uint8_t* const matrix = active == ~0u ? LocateMatrix(w, in, f, first, stride, Store) : nullptr;
  if (matrix == nullptr) return RunAnywhere<Store>(w, in, active);
  const bool pairs = f.run != f.in_register;
  switch (f.bytes) {
    case 1:
      MoveFragment<uint8_t, false, Store>(w, f, refs, matrix, stride, in.transposed);
      break;
    case 2:
      MoveFragment<uint16_t, false, Store>(w, f, refs, matrix, stride, in.transposed);
      break;
    case 4:
      (pairs ? MoveFragment<uint32_t, true, Store>
             : MoveFragment<uint32_t, false, Store>)(w, f, refs, matrix, stride, in.transposed);
      break;
    default:
      (pairs ? MoveFragment<uint64_t, true, Store>
             : MoveFragment<uint64_t, false, Store>)(w, f, refs, matrix, stride, in.transposed);
  }
  return true;
}

}  // namespace

Handler SelectWmma(const Selector& s) {
  switch (s.op) {
    case Op::kWmmaLoad:
      return RunFragment<false>;
    case Op::kWmmaStore:
      return RunFragment<true>;
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
