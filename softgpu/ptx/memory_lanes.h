// Where lanes access memory: the check that every byte they touch exists, and its place in the
// host's memory. Included like lanes.h.
#pragma once

#include "softgpu/ptx/lanes.h"
#include "softgpu/ptx/vector_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

// Where the lanes of one access lie: lane i at base + offset[i]. Lanes that do not take part repeat
// the first that does, so that a load may simply read all 32.
struct Plan {
  uint8_t* base = nullptr;
  uint64_t offset[kLanes];
};

using FaultKind = WarpContext::FaultKind;

// Checks every lane by itself: some of them are in the host's memory, or nowhere.
inline bool CheckHost(WarpContext& w, Plan& plan, uint32_t active, uint32_t bytes, bool write) {
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const uint64_t offset = plan.offset[__builtin_ctz(rest)];
    const uint64_t address = w.device_base + offset;
    if (GranuleExists(w, offset, write) || InHostRange(w.host, address, bytes, write)) continue;
    return Fail(w, FaultKind::kIllegal, address);
  }
  TANDEM_LANES plan.offset[i] += w.device_base;
  plan.base = nullptr;
  return true;
}

// Checks offsets into the device. `spread` is the OR of all differences from `first`.
inline bool CheckDevice(WarpContext& w, Plan& plan, uint64_t first, uint64_t spread,
                        uint32_t active, uint32_t bytes, bool write) {
  uint64_t previous = first;
  if (!GranuleExists(w, first, write)) return CheckHost(w, plan, active, bytes, write);
  if (spread >> w.granule_shift == 0) return true;  // all in one granule, since base is aligned
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t offset = plan.offset[i];
    if ((offset ^ previous) >> w.granule_shift == 0 || (active >> i & 1) == 0) continue;
    if (!GranuleExists(w, offset, write)) return CheckHost(w, plan, active, bytes, write);
    previous = offset;
  }
  return true;
}

// Checks offsets into shared, local or parameter memory of `size` bytes.
inline bool CheckWindow(WarpContext& w, const Plan& plan, uint64_t size, uint32_t bytes) {
  const uint64_t last = size >= bytes ? size - bytes : 0;
  uint64_t bad = size < bytes ? 1 : 0;
  TANDEM_LANES bad |= plan.offset[i] > last ? 1 : 0;
  if (bad == 0) return true;
  for (int i = 0; i < kLanes; ++i) {
    if (plan.offset[i] > last || size < bytes) {
      return Fail(w, FaultKind::kIllegal, plan.offset[i]);
    }
  }
  return true;
}

inline bool LocateIn(WarpContext& w, Plan& plan, Space space, uint64_t first, uint64_t spread,
                     uint32_t active, uint32_t bytes, bool write) {
  switch (space) {
    case Space::kShared:
      plan.base = w.shared;
      return CheckWindow(w, plan, w.shared_bytes, bytes);
    case Space::kLocal:
      plan.base = w.local;
      if (!CheckWindow(w, plan, w.local_bytes, bytes)) return false;
      TANDEM_LANES plan.offset[i] += static_cast<uint64_t>(i) * w.local_bytes;
      return true;
    case Space::kParam:
      if (write) return Fail(w, FaultKind::kSpace, first);
      plan.base = w.params;
      return CheckWindow(w, plan, w.param_bytes, bytes);
    default:
      plan.base = reinterpret_cast<uint8_t*>(w.device_base);
      TANDEM_LANES plan.offset[i] -= w.device_base;
      return CheckDevice(w, plan, first - w.device_base, spread, active, bytes, write);
  }
}

inline constexpr uint64_t kInWindow = (uint64_t{1} << kWindowShift) - 1;

inline Space WindowSpace(uint64_t address) {
  switch (address >> kWindowShift) {
    case kSharedWindow:
      return Space::kShared;
    case kLocalWindow:
      return Space::kLocal;
    case kParamWindow:
      return Space::kParam;
    default:
      return Space::kGlobal;
  }
}

// Generic addresses of more than one space in one access: lane by lane.
inline bool LocateMixed(WarpContext& w, Plan& plan, uint32_t active, uint32_t bytes, bool write) {
  uint64_t host[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    host[lane] = 0;
    if ((active >> lane & 1) == 0) continue;
    const uint64_t address = plan.offset[lane];
    const Space space = WindowSpace(address);
    Plan one;
    const uint64_t inside = space == Space::kGlobal ? address : address & kInWindow;
    for (uint64_t& offset : one.offset) offset = inside;
    if (!LocateIn(w, one, space, inside, 0, 1u << lane, bytes, write)) return false;
    host[lane] = reinterpret_cast<uint64_t>(one.base) + one.offset[lane];
  }
  const uint64_t filler = host[__builtin_ctz(active)];
  plan.base = nullptr;
  for (int i = 0; i < kLanes; ++i) plan.offset[i] = (active >> i & 1) != 0 ? host[i] : filler;
  return true;
}

