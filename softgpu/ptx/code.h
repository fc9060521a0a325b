// The compiled code that the interpreter runs: instructions that each name a handler over 32 lanes.
//
// A register is a row of 32 slots in its warp's frame: 4 bytes a slot up to 32 bits (narrower
// values zero-extended), 8 bytes for 64 bits. A predicate is a lane mask in an array of its own.
//
// Invariants:
// 1. A row reference is an offset, a multiple of 128, into the warp's frame. Constants are rows
//    that are filled when the warp is made and never written. Row 0 (256 bytes) is a sink that
//    no instruction reads.
// 2. Predicate 0 is all ones and never written; predicate 1 is a sink.
// 3. Everything here is plain data without inline functions, because the handlers are compiled
//    for several instruction sets and must share no generated code.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "softgpu/ptx/host_range.h"
#include "softgpu/ptx/progress.h"

namespace tandem::ptx {

inline constexpr int kLanes = 32;
inline constexpr uint32_t kRowBytes = 4 * kLanes;  // of registers of 32 bits
inline constexpr uint32_t kSinkRow = 0;
inline constexpr uint32_t kTruePredicate = 0;
inline constexpr uint32_t kSinkPredicate = 1;

// Generic addresses name shared, local and parameter memory by their top byte, which no host
// virtual address has.
inline constexpr int kWindowShift = 56;
inline constexpr uint64_t kSharedWindow = 1;
inline constexpr uint64_t kLocalWindow = 2;
inline constexpr uint64_t kParamWindow = 3;
// Addresses of functions, at which nothing can be read: the first, and how far the next ones lie.
inline constexpr uint64_t kFirstPointer = (uint64_t{4} << kWindowShift) + 16;
inline constexpr uint64_t kPointerStep = 16;
// Of the heap that kernels get from by malloc, in the image of a module that does.
inline constexpr uint64_t kHeapBytes = uint64_t{8} << 20;
// What alloca hands out, at the end of a thread's local memory, where a kernel has one.
inline constexpr uint32_t kStackBytes = 16 * 1024;

enum class Type : uint8_t {
  kNone,
  kPred,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kF32,
  kF64,
  kBf16,
  kF16x2,
  kBf16x2,
  kTf32,  // what mma reads: the upper 19 bits of an f32
};

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kParam };

enum class Compare : uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,  // ordered
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan,  // floats only
};

enum class Logic : uint8_t { kNone, kAnd, kOr, kXor };

enum class Round : uint8_t { kNearest, kZero, kDown, kUp };

// What a handler does. Operands are dst, a, b, c (and d) as PTX orders them.
enum class Op : uint8_t {
  kNone,
  // Arithmetic.
  kAdd,
  kSub,
  kMulLo,
  kMulHi,
  kMulWide,
  kMadLo,
  kMadHi,
  kMadWide,
  kMul24Lo,
  kMul24Hi,
  kMad24Lo,
  kMad24Hi,
  kSad,
  kDiv,
  kRem,
  kAbs,
  kNeg,
  kMin,
  kMax,
  kFma,
  kRcp,
  kSqrt,
  kRsqrt,
  kEx2,
  kLg2,
  kSin,
  kCos,
  kTanh,
  kCopysign,
  kTestp,
  kAddCarry,
  kSubBorrow,
  kMadLoCarry,
  kMadHiCarry,
  // Bits.
  kAnd,
  kOr,
  kXor,
  kNot,
  kCnot,
  kShl,
  kShr,
  kShfLeft,
  kShfRight,
  kPrmt,
  kLop3,
  kBfe,
  kBfi,
  kPopc,
  kClz,
  kBrev,
  kBfind,
  kDp2a,
  kDp4a,
  kBmsk,
  kSzext,
  kFns,
  kVideo,
  // Predicates and selection.
  kSetp,
  kSet,
  kSelp,
  kSlct,
  kPredAnd,
  kPredOr,
  kPredXor,
  kPredNot,
  kPredMov,
  // Moving and converting.
  kMov,
  kCvt,
  kCvtPack,
  kPack,
  kUnpack,
  kSpecial,
  kImageAddress,
  // Memory.
  kLoad,
  kStore,
  kLoadParam,
  kAtom,
  kCopyLocal,
  kCopyAsync,
  kIsSpace,
  kLoadMatrix,
  kStoreMatrix,
  kTexture,
  kTextureQuery,
  kSurfaceLoad,
  kSurfaceStore,
  kMalloc,
  kFree,
  kAlloca,
  kStackSave,
  kStackRestore,
  kBarrierObject,  // mbarrier
  kPendingCount,
  // Warp.
  kShfl,
  kVoteAll,
  kVoteAny,
  kVoteUni,
  kVoteBallot,
  kActiveMask,
  kMatchAny,
  kMatchAll,
  kRedux,
  kElect,
  kMma,
  kMmaBits,
  kWmmaLoad,
  kWmmaStore,
};

