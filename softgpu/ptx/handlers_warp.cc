// What lanes of a warp tell each other, special registers, and the path's handler table.
#include <time.h>

#include "softgpu/ptx/lanes.h"
#include "softgpu/ptx/vector_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

// d[i] = value[source[i]]
inline void Pick(const int32_t* value, const int32_t* source, AliasS32* d) {
#if defined(__AVX2__)
  // From each quarter of the row; bits 3 and 4 of the source say which.
  __m256 quarters[4];
  for (size_t i = 0; i < 4; ++i) quarters[i] = LoadVector<__m256>(value + 8 * i);
  for (int i = 0; i < kLanes; i += 8) {
    const auto from = LoadVector<__m256i>(source + i);
    const __m256 odd = _mm256_castsi256_ps(_mm256_slli_epi32(from, 28));
    const __m256 high = _mm256_castsi256_ps(_mm256_slli_epi32(from, 27));
    const auto of = [&](int j) { return _mm256_permutevar8x32_ps(quarters[j], from); };
    StoreVector(d + i, _mm256_blendv_ps(_mm256_blendv_ps(of(0), of(1), odd),
                                        _mm256_blendv_ps(of(2), of(3), odd), high));
  }
#else
  for (int i = 0; i < kLanes; ++i) d[i] = value[source[i]];
#endif
}

template <Shuffle mode>
bool RunShflAs(WarpContext& w, const Instruction& in, uint32_t active) {
  alignas(64) int32_t value[kLanes], source[kLanes];
  __builtin_memcpy(value, RowBytes(w, in.a), sizeof value);
  const auto* b = Source<int32_t>(w, in.b);
  const auto* c = Source<int32_t>(w, in.c);
  uint32_t in_range = 0;
  TANDEM_LANES {
    const int offset = b[i] & 31;
    const int segment = c[i] >> 8 & 31;
    const int last = (i & segment) | (c[i] & 31 & ~segment);
    const int other = mode == Shuffle::kUp     ? i - offset
                      : mode == Shuffle::kDown ? i + offset
                      : mode == Shuffle::kBfly ? i ^ offset
                                               : (i & segment) | (offset & ~segment);
    const bool good = mode == Shuffle::kUp ? other >= last : other <= last;
    source[i] = good ? other & 31 : i;
    in_range |= good ? kLaneBit[i] : 0;
  }
  auto* d = Target<int32_t>(w, in.dst, active);
  Pick(value, source, d);
  Finish<int32_t>(w, in.dst, active);
  SetPredicate(w, in.d, in_range, active);
  return true;
}

bool RunShfl(WarpContext& w, const Instruction& in, uint32_t active) {
  switch (in.shuffle) {
    case Shuffle::kUp:
      return RunShflAs<Shuffle::kUp>(w, in, active);
    case Shuffle::kDown:
      return RunShflAs<Shuffle::kDown>(w, in, active);
    case Shuffle::kBfly:
      return RunShflAs<Shuffle::kBfly>(w, in, active);
    case Shuffle::kIdx:
      return RunShflAs<Shuffle::kIdx>(w, in, active);
  }
  return true;
}

// Each lane asks the members that its own mask, in b, names; lanes may stand here in several sets.
template <Op op>
bool RunVote(WarpContext& w, const Instruction& in, uint32_t active) {
  const uint32_t holds = PredicateOf(w, in.a, in.negate_a);
  const auto* b = Source<uint32_t>(w, in.b);
  uint32_t answers = 0;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t asked = b[i] & active, yes = holds & asked;
    bool answer = yes != 0;
    if (op == Op::kVoteAll) answer = yes == asked;
    if (op == Op::kVoteUni) answer = yes == asked || yes == 0;
    answers |= answer ? kLaneBit[i] : 0;
  }
  SetPredicate(w, in.dst, answers, active);
  return true;
}

