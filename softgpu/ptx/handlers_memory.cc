// Loads, stores and asynchronous copies.
#include "softgpu/ptx/float_lanes.h"
#include "softgpu/ptx/memory_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

template <class D, class V>
inline auto Extend(V value) {
  return Cell<D>::Put(static_cast<D>(value));
}

// What half a warp loads: one value for all, or T elements that are kBytes apart.
template <class T, class D, uint32_t kBytes>
inline void LoadRun(const uint8_t* from, uint64_t step, typename Cell<D>::Raw* d) {
  if (step == 0) {
    const auto value = Extend<D>(Read<T>(from));
    TANDEM_HALF d[i] = value;
  } else if constexpr (kBytes == sizeof(T)) {
    LoadHalf<T, D>(from, d);
  } else {
    uint8_t bytes[kHalf * kBytes];
    __builtin_memcpy(bytes, from, sizeof bytes - kBytes + sizeof(T));
    TANDEM_HALF d[i] = Extend<D>(Read<T>(bytes + static_cast<uint32_t>(i) * kBytes));
  }
}

// Fetches where a loop will begin a few turns later to read, if it goes on at the distance
// of the last: what lies a page or more further no processor foresees.
inline void FetchAhead(const WarpContext& w, const Instruction& in, const uint8_t* low,
                       const uint8_t* high) {
  if (in.trail == 0) return;
  constexpr uint64_t kTurns = 4;
  auto* trail = reinterpret_cast<AliasU64*>(w.frame + in.trail);
  const uint64_t now = reinterpret_cast<uint64_t>(low), ahead = kTurns * (now - *trail);
  *trail = now;
  for (const uint8_t* half : {low, high}) {
    __builtin_prefetch(reinterpret_cast<void*>(reinterpret_cast<uint64_t>(half) + ahead));
  }
}

// Four words of each lane, at at(lane), from or to four registers of all lanes.
template <bool Store, class At>
inline void MoveQuads(const WarpContext& w, const uint32_t (&refs)[4], At at) {
  using Quad = Many<uint32_t, 4>;
  for (int lane = 0; lane < kLanes; lane += 4) {
    Quad x[4];
    const auto row = [&](int i) { return RowBytes(w, refs[i]) + lane * sizeof(uint32_t); };
    for (int i = 0; i < 4; ++i) x[i] = LoadVector<Quad>(Store ? row(i) : at(lane + i));
    Turn(x);
    for (int i = 0; i < 4; ++i) StoreVector(Store ? at(lane + i) : row(i), x[i]);
  }
}

inline uint8_t* PlaceIn(const Runs& runs, int lane) {
  const int half = lane / kHalf;
  return runs.base + runs.start[half] + runs.step[half] * static_cast<uint64_t>(lane % kHalf);
}

// T lies in memory, kCount of them for each lane; D is the registers' width.
template <class T, class D, uint32_t kCount>
[[gnu::noinline]] bool LoadAnywhere(WarpContext& w, const Instruction& in, uint32_t active) {
  constexpr uint32_t kBytes = sizeof(T) * kCount;
  constexpr bool kQuads = kCount == 4 && sizeof(T) == 4 && sizeof(D) == 4;
  const uint32_t refs[4] = {in.dst, in.b, in.c, in.d};
  Runs runs;
  if (active == ~0u && LocateRuns<kBytes>(w, in, false, runs)) {
    FetchAhead(w, in, runs.base + runs.start[0], runs.base + runs.start[1]);
    if constexpr (kQuads) {
      MoveQuads<false>(w, refs, [&](int lane) { return PlaceIn(runs, lane); });
      return true;
    }
    for (uint32_t part = 0; part < kCount; ++part) {
      auto* d = Register<D>(w, refs[part]);
      const uint8_t* from = runs.base + part * sizeof(T);
      for (int half = 0; half < 2; ++half) {
        LoadRun<T, D, kBytes>(from + runs.start[half], runs.step[half], d + half * kHalf);
      }
    }
    return true;
  }
  Plan plan;
  if ((active != ~0u || !LocateInShared<kBytes>(w, in, plan)) &&
      !Locate(w, in, active, kBytes, false, plan)) {
    return false;
  }
  if (kQuads && active == ~0u) {
    MoveQuads<false>(w, refs, [&](int lane) { return plan.base + plan.offset[lane]; });
    return true;
  }
  for (uint32_t part = 0; part < kCount; ++part) {
    auto* d = Target<D>(w, refs[part], active);
    const uint8_t* from = plan.base + part * sizeof(T);
    for (int i = 0; i < kLanes; ++i) d[i] = Extend<D>(Read<T>(from + plan.offset[i]));
    Finish<D>(w, refs[part], active);
  }
  return true;
}

