// Loads, stores and atomics, and the check that every byte they touch exists.
#include "src/softgpu/ptx/float_lanes.h"

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
bool CheckDevice(WarpContext& w, const Plan& plan, uint64_t first, uint64_t spread, uint32_t active,
                 bool write) {
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
bool CheckWindow(WarpContext& w, const Plan& plan, uint64_t size, uint32_t bytes) {
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

bool LocateIn(WarpContext& w, Plan& plan, Space space, uint64_t first, uint64_t spread,
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

Space WindowSpace(uint64_t address) {
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
bool LocateMixed(WarpContext& w, Plan& plan, uint32_t active, uint32_t bytes, bool write) {
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

// Finds where an access of `bytes` a lane goes, or leaves a fault.
bool Locate(WarpContext& w, const Instruction& in, uint32_t active, uint32_t bytes, bool write,
            Plan& plan) {
  const uint64_t displacement = static_cast<uint64_t>(in.imm);
  if (in.narrow) {
    const auto* a = Source<uint32_t>(w, in.a);
    TANDEM_LANES plan.offset[i] = a[i] + displacement;
  } else {
    const auto* a = Source<uint64_t>(w, in.a);
    TANDEM_LANES plan.offset[i] = a[i] + displacement;
  }
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

// The common case, for speed: all 32 lanes, one address or one run of addresses, in global or
// shared memory. Fills base, shape and offset[0] alone. False: not that case, or a fault; see
// Locate().
bool LocateRun(const WarpContext& w, const Instruction& in, uint32_t bytes, bool write,
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
    first = start;
    spread = differ;
    stride = step | (start + uint64_t{kLanes} * bytes) >> 32;
  } else {
    const auto* a = Source<uint64_t>(w, in.a);
    first = a[0];
    TANDEM_LANES {
      spread |= a[i] ^ first;
      stride |= a[i] ^ (first + static_cast<uint64_t>(i) * bytes);
    }
  }
  if (spread != 0 && stride != 0) return false;
  first += static_cast<uint64_t>(in.imm);
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

template <class D, class V>
inline auto Extend(V value) {
  return Cell<D>::Put(static_cast<D>(value));
}

// T lies in memory; D is the register's width.
template <class T, class D>
bool RunLoad(WarpContext& w, const Instruction& in, uint32_t active) {
  Plan plan;
  const uint32_t bytes = sizeof(T) * in.count;
  if ((active != ~0u || !LocateRun(w, in, bytes, false, plan)) &&
      !Locate(w, in, active, bytes, false, plan)) {
    return false;
  }
  const uint32_t refs[4] = {in.dst, in.b, in.c, in.d};
  for (int part = 0; part < in.count; ++part) {
    auto* d = Target<D>(w, refs[part], active);
    const uint8_t* from = plan.base + part * sizeof(T);
    if (plan.shape == Plan::Shape::kUniform) {
      const auto value = Extend<D>(Read<T>(from + plan.offset[0]));
      TANDEM_LANES d[i] = value;
    } else if (plan.shape == Plan::Shape::kContiguous && in.count == 1) {
      T values[kLanes];
      __builtin_memcpy(values, from + plan.offset[0], sizeof values);
      TANDEM_LANES d[i] = Extend<D>(values[i]);
    } else if (plan.shape == Plan::Shape::kContiguous) {
      const uint8_t* run = from + plan.offset[0];
      for (int i = 0; i < kLanes; ++i) d[i] = Extend<D>(Read<T>(run + i * size_t{bytes}));
    } else {
      for (int i = 0; i < kLanes; ++i) d[i] = Extend<D>(Read<T>(from + plan.offset[i]));
    }
    Finish<D>(w, refs[part], active);
  }
  return true;
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

// T lies in memory; S is the register's width.
template <class T, class S>
bool RunStore(WarpContext& w, const Instruction& in, uint32_t active) {
  Plan plan;
  const uint32_t bytes = sizeof(T) * in.count;
  if ((active != ~0u || !LocateRun(w, in, bytes, true, plan)) &&
      !Locate(w, in, active, bytes, true, plan)) {
    return false;
  }
  const uint32_t refs[4] = {in.dst, in.b, in.c, in.d};
  for (int part = 0; part < in.count; ++part) {
    const auto* s = Source<S>(w, refs[part]);
    uint8_t* to = plan.base + part * sizeof(T);
    if (plan.shape == Plan::Shape::kContiguous && in.count == 1 && active == ~0u) {
      T values[kLanes];
      TANDEM_LANES values[i] = static_cast<T>(s[i]);
      __builtin_memcpy(to + plan.offset[0], values, sizeof values);
      continue;
    }
    // Every lane writes its own place, or all the same one, where the last lane wins.
    const bool run = plan.shape != Plan::Shape::kScattered;
    const uint64_t step = plan.shape == Plan::Shape::kContiguous ? bytes : 0;
    for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
      const int i = __builtin_ctz(rest);
      const T value = static_cast<T>(s[i]);
      const uint64_t offset =
          run ? plan.offset[0] + step * static_cast<uint64_t>(i) : plan.offset[i];
      __builtin_memcpy(to + offset, &value, sizeof value);
    }
  }
  return true;
}

template <class T>
T Combined(Atomic op, T old, T b, T c) {
  if constexpr (kSame<T, float> || kSame<T, double>) {
    return op == Atomic::kAdd ? Canonical(old + b) : b;
  } else {
    switch (op) {
      case Atomic::kAdd:
        return static_cast<T>(static_cast<Unsigned<T>>(old) + static_cast<Unsigned<T>>(b));
      case Atomic::kMin:
        return b < old ? b : old;
      case Atomic::kMax:
        return b > old ? b : old;
      case Atomic::kInc:
        return old >= b ? 0 : old + 1;
      case Atomic::kDec:
        return old == 0 || old > b ? b : old - 1;
      case Atomic::kAnd:
        return old & b;
      case Atomic::kOr:
        return old | b;
      case Atomic::kXor:
        return old ^ b;
      case Atomic::kExch:
        return b;
      case Atomic::kCas:
        return old == b ? c : old;
    }
    return old;
  }
}

// Lanes go one after the other, in order.
template <class T>
bool RunAtom(WarpContext& w, const Instruction& in, uint32_t active) {
  Plan plan;
  if (!Locate(w, in, active, sizeof(T), true, plan)) return false;
  const auto* b = Source<T>(w, in.b);
  const auto* c = Source<T>(w, in.c);
  auto* d = reinterpret_cast<typename Cell<T>::Raw*>(w.scratch);
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    uint8_t* at = plan.base + plan.offset[i];
    const T old = Read<T>(at);
    T next = Combined<T>(in.atomic, old, b[i], c[i]);
    if constexpr (kSame<T, float>) {
      // The adder of global memory flushes subnormals, that of shared memory does not.
      const bool global = reinterpret_cast<uint64_t>(at) - w.device_base < w.device_size;
      if (global && in.atomic == Atomic::kAdd) {
        next = Flush<true>(Canonical(Flush<true>(old) + Flush<true>(b[i])));
      }
    }
    __builtin_memcpy(at, &next, sizeof next);
    d[i] = old;
  }
  auto* home = reinterpret_cast<typename Cell<T>::Raw*>(w.rows[0] + in.dst);
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    home[i] = d[i];
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
Handler PairLoad(Op op) {
  return op == Op::kLoad ? RunLoad<T, D> : RunLoadParam<T, D>;
}

// The register may be as wide as the value or wider.
template <class T>
Handler LoadTo(const Selector& s) {
  switch (s.from) {
    case Type::kU8:
      if constexpr (sizeof(T) == 1) return PairLoad<T, uint8_t>(s.op);
      return nullptr;
    case Type::kU16:
      if constexpr (sizeof(T) <= 2) return PairLoad<T, uint16_t>(s.op);
      return nullptr;
    case Type::kU32:
      if constexpr (sizeof(T) <= 4) return PairLoad<T, uint32_t>(s.op);
      return nullptr;
    case Type::kU64:
      return PairLoad<T, uint64_t>(s.op);
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

template <class T>
Handler StoreFrom(const Selector& s) {
  if (s.from == Type::kU64) return RunStore<T, uint64_t>;
  if constexpr (sizeof(T) <= 4) return RunStore<T, uint32_t>;
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

Handler SelectAtom(const Selector& s) {
  switch (s.type) {
    case Type::kU32:
      return RunAtom<uint32_t>;
    case Type::kS32:
      return RunAtom<int32_t>;
    case Type::kU64:
      return RunAtom<uint64_t>;
    case Type::kS64:
      return RunAtom<int64_t>;
    case Type::kF32:
      return RunAtom<float>;
    case Type::kF64:
      return RunAtom<double>;
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
      return SelectAtom(s);
    case Op::kCopyLocal:
      return RunCopyLocal;
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