// vote.ballot, and activemask, for which predicate a is the true one.
bool RunBallot(WarpContext& w, const Instruction& in, uint32_t active) {
  const uint32_t yes = PredicateOf(w, in.a, in.negate_a) & active;
  auto* d = Target<uint32_t>(w, in.dst, active);
  const auto* b = Source<uint32_t>(w, in.b);
  TANDEM_LANES d[i] = yes & b[i];
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

// match.any: the members with the same value as the lane's own.
template <class T>
bool RunMatchAny(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* a = Source<T>(w, in.a);
  const auto* b = Source<uint32_t>(w, in.b);
  uint32_t same[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    same[i] = 0;
    for (int j = 0; j < kLanes; ++j) same[i] |= a[j] == a[i] ? kLaneBit[j] : 0;
    same[i] &= b[i] & active;
  }
  auto* d = Target<uint32_t>(w, in.dst, active);
  TANDEM_LANES d[i] = same[i];
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

// match.all: all members, and true, where they all have one value; else 0.
template <class T>
bool RunMatchAll(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* a = Source<T>(w, in.a);
  const auto* b = Source<uint32_t>(w, in.b);
  uint32_t result[kLanes], holds = 0;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t members = b[i] & active;
    bool all = true;
    for (int j = 0; j < kLanes; ++j) all &= (members & kLaneBit[j]) == 0 || a[j] == a[i];
    result[i] = all ? members : 0;
    holds |= all ? kLaneBit[i] : 0;
  }
  auto* d = Target<uint32_t>(w, in.dst, active);
  TANDEM_LANES d[i] = result[i];
  Finish<uint32_t>(w, in.dst, active);
  SetPredicate(w, in.d, holds, active);
  return true;
}

template <class T>
T Reduced(Atomic operation, T x, T y) {
  switch (operation) {
    case Atomic::kAdd:
      return static_cast<T>(static_cast<uint32_t>(x) + static_cast<uint32_t>(y));
    case Atomic::kMin:
      return y < x ? y : x;
    case Atomic::kMax:
      return y > x ? y : x;
    case Atomic::kAnd:
      return x & y;
    case Atomic::kOr:
      return x | y;
    default:
      return x ^ y;
  }
}

template <class T>
bool RunRedux(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* a = Source<T>(w, in.a);
  const auto* b = Source<uint32_t>(w, in.b);
  T result[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t members = b[i] & active;
    bool first = true;
    T value = 0;
    for (uint32_t rest = members; rest != 0; rest &= rest - 1) {
      const T next = a[__builtin_ctz(rest)];
      value = first ? next : Reduced<T>(in.atomic, value, next);
      first = false;
    }
    result[i] = value;
  }
  auto* d = Target<T>(w, in.dst, active);
  TANDEM_LANES d[i] = result[i];
  Finish<T>(w, in.dst, active);
  return true;
}

// The lowest member, and whether the lane is it.
bool RunElect(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* b = Source<uint32_t>(w, in.b);
  auto* d = Target<uint32_t>(w, in.dst, active);
  uint32_t leaders = 0;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t members = b[i] & active;
    const int leader = members == 0 ? 0 : __builtin_ctz(members);
    leaders |= leader == i ? kLaneBit[i] : 0;
    d[i] = static_cast<uint32_t>(leader);
  }
  Finish<uint32_t>(w, in.dst, active);
  SetPredicate(w, in.d, leaders, active);
  return true;
}

uint64_t Nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

uint32_t LanemaskOf(Special which, int lane) {
  const uint32_t self = 1u << lane;
  switch (which) {
    case Special::kLanemaskEq:
      return self;
    case Special::kLanemaskLt:
      return self - 1;
    case Special::kLanemaskLe:
      return self | (self - 1);
    case Special::kLanemaskGt:
      return ~(self | (self - 1));
    default:
      return ~(self - 1);
  }
}

uint64_t Time(const Progress& progress, clockid_t host_clock) {
  if (progress.instruction_ns == 0) return Nanoseconds(host_clock);
  return static_cast<uint64_t>(progress.began_ns + progress.instructions * progress.instruction_ns);
}

// Those that are the same in all lanes.
uint64_t UniformSpecial(const WarpContext& w, Special which) {
  switch (which) {
    case Special::kNtidX:
      return w.ntid[0];
    case Special::kNtidY:
      return w.ntid[1];
    case Special::kNtidZ:
      return w.ntid[2];
    case Special::kCtaidX:
      return w.ctaid[0];
    case Special::kCtaidY:
      return w.ctaid[1];
    case Special::kCtaidZ:
      return w.ctaid[2];
    case Special::kNctaidX:
      return w.nctaid[0];
    case Special::kNctaidY:
      return w.nctaid[1];
    case Special::kNctaidZ:
      return w.nctaid[2];
    case Special::kWarpId:
      return w.warp_id;
    case Special::kNwarpId:
      return 32;
    case Special::kNsmId:
      return 1;
    case Special::kClock:
    case Special::kClock64:
      return Time(*w.progress, CLOCK_MONOTONIC);
    case Special::kGlobalTimer:
      return Time(*w.progress, CLOCK_REALTIME);
    case Special::kClockHigh:
      return Time(*w.progress, CLOCK_MONOTONIC) >> 32;
    case Special::kGlobalTimerHigh:
      return Time(*w.progress, CLOCK_REALTIME) >> 32;
    case Special::kOne:
      return 1;
    case Special::kDynamicSharedSize:
      return w.own_shared_bytes - w.static_shared_bytes;
    case Special::kTotalSharedSize:
      return w.own_shared_bytes;
    case Special::kReservedSharedBegin:
      return w.shared_bytes - w.reserved_shared_bytes;
    case Special::kReservedSharedEnd:
      return w.shared_bytes;
    case Special::kReservedSharedSize:
      return w.reserved_shared_bytes;
    case Special::kDynamicSharedBase:
      return w.static_shared_bytes;
    case Special::kEnvironment1:
      return w.grid_workspace >> 32;
    case Special::kEnvironment2:
      return w.grid_workspace & 0xffff'ffff;
    default:
      return 0;
  }
}