template <class T, class D, uint32_t kCount>
bool RunLoad(WarpContext& w, const Instruction& in, uint32_t active) {
  if constexpr (kCount == 1) {
    const uint8_t* from = active == ~0u ? LocateRun<sizeof(T)>(w, in, false) : nullptr;
    if (from != nullptr) [[likely]] {
      const uint8_t* high = from + kHalf * sizeof(T);
      FetchAhead(w, in, from, high);
      auto* d = Register<D>(w, in.dst);
      LoadHalf<T, D>(from, d);
      LoadHalf<T, D>(high, d + kHalf);
      return true;
    }
  }
  return LoadAnywhere<T, D, kCount>(w, in, active);
}

template <class T, class D>
bool RunLoadParam(WarpContext& w, const Instruction& in, uint32_t active) {
  const uint32_t refs[4] = {in.dst, in.b, in.c, in.d};
  for (int part = 0; part < in.count; ++part) {
    auto* d = Target<D>(w, refs[part], active);
    const auto value = Extend<D>(Read<T>(w.params + in.imm + part * sizeof(T)));
    TANDEM_LANES d[i] = value;
    Finish<D>(w, refs[part], active);
  }
  return true;
}

// Half a warp's elements, each at a place of its own or all at one, where the last lane wins.
template <class T, class S, uint32_t kBytes>
inline void StoreRun(const typename Cell<S>::Raw* s, uint8_t* to, uint64_t step) {
  if (step == 0) {
    const T value = static_cast<T>(s[kHalf - 1]);
    __builtin_memcpy(to, &value, sizeof value);
  } else if constexpr (kBytes == sizeof(T)) {
    StoreHalf<T, S>(s, to);
  } else {
    for (int i = 0; i < kHalf; ++i) {
      const T value = static_cast<T>(s[i]);
      __builtin_memcpy(to + static_cast<size_t>(i) * kBytes, &value, sizeof value);
    }
  }
}

// T lies in memory, kCount of them for each lane; S is the registers' width.
template <class T, class S, uint32_t kCount>
[[gnu::noinline]] bool StoreAnywhere(WarpContext& w, const Instruction& in, uint32_t active) {
  constexpr uint32_t kBytes = sizeof(T) * kCount;
  constexpr bool kQuads = kCount == 4 && sizeof(T) == 4 && sizeof(S) == 4;
  const uint32_t refs[4] = {in.dst, in.b, in.c, in.d};
  Runs runs;
  if (active == ~0u && LocateRuns<kBytes>(w, in, true, runs)) {
    if constexpr (kQuads) {
      MoveQuads<true>(w, refs, [&](int lane) { return PlaceIn(runs, lane); });
      return true;
    }
    for (uint32_t part = 0; part < kCount; ++part) {
      const auto* s = Source<S>(w, refs[part]);
      uint8_t* to = runs.base + part * sizeof(T);
      for (int half = 0; half < 2; ++half) {
        StoreRun<T, S, kBytes>(s + half * kHalf, to + runs.start[half], runs.step[half]);
      }
    }
    return true;
  }
  Plan plan;
  if ((active != ~0u || !LocateInShared<kBytes>(w, in, plan)) &&
      !Locate(w, in, active, kBytes, true, plan)) {
    return false;
  }
  if (kQuads && active == ~0u) {
    MoveQuads<true>(w, refs, [&](int lane) { return plan.base + plan.offset[lane]; });
    return true;
  }
  for (uint32_t part = 0; part < kCount; ++part) {
    const auto* s = Source<S>(w, refs[part]);
    uint8_t* to = plan.base + part * sizeof(T);
    for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
      const int i = __builtin_ctz(rest);
      const T value = static_cast<T>(s[i]);
      __builtin_memcpy(to + plan.offset[i], &value, sizeof value);
    }
  }
  return true;
}

