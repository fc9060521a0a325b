// One warp's instructions, and those of them that decide where its lanes go on.
#include <cstdlib>
#include <string>

#include "softgpu/ptx/execution_state.h"

namespace tandem::ptx {

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
      if (in->control == Control::kWarpSync && mask == warp.live()) {  // there is none to wait for
        if (++in != stop) [[likely]]
          continue;
        group->pc = limit;
        break;
      }
      const uint32_t active = mask & (predicates[in->guard] ^ (in->guard_negated ? ~0u : 0));
      group->pc = static_cast<uint32_t>(in - code);
      if (active == 0) {
        ++group->pc;
      } else {
        const Flow flow = in->control != Control::kBranch ? Control(warp, group, *in, active)
                          : active == mask                ? Jump(warp, group, *in)
                                                          : Split(warp, group, *in, active);
        if (flow == Flow::kParked) return Event::kParked;
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

// All of the group.
inline Execution::State::Flow Execution::State::Jump(Warp& warp, Group* group,
                                                     const Instruction& in) {
  const uint32_t pc = group->pc, target = static_cast<uint32_t>(in.imm);
  group->pc = target;
  if (target > pc) return Flow::kOn;
  const Flow flow = Loop(warp, in, pc - target + 1);
  return flow == Flow::kOn && !warp.RunsLowest() ? Flow::kPick : flow;
}

// Some of its lanes.
Execution::State::Flow Execution::State::Split(Warp& warp, Group* group, const Instruction& in,
                                               uint32_t active) {
  const uint32_t pc = group->pc++, target = static_cast<uint32_t>(in.imm);
  group->mask &= ~active;
  warp.Add(target, active);
  const Flow flow = target > pc ? Flow::kOn : Loop(warp, in, pc - target + 1);
  return flow == Flow::kOn ? Flow::kPick : flow;
}

// A jump back by this number of instructions.
inline Execution::State::Flow Execution::State::Loop(Warp& warp, const Instruction& in,
                                                     uint32_t instructions) {
  Count(instructions);
  const auto pc = static_cast<uint32_t>(&in - code_.instructions.data());
  if (warp.CountLoop(pc, in.polls)) return Flow::kTurnOver;
  return TimeToYield(instructions) ? Flow::kYielded : Flow::kOn;
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
  return !counts && warp.alone() ? Flow::kParked : Flow::kPick;
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

}  // namespace tandem::ptx