template <class T>
bool RunSpecial(WarpContext& w, const Instruction& in, uint32_t active) {
  auto* d = Target<T>(w, in.dst, active);
  const Special which = in.special;
  switch (which) {
    case Special::kTidX:
    case Special::kTidY:
    case Special::kTidZ: {
      const uint32_t* tid = w.tid[static_cast<int>(which) - static_cast<int>(Special::kTidX)];
      TANDEM_LANES d[i] = static_cast<T>(tid[i]);
      break;
    }
    case Special::kLaneId: {
      TANDEM_LANES d[i] = static_cast<T>(i);
      break;
    }
    case Special::kLanemaskEq:
    case Special::kLanemaskLt:
    case Special::kLanemaskLe:
    case Special::kLanemaskGt:
    case Special::kLanemaskGe:
      for (int i = 0; i < kLanes; ++i) d[i] = LanemaskOf(which, i);
      break;
    default: {
      const T value = static_cast<T>(UniformSpecial(w, which));
      TANDEM_LANES d[i] = value;
    }
  }
  Finish<T>(w, in.dst, active);
  return true;
}

}  // namespace

Handler SelectWarp(const Selector& s) {
  switch (s.op) {
    case Op::kShfl:
      return RunShfl;
    case Op::kVoteAll:
      return RunVote<Op::kVoteAll>;
    case Op::kVoteAny:
      return RunVote<Op::kVoteAny>;
    case Op::kVoteUni:
      return RunVote<Op::kVoteUni>;
    case Op::kVoteBallot:
    case Op::kActiveMask:
      return RunBallot;
    case Op::kMatchAny:
      return s.type == Type::kU64 ? RunMatchAny<uint64_t> : RunMatchAny<uint32_t>;
    case Op::kMatchAll:
      return s.type == Type::kU64 ? RunMatchAll<uint64_t> : RunMatchAll<uint32_t>;
    case Op::kRedux:
      return s.type == Type::kS32 ? RunRedux<int32_t> : RunRedux<uint32_t>;
    case Op::kElect:
      return RunElect;
    case Op::kSpecial:
      return s.type == Type::kU64   ? RunSpecial<uint64_t>
             : s.type == Type::kU16 ? RunSpecial<uint16_t>
                                    : RunSpecial<uint32_t>;
    default:
      return nullptr;
  }
}

Handler Select(const Selector& s) {
  const bool floating = s.type == Type::kF16 || s.type == Type::kF32 || s.type == Type::kF64;
  const bool half = s.type == Type::kBf16 || s.type == Type::kF16x2 || s.type == Type::kBf16x2;
  if (Handler h = SelectMemory(s)) return h;
  if (Handler h = SelectTexture(s)) return h;
  if (Handler h = SelectSurface(s)) return h;
  if (Handler h = SelectWarp(s)) return h;
  if (Handler h = SelectCompare(s)) return h;
  if (Handler h = SelectVideo(s)) return h;
  if (Handler h = SelectBarrier(s)) return h;
  if (Handler h = SelectHeap(s)) return h;
  if (s.op == Op::kMma || s.op == Op::kMmaBits) return SelectMatrix(s);
  if (Handler h = SelectWmma(s)) return h;
  if (s.op == Op::kCvt || s.op == Op::kCvtPack) return SelectConvert(s);
  const bool rare = s.more || s.op == Op::kTanh || s.op == Op::kEx2;
  if (half || (s.type == Type::kF16 && rare)) return SelectHalf(s);
  if (floating) return SelectFloat(s);
  if (Handler h = SelectBits(s)) return h;
  return SelectInteger(s);
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