// Address registers of 32 bits wrap there, displacement and all.
inline void FillOffsets(const WarpContext& w, const Instruction& in, Plan& plan) {
  if (in.narrow) {
    const auto* a = Source<uint32_t>(w, in.a);
    const uint32_t displacement = static_cast<uint32_t>(in.imm);
    TANDEM_LANES plan.offset[i] = a[i] + displacement;
  } else {
    const auto* a = Source<uint64_t>(w, in.a);
    const uint64_t displacement = static_cast<uint64_t>(in.imm);
    TANDEM_LANES plan.offset[i] = a[i] + displacement;
  }
}

// Finds where an access of `bytes` a lane goes, or leaves a fault. The plan has the addresses.
inline bool LocateAddresses(WarpContext& w, Space space, uint32_t active, uint32_t bytes,
                            bool write, Plan& plan) {
  const uint64_t first = plan.offset[__builtin_ctz(active)];
  if (active != ~0u) {
    TANDEM_LANES plan.offset[i] = (active & kLaneBit[i]) != 0 ? plan.offset[i] : first;
  }
  uint64_t spread = 0;
  TANDEM_LANES spread |= plan.offset[i] ^ first;
  if (((spread | first) & (bytes - 1)) != 0) {
    for (const uint64_t offset : plan.offset) {
      if ((offset & (bytes - 1)) != 0) return Fail(w, FaultKind::kMisaligned, offset);
    }
  }
  uint64_t start = first;
  if (space == Space::kGeneric) {
    if (spread >> kWindowShift != 0) return LocateMixed(w, plan, active, bytes, write);
    space = WindowSpace(first);
    if (space != Space::kGlobal) {
      start &= kInWindow;
      TANDEM_LANES plan.offset[i] &= kInWindow;
    }
  }
  return LocateIn(w, plan, space, start, spread, active, bytes, write);
}

inline bool Locate(WarpContext& w, const Instruction& in, uint32_t active, uint32_t bytes,
                   bool write, Plan& plan) {
  FillOffsets(w, in, plan);
  return LocateAddresses(w, in.space, active, bytes, write, plan);
}

// All 32 lanes in shared memory, anywhere. False: not that case, or a fault; see Locate().
template <uint32_t kBytes>
inline bool LocateInShared(const WarpContext& w, const Instruction& in, Plan& plan) {
  if (in.space != Space::kShared || w.shared_bytes < kBytes) return false;
  const uint64_t last = w.shared_bytes - kBytes;
  FillOffsets(w, in, plan);
  // The sign tells an offset beyond the last, whichever of the two it is that has it.
  uint64_t beyond = 0, all = 0;
  TANDEM_LANES {
    beyond |= plan.offset[i] | (last - plan.offset[i]);
    all |= plan.offset[i];
  }
  plan.base = w.shared;
  return beyond >> 63 == 0 && (all & (kBytes - 1)) == 0;
}

// The common case, for speed: all 32 lanes, and each half of the warp at one address or at a run of
// addresses. (Half, since blocks of 16 by 16 threads are so common.)
struct Runs {
  uint8_t* base;
  uint64_t start[2];
  uint64_t step[2];  // from lane to lane: 0, or the bytes of an access
};
template <uint32_t kBytes, class A>
struct Steps {
  alignas(kVectorBytes) A of[Vector<A>::kCount];
  constexpr Steps() : of() {
    for (int i = 0; i < Vector<A>::kCount; ++i) of[i] = static_cast<A>(i) * kBytes;
  }
};

// Where the lanes' addresses are such runs, and nothing wraps around. An address has type A.
template <uint32_t kBytes, class A>
inline bool FindRuns(const WarpContext& w, const Instruction& in, Runs& runs) {
  using V = typename Vector<A>::type;
  static constexpr Steps<kBytes, A> kSteps;
  const auto* a = Source<A>(w, in.a);
  V differ = {};
  A wrong = 0;
  for (int half = 0; half < 2; ++half, a += kHalf) {
    const A first = a[0];
    const A steps = a[1] == first ? A(0) : ~A(0);
    V expected = (*reinterpret_cast<const V*>(kSteps.of) & steps) + first;
    for (int i = 0; i < kHalf; i += Vector<A>::kCount) {
      differ |= *reinterpret_cast<const V*>(a + i) ^ expected;
      expected += A(Vector<A>::kCount * kBytes) & steps;
    }
    const A start = first + static_cast<A>(in.imm), step = kBytes & steps;
    const A end = start + step * (kHalf - 1) + (kBytes - 1);
    wrong |= (start & (kBytes - 1)) | (end < start ? 1 : 0);
    runs.start[half] = start;
    runs.step[half] = step;
  }
  return wrong == 0 && !AnyBit(differ);
}