enum class Atomic : uint8_t {
  kAdd,
  kMin,
  kMax,
  kInc,
  kDec,
  kAnd,
  kOr,
  kXor,
  kExch,
  kCas,
};

enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kWarpId,
  kNwarpId,
  kSmId,
  kNsmId,
  kGridId,
  kClock,
  kClock64,
  kGlobalTimer,
  kLanemaskEq,
  kLanemaskLt,
  kLanemaskLe,
  kLanemaskGt,
  kLanemaskGe,
  kDynamicSharedSize,
  kTotalSharedSize,
  kDynamicSharedBase,
  kReservedSharedBegin,
  kReservedSharedEnd,
  kReservedSharedSize,
  kEnvironment1,  // the halves of the grid workspace's address, the high one first
  kEnvironment2,
  kGlobalTimerHigh,
  kClockHigh,
  kZero,  // what is 0 here: no clusters, no counters
  kOne,
};

// shfl's way of choosing the source lane; testp's question.
enum class Shuffle : uint8_t { kUp, kDown, kBfly, kIdx };
enum class Test : uint8_t { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };

// prmt's modes; kIndex is the one without a name.
enum class Permute : uint8_t { kIndex, kF4e, kB4e, kRc8, kEcl, kEcr, kRc16 };

// What bar.red makes of the threads' predicates.
enum class Reduction : uint8_t { kPopc, kAnd, kOr };

// The shape that a texture is read as; a layer is the first coordinate.
enum class Edge : uint8_t { kTrap, kClamp, kZero };  // an access of a surface beyond it
struct TextureShape {
  uint8_t dimensions;
  bool layered;
  Edge edge;
};
// What txq asks for.
enum class Query : uint8_t { kWidth, kHeight, kDepth, kLayers, kLevels, kNormalized };

// Control instructions are the interpreter's own; all others are handlers.
enum class Control : uint8_t {
  kNone,
  kBranch,
  kExit,
  kBarrier,
  kBarrierArrive,
  kBarrierReduce,
  kWarpSync,
  kTrap,
  kAssert,
  kPrint,
  kCall,         // b: a predicate that tells which lanes are inside, or none
  kCallPointer,  // a: the address
  kReturn,       // b: as with kCall
};

// What a video instruction does: one of 8 bytes, in Instruction::imm.
enum class VideoOp : uint8_t {
  kAdd,
  kSub,
  kAbsDiff,
  kMin,
  kMax,
  kAverage,
  kShl,
  kShr,
  kSet,
  kMad,
};
enum class Secondary : uint8_t { kNone, kAdd, kMin, kMax };
struct Video {
  // Scalar: the first byte that is read or written, and 16 times how many. SIMD: for each lane, 4
  // bits that choose an element of b (high) and a; of the target, a bit for each lane.
  uint16_t a, b;
  uint8_t target;
  VideoOp op;
  Secondary secondary;
  bool signed_a : 1, signed_b : 1, signed_d : 1, sat : 1;
  bool wrap : 1, plus_one : 1;  // vshl.wrap; vmad.po
  bool shr7 : 1, shr15 : 1;     // vmad's scale
};

// What mbarrier does.
enum class BarrierObject : uint8_t {
  kInit,
  kInvalidate,
  kArrive,
  kArriveNoComplete,
  kDrop,
  kDropNoComplete,
  kTest,
  kTestParity,
  kCopies,  // cp.async.mbarrier.arrive
};

struct Texture;
struct WarpContext;
struct Instruction;

// Executes `in` for the lanes in `active` (never 0). False: a fault was left in the context.
using Handler = bool (*)(WarpContext& warp, const Instruction& in, uint32_t active);

