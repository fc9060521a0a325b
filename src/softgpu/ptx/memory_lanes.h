// Where lanes access memory: the check that every byte they touch exists, and its place in the
// host's memory. Included like lanes.h.
#pragma once

#include "src/softgpu/ptx/lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

// Where the lanes of one access lie: lane i at base + offset[i]. Lanes that do not take part repeat
// the first that does, so that a load may simply read all 32.
struct Plan {
  enum class Shape : uint8_t { kContiguous, kUniform, kScattered } shape = Shape::kScattered;
  uint8_t* base = nullptr;
  uint64_t offset[kLanes];
};

using FaultKind = WarpContext::FaultKind;

// Checks offsets into the device. `spread` is the OR of all differences from `first`.
inline bool CheckDevice(WarpContext& w, const Plan& plan, uint64_t first, uint64_t spread,
                        uint32_t active, bool write) {
  uint64_t previous = first;
  if (!GranuleExists(w, first, write)) return Fail(w, FaultKind::kIllegal, w.device_base + first);
  if (spread >> w.granule_shift == 0) return true;  // all in one granule, since base is aligned
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t offset = plan.offset[i];
    if ((offset ^ previous) >> w.granule_shift == 0 || (active >> i & 1) == 0) continue;
    if (!GranuleExists(w, offset, write)) {
      return Fail(w, FaultKind::kIllegal, w.device_base + offset);
    }
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
      plan.shape = Plan::Shape::kScattered;
      return true;
    case Space::kParam:
      if (write) return Fail(w, FaultKind::kSpace, first);
      plan.base = w.params;
      return CheckWindow(w, plan, w.param_bytes, bytes);
    default:
      plan.base = reinterpret_cast<uint8_t*>(w.device_base);
      TANDEM_LANES plan.offset[i] -= w.device_base;
      return CheckDevice(w, plan, first - w.device_base, spread, active, write);
  }
}

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
    const uint64_t inside =
        space == Space::kGlobal ? address : address & ((uint64_t{1} << kWindowShift) - 1);
    for (uint64_t& offset : one.offset) offset = inside;
    if (!LocateIn(w, one, space, inside, 0, 1u << lane, bytes, write)) return false;
    host[lane] = reinterpret_cast<uint64_t>(one.base) + one.offset[lane];
  }
  const uint64_t filler = host[__builtin_ctz(active)];
  plan.base = nullptr;
  plan.shape = Plan::Shape::kScattered;
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

// Finds where an access of `bytes` a lane goes, or leaves a fault.
inline bool Locate(WarpContext& w, const Instruction& in, uint32_t active, uint32_t bytes,
                   bool write, Plan& plan) {
  FillOffsets(w, in, plan);
  const uint64_t first = plan.offset[__builtin_ctz(active)];
  if (active != ~0u) {
    TANDEM_LANES plan.offset[i] = (active & kLaneBit[i]) != 0 ? plan.offset[i] : first;
  }
  uint64_t spread = 0, stride = 0;
  TANDEM_LANES {
    spread |= plan.offset[i] ^ first;
    stride |= plan.offset[i] ^ (first + static_cast<uint64_t>(i) * bytes);
  }
  if (((spread | first) & (bytes - 1)) != 0) {
    for (const uint64_t offset : plan.offset) {
      if ((offset & (bytes - 1)) != 0) return Fail(w, FaultKind::kMisaligned, offset);
    }
  }
  plan.shape = spread == 0   ? Plan::Shape::kUniform
               : stride == 0 ? Plan::Shape::kContiguous
                             : Plan::Shape::kScattered;

  Space space = in.space;
  uint64_t start = first;
  if (space == Space::kGeneric) {
    if (spread >> kWindowShift != 0) return LocateMixed(w, plan, active, bytes, write);
    space = WindowSpace(first);
    if (space != Space::kGlobal) {
      constexpr uint64_t kMask = (uint64_t{1} << kWindowShift) - 1;
      start &= kMask;
      TANDEM_LANES plan.offset[i] &= kMask;
    }
  }
  return LocateIn(w, plan, space, start, spread, active, bytes, write);
}

// All 32 lanes in shared memory, anywhere. False: not that case, or a fault; see Locate().
inline bool LocateInShared(const WarpContext& w, const Instruction& in, uint32_t bytes,
                           Plan& plan) {
  if (in.space != Space::kShared || w.shared_bytes < bytes) return false;
  const uint64_t last = w.shared_bytes - bytes;
  FillOffsets(w, in, plan);
  // The sign tells an offset beyond the last, whichever of the two it is that has it.
  uint64_t beyond = 0, all = 0;
  TANDEM_LANES {
    beyond |= plan.offset[i] | (last - plan.offset[i]);
    all |= plan.offset[i];
  }
  plan.base = w.shared;
  plan.shape = Plan::Shape::kScattered;
  return beyond >> 63 == 0 && (all & (bytes - 1)) == 0;
}

// The common case, for speed: all 32 lanes, one address or one run of addresses, in global or
// shared memory. Fills base, shape and offset[0] alone. False: not that case, or a fault; see
// Locate().
inline bool LocateRun(const WarpContext& w, const Instruction& in, uint32_t bytes, bool write,
                      Plan& plan) {
  uint64_t spread = 0, stride = 0, first;
  if (in.narrow) {
    const auto* a = Source<uint32_t>(w, in.a);
    const uint32_t start = a[0];
    uint32_t differ = 0, step = 0;
    TANDEM_LANES {
      differ |= a[i] ^ start;
      step |= a[i] ^ (start + static_cast<uint32_t>(i) * bytes);
    }
    // A run that wraps around 32 bits is none.
    first = start + static_cast<uint32_t>(in.imm);
    spread = differ;
    stride = step | (first + uint64_t{kLanes} * bytes) >> 32;
  } else {
    const auto* a = Source<uint64_t>(w, in.a);
    first = a[0];
    TANDEM_LANES {
      spread |= a[i] ^ first;
      stride |= a[i] ^ (first + static_cast<uint64_t>(i) * bytes);
    }
    first += static_cast<uint64_t>(in.imm);
  }
  if (spread != 0 && stride != 0) return false;
  if ((first & (bytes - 1)) != 0) return false;
  const uint64_t length = spread == 0 ? bytes : uint64_t{bytes} * kLanes;
  plan.shape = spread == 0 ? Plan::Shape::kUniform : Plan::Shape::kContiguous;
  const Space space = in.space;
  if (space == Space::kShared) {
    plan.base = w.shared;
    plan.offset[0] = first;
    return first < w.shared_bytes && length <= w.shared_bytes - first;
  }
  if (space != Space::kGlobal && space != Space::kGeneric) return false;
  plan.base = reinterpret_cast<uint8_t*>(w.device_base);
  const uint64_t offset = plan.offset[0] = first - w.device_base;
  return GranuleExists(w, offset, write) && GranuleExists(w, offset + length - 1, write);
}

template <class T>
inline T Read(const uint8_t* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace
}  // namespace tandem::ptx::TANDEM_PTX_PATH
