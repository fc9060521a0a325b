// Barriers that programs keep in shared memory (mbarrier), and the stack of alloca.
//
// A barrier's word: how many have still to come, how many make a phase (20 bits each), and the
// number of phases that are over. What arrive returns is the word as it was.
#include "softgpu/ptx/memory_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

constexpr uint64_t kCountMask = 0xfffff;
constexpr int kExpectedShift = 20, kPhaseShift = 40;

uint64_t WordOf(uint64_t phase, uint64_t expected, uint64_t pending) {
  return phase << kPhaseShift | (expected & kCountMask) << kExpectedShift | (pending & kCountMask);
}

uint64_t Arrived(uint64_t word, uint64_t count, uint64_t leaving) {
  const uint64_t expected = (word >> kExpectedShift & kCountMask) - leaving;
  const uint64_t pending = (word - count) & kCountMask, phase = word >> kPhaseShift;
  return pending == 0 ? WordOf(phase + 1, expected, expected) : WordOf(phase, expected, pending);
}

// What one lane does with the word.
uint64_t Next(const Instruction& in, uint64_t word, uint32_t count) {
  switch (in.object) {
    case BarrierObject::kInit:
      return WordOf(0, count, count);
    case BarrierObject::kInvalidate:
      return 0;
    case BarrierObject::kArrive:
    case BarrierObject::kArriveNoComplete:
      return Arrived(word, count, 0);
    case BarrierObject::kDrop:
    case BarrierObject::kDropNoComplete:
      return Arrived(word, count, count);
    case BarrierObject::kCopies:
      return in.high ? Arrived(word, 1, 0) : word;  // else what comes is also added
    default:
      return word;
  }
}

// Lanes go one after the other, in order.
bool RunBarrierObject(WarpContext& w, const Instruction& in, uint32_t active) {
  Plan plan;
  if (!Locate(w, in, active, sizeof(uint64_t), true, plan)) return false;
  const auto* b = Source<uint32_t>(w, in.b);
  const auto* c = Source<uint64_t>(w, in.c);
  const bool arrives =
      in.object >= BarrierObject::kArrive && in.object <= BarrierObject::kDropNoComplete;
  auto* d = reinterpret_cast<AliasU64*>(w.frame + in.dst);
  uint32_t over = 0;
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    uint8_t* at = plan.base + plan.offset[i];
    const uint64_t word = Read<uint64_t>(at), phase = word >> kPhaseShift;
    const bool is_over = in.object == BarrierObject::kTest ? phase != c[i] >> kPhaseShift
                                                           : (phase & 1) != (b[i] & 1);
    over |= is_over ? kLaneBit[i] : 0;
    const uint64_t next = Next(in, word, b[i]);
    if (next != word) __builtin_memcpy(at, &next, sizeof next);
    if (arrives) d[i] = word;
  }
  SetPredicate(w, in.d, over, active);
  return true;
}

bool RunPendingCount(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* c = Source<uint64_t>(w, in.c);
  auto* d = Target<uint32_t>(w, in.dst, active);
  TANDEM_LANES d[i] = static_cast<uint32_t>(c[i] & kCountMask);
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

// An address in local memory, whose end the stack is.
template <class T>
bool RunAlloca(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* a = Source<T>(w, in.a);
  const uint64_t align = static_cast<uint64_t>(in.imm);
  T taken[kLanes];
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    const uint64_t start = w.local_bytes - kStackBytes;
    const uint64_t at = (start + w.stack[i] + align - 1) / align * align, bytes = a[i];
    if (at > w.local_bytes || bytes > w.local_bytes - at) {
      return Fail(w, FaultKind::kIllegal, w.local_bytes);
    }
    w.stack[i] = static_cast<uint32_t>(at + bytes - start);
    taken[i] = static_cast<T>(at);
  }
  auto* d = reinterpret_cast<typename Cell<T>::Raw*>(w.frame + in.dst);
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    d[i] = taken[i];
  }
  return true;
}

template <class T>
bool RunStackSave(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<T>(w, in.dst, active);
  TANDEM_LANES d[i] = w.stack[i];
  Finish<T>(w, in.dst, active);
  return true;
}

template <class T>
bool RunStackRestore(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* a = Source<T>(w, in.a);
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    if (a[i] > kStackBytes) return Fail(w, FaultKind::kIllegal, a[i]);
    w.stack[i] = static_cast<uint32_t>(a[i]);
  }
  return true;
}

}  // namespace

Handler SelectBarrier(const Selector& s) {
  const bool wide = s.type == Type::kU64;
  switch (s.op) {
    case Op::kBarrierObject:
      return RunBarrierObject;
    case Op::kPendingCount:
      return RunPendingCount;
    case Op::kAlloca:
      return wide ? RunAlloca<uint64_t> : RunAlloca<uint32_t>;
    case Op::kStackSave:
      return wide ? RunStackSave<uint64_t> : RunStackSave<uint32_t>;
    case Op::kStackRestore:
      return wide ? RunStackRestore<uint64_t> : RunStackRestore<uint32_t>;
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