struct Instruction {
  Handler handler[3] = {nullptr, nullptr, nullptr};  // baseline, AVX2, AVX-512
  int64_t imm = 0;  // displacement, branch target, address; what set gives for true
  uint32_t dst = kSinkRow;
  uint32_t a = kSinkRow, b = kSinkRow, c = kSinkRow, d = kSinkRow;
  // How many instructions from this one on only have handlers, no guards, and lead to nowhere that
  // a group of lanes could wait to be met: a look at the warp's groups is needed only behind them.
  uint32_t straight = 0;
  uint32_t trail = 0;  // of a load from global memory: 8 bytes of the frame, where it was last
  uint32_t line = 0;
  uint16_t guard = kTruePredicate;
  bool guard_negated = false;
  Control control = Control::kNone;
  // Predicates that are written !p; of mma on 4 bits, whether A and B are signed.
  bool negate_a = false, negate_b = false, negate_c = false;
  union {               // by the Op or Control
    uint8_t table = 0;  // lop3
    Permute permute;
    Logic logic;  // setp, set
    Test test;
    Special special;
    Atomic atomic;
    Shuffle shuffle;
    Reduction reduction;
    TextureShape texture;
    Query query;
    BarrierObject object;
  };
  Round round = Round::kNearest;
  Space space = Space::kGeneric;
  uint8_t count = 1;                         // elements of a vector load or store, parts of a pack
  bool narrow = false;                       // memory: the address register has 32 bits
  bool carry_in = false, carry_out = false;  // read, write the carry flag
  // Halves: what is done before and after, and setp's and set's comparison.
  bool ftz = false, sat = false, relu = false, nan = false, xorsign = false;
  bool finite = false, away = false;      // cvt.satfinite, cvt.rna
  bool high = false, transposed = false;  // dp2a.hi, ldmatrix.trans
  // May wait for other lanes: cas, exch, strong loads; calls of functions with one, branches back
  // over one.
  bool polls = false;
  Compare compare = Compare::kEq;
};

// Chooses a handler: the facts that are worth a handler of their own.
struct Selector {
  Op op = Op::kNone;
  Type type = Type::kNone;  // of the operation; of cvt's and set's result
  Type from = Type::kNone;  // of cvt's and set's source; of the register a load writes
  Space space = Space::kGeneric;
  Compare compare = Compare::kEq;
  Round round = Round::kNearest;
  bool to_integral = false;  // cvt between floats: .rni and friends
  bool ftz = false;
  bool sat = false;
  uint8_t count = 1;              // elements of a vector load or store; columns of the first factor
  uint8_t rows = 0, columns = 0;  // of a product of matrices
  bool clamp = false;             // shf.clamp rather than .wrap; bfind.shiftamt
  bool nan = false;               // min.NaN, max.NaN
  bool system = false;            // of atomics: .sys
  bool more = false;              // modifiers of halves and floats that few instructions have
};

struct Fault;

// What a handler may touch. Filled by the interpreter; plain data.
struct WarpContext {
  uint8_t* frame;
  uint32_t* predicates;
  uint8_t* scratch;  // one row, 256 bytes
  uint32_t carry;    // one flag a lane

  uint64_t device_base, device_size;
  uint32_t granule_shift;
  const std::atomic<uint64_t>* readable;
  const std::atomic<uint64_t>* writable;
  const std::vector<HostRange>* host;
  uint8_t* shared;
  uint64_t shared_bytes, own_shared_bytes;  // the first with what is reserved, at the end
  uint8_t* local;                           // of lane 0; lane i's lies local_bytes * i further
  uint64_t local_bytes;
  uint32_t stack[kLanes];  // of kStackBytes, what each lane has handed out
  uint8_t* params;
  uint64_t param_bytes;
  uint64_t image_address;
  const Texture* textures;  // by the low 20 bits of their handles, counted from 1
  uint64_t texture_count;
  uint64_t grid_workspace;

  const uint32_t* tid[3];  // 32 each
  uint32_t ntid[3], ctaid[3], nctaid[3];
  uint32_t warp_id;
  uint32_t static_shared_bytes, reserved_shared_bytes;
  const Progress* progress;  // never null

  enum class FaultKind : uint8_t { kNone, kIllegal, kMisaligned, kSpace } fault;
  uint64_t fault_address;
};

// The unit in which rows are allocated, for their alignment.
struct alignas(64) Line {
  uint64_t words[8];
};

// A kernel's code with the functions it calls. The kernel's entry is instruction `entry`.
struct Code {
  std::vector<Instruction> instructions;
  std::vector<Line> constants;
  std::vector<uint32_t> constant_places;  // of each of these lines, in the frame
  // What the addresses of functions stand for, where pointers are called.
  struct Pointer {
    uint32_t entry = ~0u;  // ~0: a function that must not be called
    uint32_t return_row = 0;
  };
  std::vector<Pointer> pointers;
  uint32_t entry = 0;
  uint32_t frame_bytes = 256;
  uint32_t predicates = 2;
  uint32_t local_bytes = 0;
  uint32_t reserved_shared_bytes = 0;  // where the kernel asks for them
};

namespace baseline {
Handler Select(const Selector& selector);
}
namespace avx2 {
// REQUIRES: the machine has AVX2, FMA and F16C.
Handler Select(const Selector& selector);
}  // namespace avx2
namespace avx512 {
// Null where the handler for AVX2 is as good. REQUIRES: the machine has AVX-512 F, VL, BW and DQ.
Handler Select(const Selector& selector);
}  // namespace avx512

}  // namespace tandem::ptx
