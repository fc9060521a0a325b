#include "src/softgpu/ptx/execute.h"

#include <algorithm>
#include <cfenv>
#include <cstdlib>
#include <new>
#include <optional>
#include <utility>

#include "src/softgpu/ptx/barriers.h"
#include "src/softgpu/ptx/print.h"
#include "src/softgpu/ptx/warp.h"

namespace tandem::ptx {
namespace {

// Instructions between two questions to should_yield: some ten microseconds.
constexpr int64_t kInstructionsPerQuestion = 2048;

struct Free {
  void operator()(uint8_t* memory) const { std::free(memory); }
};

}  // namespace

class Execution::State {
 public:
  // With a block, only that one of the grid is run.
  State(Launch launch, const MemoryMap& memory, Path path, const uint32_t* block);

  Stop Run(const std::function<bool()>& should_yield);

  Fault fault;
  PrintBuffer printed;
  std::string assertions;

 private:
  enum class Event { kParked, kTurnOver, kYielded, kFault };
  // What became of the group in hand after a control instruction.
  enum class Flow { kOn, kPick, kTurnOver, kYielded, kFault };

  Stop RunBlocks();
  std::optional<Stop> RunBlock();
  void StartBlock();
  Event RunWarp(Warp& warp);
  Event Fail(const Warp& warp, const Instruction& in);
  Flow Control(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow Jump(Warp& warp, Group* group, uint32_t active, uint32_t target);
  Flow Call(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow CallPointer(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow Return(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow Park(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow Arrive(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow MeetLanes(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow Print(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow BadBarrier(const Warp& warp, const Instruction& in);
  bool TimeToYield(int64_t instructions);
  void Count(int64_t instructions) { progress_->instructions += instructions; }
  void Describe(const Warp& warp, const Instruction& in, const std::string& what, uint64_t address,
                Stop stop);
  void FillContext(const MemoryMap& memory, uint32_t index);

  const Launch launch_;
  Progress own_progress_;
  Progress* const progress_;
  const Code& code_;
  const int path_;
  uint32_t threads_;
  uint32_t block_[3] = {0, 0, 0};
  const bool alone_;
  std::vector<Warp> warps_;
  std::unique_ptr<Line[]> frames_;
  std::vector<Line> shared_;
  std::vector<uint32_t> predicates_, thread_ids_;
  std::vector<uint8_t> params_;
  std::unique_ptr<uint8_t, Free> local_;
  Line scratch_[4];

  Barriers barriers_;
  size_t warp_ = 0;                            // the one to go on with
  bool started_ = false, unfinished_ = false;  // the latter: a warp could have gone on
  int64_t budget_ = kInstructionsPerQuestion;
  Stop stop_ = Stop::kYielded;  // kYielded: not at its end
  const std::function<bool()>* should_yield_ = nullptr;
};

Execution::State::State(Launch launch, const MemoryMap& memory, Path path, const uint32_t* block)
    : launch_(std::move(launch)),
      progress_(launch_.progress != nullptr ? launch_.progress : &own_progress_),
      code_(*launch_.kernel->code),
      path_(HandlerOf(path)),
      threads_(launch_.block[0] * launch_.block[1] * launch_.block[2]),
      alone_(block != nullptr) {
  if (alone_) std::copy_n(block, 3, block_);
  const size_t count = (threads_ + kLanes - 1) / kLanes;
  const uint64_t shared_bytes =
      uint64_t{launch_.kernel->static_shared_bytes} + launch_.dynamic_shared_bytes;
  warps_.resize(count);
  frames_.reset(new (std::nothrow) Line[count * code_.frame_bytes / sizeof(Line)]());
  predicates_.resize(count * code_.predicates);
  thread_ids_.resize(count * 3 * kLanes);
  shared_.resize(shared_bytes / sizeof(Line) + 1);
  params_ = launch_.params;
  params_.resize(launch_.kernel->param_bytes);
  const size_t local = size_t{code_.local_bytes} * count * kLanes;
  if (local != 0) local_.reset(static_cast<uint8_t*>(std::calloc(local, 1)));
  for (uint32_t i = 0; i < count; ++i) FillContext(memory, i);
}

void Execution::State::FillContext(const MemoryMap& memory, uint32_t index) {
  WarpContext& w = warps_[index].context;
  w.frame = reinterpret_cast<uint8_t*>(frames_.get()) + size_t{index} * code_.frame_bytes;
  FillConstants(code_, w.frame);
  w.predicates = predicates_.data() + size_t{index} * code_.predicates;
  w.scratch = reinterpret_cast<uint8_t*>(scratch_);
  w.device_base = memory.base;
  w.device_size = memory.size;
  w.granule_shift = memory.granule_shift;
  w.readable = memory.readable;
  w.writable = memory.writable;
  w.host = memory.host;
  w.shared = reinterpret_cast<uint8_t*>(shared_.data());
  w.static_shared_bytes = launch_.kernel->static_shared_bytes;
  w.shared_bytes = uint64_t{w.static_shared_bytes} + launch_.dynamic_shared_bytes;
  w.local_bytes = code_.local_bytes;
  w.local = local_.get() + size_t{index} * kLanes * code_.local_bytes;
  w.params = params_.data();
  w.param_bytes = params_.size();
  w.image_address = launch_.image_address;
  w.textures = launch_.textures == nullptr ? nullptr : launch_.textures->data();
  w.texture_count = launch_.textures == nullptr ? 0 : launch_.textures->size();
  w.grid_workspace = launch_.grid_workspace;
  w.warp_id = index;
  w.progress = progress_;
  uint32_t* ids = thread_ids_.data() + size_t{index} * 3 * kLanes;
  for (size_t axis = 0; axis < 3; ++axis) {
    w.tid[axis] = ids + axis * kLanes;
    w.ntid[axis] = launch_.block[axis];
    w.nctaid[axis] = launch_.grid[axis];
  }
  NumberThreads(index, launch_.block, ids);
}

void Execution::State::StartBlock() {
  barriers_.Start(warps_.size());
  // Lanes may have left the block before from inside functions.
  if (!code_.pointers.empty()) std::fill(predicates_.begin(), predicates_.end(), 0);
  warp_ = 0;
  unfinished_ = false;
  for (size_t i = 0; i < warps_.size(); ++i) {
    const size_t left = threads_ - i * kLanes;
    warps_[i].context.predicates[kTruePredicate] = ~0u;
    warps_[i].Start(code_.entry, left >= kLanes ? ~0u : (1u << left) - 1);
    std::copy_n(block_, 3, warps_[i].context.ctaid);
  }
}

bool Execution::State::TimeToYield(int64_t instructions) {
  budget_ -= instructions;
  if (budget_ > 0) return false;
  budget_ = kInstructionsPerQuestion;
  return (*should_yield_)();
}

Stop Execution::State::Run(const std::function<bool()>& should_yield) {
  if (stop_ != Stop::kYielded) return stop_;
  should_yield_ = &should_yield;
  if (frames_ == nullptr || (code_.local_bytes != 0 && local_ == nullptr)) {
    fault.what = "no host memory for the threads' registers and local memory";
    return stop_ = Stop::kTrap;
  }
  // A program may have left this thread with another rounding mode, or flushing subnormals.
  std::fenv_t environment;
  std::fegetenv(&environment);
  std::fesetenv(FE_DFL_ENV);
  const Stop stop = RunBlocks();
  std::fesetenv(&environment);
  return stop;
}

Stop Execution::State::RunBlocks() {
  if (!std::exchange(started_, true)) StartBlock();
  for (;;) {
    if (const std::optional<Stop> stop = RunBlock()) return *stop;
    const auto instructions = static_cast<int64_t>(code_.instructions.size() * warps_.size());
    Count(instructions);
    if (alone_ || !NextBlock(launch_.grid, block_)) return stop_ = Stop::kDone;
    StartBlock();
    if (TimeToYield(instructions)) return Stop::kYielded;
  }
}

// Nothing when the block is done.
std::optional<Stop> Execution::State::RunBlock() {
  for (;;) {
    // Every warp runs until it ends, waits or has had its turn; then the barriers are looked at.
    for (; warp_ < warps_.size(); ++warp_) {
      switch (RunWarp(warps_[warp_])) {
        case Event::kParked:
          break;
        case Event::kTurnOver:
          unfinished_ = true;
          break;
        case Event::kYielded:
          return Stop::kYielded;
        case Event::kFault:
          return stop_;
      }
    }
    const bool released = barriers_.LookAtAll(warps_, code_);
    if (!std::exchange(unfinished_, false) && !released) break;
    warp_ = 0;
  }
  const bool stuck =
      std::any_of(warps_.begin(), warps_.end(), [](const Warp& warp) { return warp.live() != 0; });
  if (!stuck) return std::nullopt;
  fault.what = launch_.kernel->name + ": threads wait at a barrier that the rest never reach";
  return stop_ = Stop::kTrap;
}

Execution::State::Event Execution::State::RunWarp(Warp& warp) {
  WarpContext& context = warp.context;
  const Instruction* const code = code_.instructions.data();
  const uint32_t* const predicates = context.predicates;
  const int path = path_;
  uint32_t limit;
  while (Group* group = warp.Pick(&limit)) {
    const Instruction* in = code + group->pc;
    const uint32_t mask = group->mask;
    const Instruction* const stop = limit == ~0u ? nullptr : code + limit;
    for (;;) {
      if (in->control == Control::kNone) {
        if (in->straight != 0) {
          const Instruction* const end = in + in->straight;
          do {
            if (!in->handler[path](context, *in, mask)) [[unlikely]]
              return Fail(warp, *in);
          } while (++in != end);
        } else {
          const uint32_t active = mask & (predicates[in->guard] ^ (in->guard_negated ? ~0u : 0));
          if (active != 0 && !in->handler[path](context, *in, active)) [[unlikely]]
            return Fail(warp, *in);
          ++in;
        }
        if (in != stop) [[likely]]
          continue;
        group->pc = limit;
        break;
      }
      const uint32_t active = mask & (predicates[in->guard] ^ (in->guard_negated ? ~0u : 0));
      group->pc = static_cast<uint32_t>(in - code);
      if (active == 0) {
        ++group->pc;
      } else {
        const Flow flow = in->control == Control::kBranch
                              ? Jump(warp, group, active, static_cast<uint32_t>(in->imm))
                              : Control(warp, group, *in, active);
        if (flow == Flow::kYielded) return Event::kYielded;
        if (flow == Flow::kTurnOver) return Event::kTurnOver;
        if (flow == Flow::kFault) return Event::kFault;
        if (flow == Flow::kPick) break;
      }
      if (group->pc >= limit) break;
      in = code + group->pc;
    }
  }
  return Event::kParked;
}

// A handler has left a fault.
Execution::State::Event Execution::State::Fail(const Warp& warp, const Instruction& in) {
  using Kind = WarpContext::FaultKind;
  const Kind kind = warp.context.fault;
  const char* what = kind == Kind::kMisaligned ? "misaligned address" : "illegal address";
  Describe(warp, in, what, warp.context.fault_address,
           kind == Kind::kMisaligned ? Stop::kMisalignedAddress
           : kind == Kind::kSpace    ? Stop::kInvalidAddressSpace
                                     : Stop::kIllegalAddress);
  return Event::kFault;
}

Execution::State::Flow Execution::State::Control(Warp& warp, Group* group, const Instruction& in,
                                                 uint32_t active) {
  switch (in.control) {
    case Control::kCall:
      return Call(warp, group, in, active);
    case Control::kCallPointer:
      return CallPointer(warp, group, in, active);
    case Control::kReturn:
      return Return(warp, group, in, active);
    case Control::kExit:
      warp.Exit(group, active);
      ++group->pc;
      return Flow::kPick;
    case Control::kBarrier:
    case Control::kBarrierReduce:
      return Park(warp, group, in, active);
    case Control::kBarrierArrive:
      return Arrive(warp, group, in, active);
    case Control::kWarpSync:
      return MeetLanes(warp, group, in, active);
    case Control::kTrap:
      Describe(warp, in, "trap", 0, Stop::kTrap);
      return Flow::kFault;
    case Control::kAssert:
      assertions += AssertionText(warp.context, in, active);
      Describe(warp, in, "assertion failed", 0, Stop::kAssert);
      return Flow::kFault;
    case Control::kPrint:
      return Print(warp, group, in, active);
    case Control::kNone:
    case Control::kBranch:
      break;
  }
  std::abort();
}

Execution::State::Flow Execution::State::Jump(Warp& warp, Group* group, uint32_t active,
                                              uint32_t target) {
  const uint32_t pc = group->pc;
  const bool back = target <= pc, polls = code_.instructions[pc].polls;
  const bool whole = active == group->mask;
  if (whole) {
    group->pc = target;
  } else {
    group->mask &= ~active;
    group->pc = pc + 1;
    warp.Add(target, active);
  }
  if (back) Count(pc - target + 1);
  if (back && warp.CountLoop(pc, polls)) return Flow::kTurnOver;
  if (back && TimeToYield(pc - target + 1)) return Flow::kYielded;
  return whole && (!back || warp.RunsLowest()) ? Flow::kOn : Flow::kPick;
}

// A callee lies before its callers, but a call is no loop: how far away it lies costs nothing.
Execution::State::Flow Execution::State::Call(Warp& warp, Group* group, const Instruction& in,
                                              uint32_t active) {
  const uint32_t next = group->pc + 1, rest = group->mask & ~active;
  if (in.b != kTruePredicate) {
    uint32_t& inside = warp.context.predicates[in.b];
    if ((inside & active) != 0) {
      Describe(warp, in, "recursion through a pointer is not supported", 0, Stop::kTrap);
      return Flow::kFault;
    }
    inside |= active;
  }
  WriteLanes(warp.context, in.dst, active, next);
  group->pc = static_cast<uint32_t>(in.imm);
  group->mask = active;
  if (rest != 0) warp.Add(next, rest);
  Count(1);
  return warp.alone() ? Flow::kOn : Flow::kPick;
}

Execution::State::Flow Execution::State::CallPointer(Warp& warp, Group* group,
                                                     const Instruction& in, uint32_t active) {
  const uint32_t next = group->pc + 1;
  group->mask &= ~active;
  group->pc = next;
  Count(1);
  while (active != 0) {
    const uint64_t address = ReadWideLane(warp.context, in.a, active);
    uint32_t same = 0;
    for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
      if (ReadWideLane(warp.context, in.a, rest) == address) same |= rest & -rest;
    }
    const uint64_t number = (address - kFirstPointer) / kPointerStep;
    if (address % kPointerStep != 0 || number >= code_.pointers.size() ||
        code_.pointers[number].entry == ~0u) {
      Describe(warp, in, "a call of what is no function", address, Stop::kIllegalAddress);
      return Flow::kFault;
    }
    WriteLanes(warp.context, code_.pointers[number].return_row, same, next);
    warp.Add(code_.pointers[number].entry, same);
    active &= ~same;
  }
  return Flow::kPick;
}

// Lanes may have been called from different places.
Execution::State::Flow Execution::State::Return(Warp& warp, Group* group, const Instruction& in,
                                                uint32_t active) {
  group->mask &= ~active;
  ++group->pc;
  if (in.b != kTruePredicate) warp.context.predicates[in.b] &= ~active;
  while (active != 0) {
    const uint32_t target = ReadLane(warp.context, in.a, active);
    uint32_t same = 0;
    for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
      const uint32_t lane = rest & -rest;
      if (ReadLane(warp.context, in.a, lane) == target) same |= lane;
    }
    warp.Add(target, same);
    active &= ~same;
  }
  return Flow::kPick;
}

Execution::State::Flow Execution::State::Print(Warp& warp, Group* group, const Instruction& in,
                                               uint32_t active) {
  if (!printed.PrintLanes(warp.context, in, active)) {
    Describe(warp, in, "vprintf reads an illegal address", 0, Stop::kIllegalAddress);
    return Flow::kFault;
  }
  ++group->pc;
  return Flow::kOn;
}

Execution::State::Flow Execution::State::BadBarrier(const Warp& warp, const Instruction& in) {
  Describe(warp, in, "no such barrier", 0, Stop::kTrap);
  return Flow::kFault;
}

Execution::State::Flow Execution::State::Park(Warp& warp, Group* group, const Instruction& in,
                                              uint32_t active) {
  const uint32_t barrier = ReadLane(warp.context, in.a, active);
  if (barrier >= Barriers::kCount) return BadBarrier(warp, in);
  const uint32_t rest = group->mask & ~active;
  const uint32_t next = group->pc + 1;
  group->mask = active;
  group->wait = Group::Wait::kBarrier;
  group->barrier = static_cast<uint8_t>(barrier);
  group->expected = in.b == kSinkRow ? 0 : ReadLane(warp.context, in.b, active);
  if (in.control == Control::kBarrierReduce) {
    group->votes = active & (warp.context.predicates[in.c] ^ (in.negate_c ? ~0u : 0));
  }
  const bool counts = group->expected != 0;
  if (rest != 0) warp.Add(next, rest);
  if (counts) unfinished_ |= barriers_.Look(warps_, code_, barrier);
  return Flow::kPick;
}

Execution::State::Flow Execution::State::Arrive(Warp& warp, Group* group, const Instruction& in,
                                                uint32_t active) {
  const uint32_t barrier = ReadLane(warp.context, in.a, active);
  if (barrier >= Barriers::kCount) return BadBarrier(warp, in);
  const uint32_t expected = ReadLane(warp.context, in.b, active);
  unfinished_ |= barriers_.Arrive(warps_, code_, warp.context.warp_id, active, barrier, expected);
  ++group->pc;
  return warp.alone() ? Flow::kOn : Flow::kPick;
}

Execution::State::Flow Execution::State::MeetLanes(Warp& warp, Group* group, const Instruction& in,
                                                   uint32_t active) {
  uint32_t members = 0;
  const uint32_t elsewhere = warp.live() & ~group->mask;
  for (uint32_t rest = elsewhere == 0 ? 0 : active; rest != 0; rest &= rest - 1) {
    members |= ReadLane(warp.context, in.a, rest);
  }
  if ((members & elsewhere) != 0 && !warp.forced()) {
    group->wait = Group::Wait::kWarp;
    return Flow::kPick;
  }
  ++group->pc;
  return warp.alone() ? Flow::kOn : Flow::kPick;
}

void Execution::State::Describe(const Warp& warp, const Instruction& in, const std::string& what,
                                uint64_t address, Stop stop) {
  const uint32_t* block = warp.context.ctaid;
  fault.address = address;
  fault.what = launch_.kernel->name + ", line " + std::to_string(in.line) + ": " + what +
               ", block (" + std::to_string(block[0]) + ", " + std::to_string(block[1]) + ", " +
               std::to_string(block[2]) + "), warp " + std::to_string(warp.context.warp_id);
  stop_ = stop;
}

Execution::Execution(const Launch& launch, const MemoryMap& memory, Path path,
                     const uint32_t* block)
    : state_(std::make_unique<State>(launch, memory, path, block)) {}

Execution::Execution(const Launch& launch, const MemoryMap& memory, Path path) {
  if (launch.cooperative) MakeBlocks(launch, memory, path);
  if (!launch.cooperative) state_ = std::make_unique<State>(launch, memory, path, nullptr);
}

Execution::~Execution() = default;
Execution::Execution(Execution&&) noexcept = default;
Execution& Execution::operator=(Execution&&) noexcept = default;

Stop Execution::Run(const std::function<bool()>& should_yield) {
  return state_ != nullptr ? state_->Run(should_yield) : RunTogether(should_yield);
}

const Fault& Execution::fault() const {
  return state_ != nullptr ? state_->fault : blocks_[turn_].fault();
}

std::string Execution::TakeOutput() {
  std::string output = state_ != nullptr ? state_->printed.Take() : "";
  for (Execution& block : blocks_) output += block.TakeOutput();
  return output;
}

const std::string& Execution::assertions() const {
  return state_ != nullptr ? state_->assertions : blocks_[turn_].assertions();
}

}  // namespace tandem::ptx