template <class T, class S, uint32_t kCount>
bool RunStore(WarpContext& w, const Instruction& in, uint32_t active) {
  if constexpr (kCount == 1) {
    uint8_t* to = active == ~0u ? LocateRun<sizeof(T)>(w, in, true) : nullptr;
    if (to != nullptr) [[likely]] {
      const auto* s = Source<S>(w, in.dst);
      StoreHalf<T, S>(s, to);
      StoreHalf<T, S>(s + kHalf, to + kHalf * sizeof(T));
      return true;
    }
  }
  return StoreAnywhere<T, S, kCount>(w, in, active);
}

// cp.async: kBytes from global memory (a) to shared memory (b); past the first c they are zeros,
// and where c is 0 nothing is read.
template <uint32_t kBytes>
bool RunCopyAsync(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* wanted = Source<uint32_t>(w, in.c);
  Plan to, from;
  const auto* b = Source<uint64_t>(w, in.b);
  TANDEM_LANES to.offset[i] = b[i];
  if (!LocateAddresses(w, Space::kShared, active, kBytes, true, to)) return false;
  uint32_t reading = 0, whole = 0;
  TANDEM_LANES {
    reading |= wanted[i] != 0 ? kLaneBit[i] : 0;
    whole |= wanted[i] >= kBytes ? kLaneBit[i] : 0;
  }
  reading &= active;
  if (reading != 0 && !Locate(w, in, reading, kBytes, false, from)) return false;
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    uint8_t* const place = to.base + to.offset[i];
    if ((whole & kLaneBit[i]) != 0) {
      __builtin_memcpy(place, from.base + from.offset[i], kBytes);
    } else {
      uint8_t bytes[kBytes] = {};
      if (wanted[i] != 0) __builtin_memcpy(bytes, from.base + from.offset[i], wanted[i]);
      __builtin_memcpy(place, bytes, kBytes);
    }
  }
  return true;
}

bool RunIsSpace(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* a = Source<uint64_t>(w, in.a);
  uint32_t bits = 0;
  const bool global = in.space == Space::kGlobal;
  for (int i = 0; i < kLanes; ++i) {
    const bool constant = a[i] - w.image_address < static_cast<uint64_t>(in.imm);
    const bool inside = WindowSpace(a[i]) == in.space && (!global || constant == in.high);
    bits |= inside ? kLaneBit[i] : 0;
  }
  SetPredicate(w, in.dst, bits, active);
  return true;
}

// ldmatrix and stmatrix: `count` matrices of 8 rows with 8 elements of 16 bits, which lanes name
// one after the other. A register has a matrix by rows, or by columns if in.transposed. The
// registers are dst, b, c and d.
template <bool Store>
bool RunMatrix(WarpContext& w, const Instruction& in, uint32_t active) {
  using Row = Many<uint16_t, 8>;
  const uint32_t naming = in.count == 4 ? ~0u : (1u << (8 * in.count)) - 1;
  Plan plan;
  if (!Locate(w, in, naming, sizeof(Row), Store, plan)) return false;
  const uint32_t refs[4] = {in.dst, in.b, in.c, in.d};
  Row rows[4][8];
  for (size_t matrix = 0; matrix < in.count; ++matrix) {
    for (size_t i = 0; i < 8; ++i) {
      rows[matrix][i] = LoadVector<Row>(Store ? RowBytes(w, refs[matrix]) + i * sizeof(Row)
                                              : plan.base + plan.offset[8 * matrix + i]);
    }
    if (in.transposed) Turn(rows[matrix]);
  }
  for (size_t matrix = 0; matrix < in.count; ++matrix) {
    auto* d = Store ? nullptr : Target<uint32_t>(w, refs[matrix], active);
    for (size_t i = 0; i < 8; ++i) {
      StoreVector(Store ? static_cast<void*>(plan.base + plan.offset[8 * matrix + i]) : d + 4 * i,
                  rows[matrix][i]);
    }
    if (!Store) Finish<uint32_t>(w, refs[matrix], active);
  }
  return true;
}