// How many bytes a run spans.
template <uint32_t kBytes>
inline uint64_t LengthOf(const Runs& runs, int half) {
  return runs.step[half] * (kHalf - 1) + kBytes;
}

template <uint32_t kBytes>
inline bool EndsBefore(const Runs& runs, uint64_t size) {
  for (int half = 0; half < 2; ++half) {
    const uint64_t start = runs.start[half];
    if (start >= size || LengthOf<kBytes>(runs, half) > size - start) return false;
  }
  return true;
}

// Whether the device has all of it. A run is shorter than a granule, and most often both lie in
// one.
template <uint32_t kBytes>
inline bool RunsExist(const WarpContext& w, bool write, const Runs& runs) {
  const uint64_t known = runs.start[0];
  if (!GranuleExists(w, known, write)) return false;
  for (int half = 0; half < 2; ++half) {
    const uint64_t start = runs.start[half], last = start + LengthOf<kBytes>(runs, half) - 1;
    if (((start ^ known) | (last ^ known)) >> w.granule_shift == 0) continue;
    if (!GranuleExists(w, start, write) || !GranuleExists(w, last, write)) return false;
  }
  return true;
}

// In global or shared memory, and all there. False: not that case, or a fault; see Locate().
template <uint32_t kBytes>
inline bool LocateRuns(const WarpContext& w, const Instruction& in, bool write, Runs& runs) {
  const bool shared = in.space == Space::kShared;
  if (!shared && in.space != Space::kGlobal && in.space != Space::kGeneric) return false;
  if (!(in.narrow ? FindRuns<kBytes, uint32_t>(w, in, runs)
                  : FindRuns<kBytes, uint64_t>(w, in, runs))) {
    return false;
  }
  if (shared) {
    runs.base = w.shared;
    return EndsBefore<kBytes>(runs, w.shared_bytes);
  }
  runs.base = reinterpret_cast<uint8_t*>(w.device_base);
  for (uint64_t& start : runs.start) start -= w.device_base;
  return RunsExist<kBytes>(w, write, runs);
}

// Whether all 32 addresses lie one behind the other.
template <uint32_t kBytes, class A>
[[gnu::always_inline]] inline bool IsRun(const typename Cell<A>::Raw* a) {
  using V = typename Vector<A>::type;
  constexpr int kCount = Vector<A>::kCount;
  static constexpr Steps<kBytes, A> kSteps;
  const A first = a[0];
  if (a[kLanes - 1] - first != A{kLanes - 1} * kBytes) return false;
  V expected = *reinterpret_cast<const V*>(kSteps.of) + first, differ = {};
  for (int i = 0; i < kLanes; i += kCount) {
    differ |= *reinterpret_cast<const V*>(a + i) ^ expected;
    expected += A{kCount} * kBytes;
  }
  return !AnyBit(differ);
}

// As LocateRun(), in shared memory.
template <uint32_t kBytes>
inline uint8_t* LocateRunInShared(const WarpContext& w, const Instruction& in) {
  uint64_t start;
  if (in.narrow) {
    const auto* a = Source<uint32_t>(w, in.a);
    if (!IsRun<kBytes, uint32_t>(a)) return nullptr;
    start = a[0] + static_cast<uint32_t>(in.imm);
  } else {
    const auto* a = Source<uint64_t>(w, in.a);
    if (!IsRun<kBytes, uint64_t>(a)) return nullptr;
    start = a[0] + static_cast<uint64_t>(in.imm);
  }
  const bool inside = start < w.shared_bytes && w.shared_bytes - start >= uint64_t{kLanes} * kBytes;
  return inside && start % kBytes == 0 ? w.shared + start : nullptr;
}

// The most common case of all, for more speed: all 32 lanes one behind the other, in one granule of
// the device's memory or in shared memory. Null: not that case, or a fault; see Locate().
template <uint32_t kBytes>
[[gnu::always_inline]] inline uint8_t* LocateRun(const WarpContext& w, const Instruction& in,
                                                 bool write) {
  if (in.space == Space::kShared) return LocateRunInShared<kBytes>(w, in);
  if (in.narrow || (in.space != Space::kGlobal && in.space != Space::kGeneric)) return nullptr;
  const auto* a = Source<uint64_t>(w, in.a);
  const uint64_t address = a[0] + static_cast<uint64_t>(in.imm), start = address - w.device_base;
  const uint64_t last = start + uint64_t{kLanes} * kBytes - 1;
  if (!IsRun<kBytes, uint64_t>(a) || (start ^ last) >> w.granule_shift != 0 ||
      address % kBytes != 0 || !GranuleExists(w, start, write)) {
    return nullptr;
  }
  return reinterpret_cast<uint8_t*>(address);
}

template <class T>
inline T Read(const uint8_t* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace
}  // namespace tandem::ptx::TANDEM_PTX_PATH