// Arguments and results of calls: imm is the source, a the destination, b the number of bytes.
bool RunCopyLocal(WarpContext& w, const Instruction& in, uint32_t active) {
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    uint8_t* local = w.local + static_cast<uint64_t>(__builtin_ctz(rest)) * w.local_bytes;
    __builtin_memmove(local + in.a, local + in.imm, in.b);
  }
  return true;
}

template <class T, class D>
Handler CountedLoad(const Selector& s) {
  if (s.op == Op::kLoadParam) return RunLoadParam<T, D>;
  return s.count == 1 ? RunLoad<T, D, 1> : s.count == 2 ? RunLoad<T, D, 2> : RunLoad<T, D, 4>;
}

// The register may be as wide as the value or wider.
template <class T>
Handler LoadTo(const Selector& s) {
  switch (s.from) {
    case Type::kU8:
      if constexpr (sizeof(T) == 1) return CountedLoad<T, uint8_t>(s);
      return nullptr;
    case Type::kU16:
      if constexpr (sizeof(T) <= 2) return CountedLoad<T, uint16_t>(s);
      return nullptr;
    case Type::kU32:
      if constexpr (sizeof(T) <= 4) return CountedLoad<T, uint32_t>(s);
      return nullptr;
    case Type::kU64:
      return CountedLoad<T, uint64_t>(s);
    default:
      return nullptr;
  }
}

Handler SelectLoad(const Selector& s) {
  switch (s.type) {
    case Type::kU8:
      return LoadTo<uint8_t>(s);
    case Type::kS8:
      return LoadTo<int8_t>(s);
    case Type::kU16:
    case Type::kF16:
      return LoadTo<uint16_t>(s);
    case Type::kS16:
      return LoadTo<int16_t>(s);
    case Type::kU32:
    case Type::kF32:
      return LoadTo<uint32_t>(s);
    case Type::kS32:
      return LoadTo<int32_t>(s);
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return LoadTo<uint64_t>(s);
    default:
      return nullptr;
  }
}

template <class T, class S>
Handler CountedStore(const Selector& s) {
  return s.count == 1 ? RunStore<T, S, 1> : s.count == 2 ? RunStore<T, S, 2> : RunStore<T, S, 4>;
}

template <class T>
Handler StoreFrom(const Selector& s) {
  if (s.from == Type::kU64) return CountedStore<T, uint64_t>(s);
  if constexpr (sizeof(T) <= 4) return CountedStore<T, uint32_t>(s);
  return nullptr;
}

Handler SelectStore(const Selector& s) {
  switch (s.type) {
    case Type::kU8:
    case Type::kS8:
      return StoreFrom<uint8_t>(s);
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
      return StoreFrom<uint16_t>(s);
    case Type::kU32:
    case Type::kS32:
    case Type::kF32:
      return StoreFrom<uint32_t>(s);
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return StoreFrom<uint64_t>(s);
    default:
      return nullptr;
  }
}

}  // namespace

Handler SelectMemory(const Selector& s) {
  switch (s.op) {
    case Op::kLoad:
    case Op::kLoadParam:
      return SelectLoad(s);
    case Op::kStore:
      return SelectStore(s);
    case Op::kAtom:
      return SelectAtomic(s);
    case Op::kCopyLocal:
      return RunCopyLocal;
    case Op::kCopyAsync:
      return s.count == 4 ? RunCopyAsync<4> : s.count == 8 ? RunCopyAsync<8> : RunCopyAsync<16>;
    case Op::kIsSpace:
      return RunIsSpace;
    case Op::kLoadMatrix:
      return RunMatrix<false>;
    case Op::kStoreMatrix:
      return RunMatrix<true>;
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
