// Lowering of control flow, barriers, calls and what lanes tell each other.
#include "src/softgpu/ptx/lower.h"

namespace tandem::ptx {
namespace {

bool IsPlainName(const Operand& operand) {
  return operand.kind == Operand::Kind::kName && operand.component.empty() && !operand.negated;
}

}  // namespace

Status KernelLowering::Branch(const Statement& s, const Modifiers&) {
  TRY(NeedOperands(s, 1));
  return JumpTo(s.operands[0]);
}

Status KernelLowering::JumpTo(const Operand& target) {
  if (IsPlainName(target)) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend() && scope->labels; ++scope) {
      const auto label = scope->labels->find(target.name);
      if (label == scope->labels->end()) continue;
      label_uses_.emplace_back(code_.instructions.size(), label->second);
      Instruction in;
      in.control = Control::kBranch;
      return Append(in);
    }
  }
  return Bad("unknown label " + Quoted(target.name));
}

Status KernelLowering::Leave(const Statement& s, const Modifiers&) {
  TRY(NeedOperands(s, 0));
  Instruction in;
  in.control = s.name == "exit" || function_->entry ? Control::kExit : Control::kReturn;
  in.a = return_row_;
  return Append(in);
}

Status KernelLowering::Trap(const Statement& s, const Modifiers&) {
  TRY(NeedOperands(s, 0));
  Instruction in;
  in.control = Control::kTrap;
  return Append(in);
}

// bar{.cta}.sync a{, b}; bar.arrive a, b
Status KernelLowering::Barrier(const Statement& s, const Modifiers& m) {
  const bool arrive = m.Has("arrive");
  const size_t count = s.operands.size();
  if (count < (arrive ? 2u : 1u) || count > 2) return Bad("a wrong number of operands");
  Instruction in;
  in.control = arrive ? Control::kBarrierArrive : Control::kBarrier;
  ASSIGN_OR_RETURN(in.a, Source(s.operands[0], Type::kU32));
  if (count == 2) {
    ASSIGN_OR_RETURN(in.b, Source(s.operands[1], Type::kU32));
  }
  return Append(in);
}

// bar.red.popc.u32 d, a{, b}, {!}p; bar.red.and.pred p, a{, b}, {!}q
Status KernelLowering::BarrierReduce(const Statement& s, const Modifiers& m) {
  const size_t count = s.operands.size();
  if (count != 3 && count != 4) return Bad("a wrong number of operands");
  Instruction in;
  in.control = Control::kBarrierReduce;
  in.reduction = m.Has("popc") ? Reduction::kPopc : m.Has("and") ? Reduction::kAnd : Reduction::kOr;
  ASSIGN_OR_RETURN(in.dst, in.reduction == Reduction::kPopc ? Destination(s.operands[0], Type::kU32)
                                                            : PredicateDestination(s.operands[0]));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], Type::kU32));
  if (count == 4) {
    ASSIGN_OR_RETURN(in.b, Source(s.operands[2], Type::kU32));
  }
  ASSIGN_OR_RETURN(in.c, PredicateSource(s.operands[count - 1], &in.negate_c));
  return Append(in);
}

Status KernelLowering::WarpSync(const Statement& s, const Modifiers&) {
  TRY(NeedOperands(s, 1));
  return MeetLanes(&s.operands[0]);
}

// Between an argument and a parameter; `in` tells the direction. Both in local memory, or both
// registers.
Status KernelLowering::CopyArgument(const Operand& actual, const Symbol& formal, bool in) {
  Instruction copy;
  if (formal.kind == Symbol::Kind::kLocal) {
    ASSIGN_OR_RETURN(const Symbol local, Find(actual));
    if (local.kind != Symbol::Kind::kLocal || local.size != formal.size) {
      return Bad("an argument does not fit its parameter");
    }
    copy.imm = static_cast<int64_t>(in ? local.offset : formal.offset);
    copy.a = static_cast<uint32_t>(in ? formal.offset : local.offset);
    copy.b = static_cast<uint32_t>(formal.size);
    return Emit({.op = Op::kCopyLocal}, copy);
  }
  if (formal.kind != Symbol::Kind::kRegister) return Bad("a predicate cannot be passed");
  if (in) {
    copy.dst = formal.where;
    ASSIGN_OR_RETURN(copy.a, Source(actual, formal.type));
  } else {
    copy.a = formal.where;
    ASSIGN_OR_RETURN(copy.dst, Destination(actual, formal.type));
  }
  return Emit({.op = Op::kMov, .type = TypeBytes(formal.type) == 8 ? Type::kU64 : Type::kU32},
              copy);
}

Status KernelLowering::Call(const Statement& s, const Modifiers&) {
  static const std::vector<Operand> kNothing;
  size_t next = 0;
  const std::vector<Operand>* results = &kNothing;
  const std::vector<Operand>* arguments = &kNothing;
  if (next < s.operands.size() && s.operands[next].kind == Operand::Kind::kList) {
    results = &s.operands[next++].parts;
  }
  if (next >= s.operands.size() || !IsPlainName(s.operands[next])) {
    return Bad("a function's name is missing");
  }
  const std::string_view name = s.operands[next++].name;
  if (next < s.operands.size() && s.operands[next].kind == Operand::Kind::kList) {
    arguments = &s.operands[next++].parts;
  }
  if (next != s.operands.size()) return Bad("indirect calls are not supported");
  if (name == "__assertfail" || name == "vprintf") return SystemCall(name, *results, *arguments);
  const auto found = lowered_.find(name);
  if (found == lowered_.end()) {
    return Bad(Quoted(name) + " is not a function with a body");
  }
  const Callee& callee = found->second;
  if (results->size() != callee.results.size() || arguments->size() != callee.params.size()) {
    return Bad("a wrong number of arguments or results");
  }
  for (size_t i = 0; i < arguments->size(); ++i) {
    TRY(CopyArgument((*arguments)[i], callee.params[i], true));
  }
  Instruction call;
  call.control = Control::kCall;
  call.imm = callee.entry;
  call.dst = callee.return_row;
  TRY(Append(call));
  for (size_t i = 0; i < results->size(); ++i) {
    TRY(CopyArgument((*results)[i], callee.results[i], false));
  }
  return {};
}

// Lanes that work together meet at a point of its own first. Without .sync it is all that can come.
Status KernelLowering::MeetLanes(const Operand* members) {
  Instruction meet;
  meet.control = Control::kWarpSync;
  meet.a = Constant(~0u, false);
  if (members != nullptr) {
    ASSIGN_OR_RETURN(meet.a, Source(*members, Type::kU32));
  }
  return Append(meet);
}

Status KernelLowering::Shfl(const Statement& s, const Modifiers& m) {
  const bool sync = m.Has("sync");
  TRY(NeedOperands(s, sync ? 5 : 4));
  TRY(MeetLanes(sync ? &s.operands[4] : nullptr));
  Instruction in;
  in.shuffle = static_cast<Shuffle>(*m.OneOf({"up", "down", "bfly", "idx"}));
  const Operand& target = s.operands[0];
  const bool pair = target.kind == Operand::Kind::kPair;
  ASSIGN_OR_RETURN(in.dst, Destination(pair ? target.parts[0] : target, Type::kU32));
  in.d = kSinkPredicate;
  if (pair) {
    ASSIGN_OR_RETURN(in.d, PredicateDestination(target.parts[1]));
  }
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], Type::kU32));
  ASSIGN_OR_RETURN(in.b, Source(s.operands[2], Type::kU32));
  ASSIGN_OR_RETURN(in.c, Source(s.operands[3], Type::kU32));
  return Emit({.op = Op::kShfl}, in);
}

Status KernelLowering::Vote(const Statement& s, const Modifiers& m) {
  const bool sync = m.Has("sync");
  TRY(NeedOperands(s, sync ? 3 : 2));
  TRY(MeetLanes(sync ? &s.operands[2] : nullptr));
  Instruction in;
  ASSIGN_OR_RETURN(in.dst, m.form().op == Op::kVoteBallot ? Destination(s.operands[0], Type::kU32)
                                                          : PredicateDestination(s.operands[0]));
  ASSIGN_OR_RETURN(in.a, PredicateSource(s.operands[1], &in.negate_a));
  in.b = Constant(~0u, false);
  if (sync) {
    ASSIGN_OR_RETURN(in.b, Source(s.operands[2], Type::kU32));
  }
  return Emit({.op = m.form().op}, in);
}

Status KernelLowering::Match(const Statement& s, const Modifiers& m) {
  TRY(NeedOperands(s, 3));
  TRY(MeetLanes(&s.operands[2]));
  const Operand& target = s.operands[0];
  const bool pair = target.kind == Operand::Kind::kPair;
  if (pair && m.Has("any")) return Bad("match.any has no predicate");
  Instruction in;
  ASSIGN_OR_RETURN(in.dst, Destination(pair ? target.parts[0] : target, Type::kU32));
  in.d = kSinkPredicate;
  if (pair) {
    ASSIGN_OR_RETURN(in.d, PredicateDestination(target.parts[1]));
  }
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], m.type(0)));
  ASSIGN_OR_RETURN(in.b, Source(s.operands[2], Type::kU32));
  return Emit({.op = m.form().op, .type = m.type(0)}, in);
}

Status KernelLowering::Elect(const Statement& s, const Modifiers&) {
  TRY(NeedOperands(s, 2));
  TRY(MeetLanes(&s.operands[1]));
  if (s.operands[0].kind != Operand::Kind::kPair) return Bad("a predicate is missing");
  Instruction in;
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0].parts[0], Type::kU32));
  ASSIGN_OR_RETURN(in.d, PredicateDestination(s.operands[0].parts[1]));
  ASSIGN_OR_RETURN(in.b, Source(s.operands[1], Type::kU32));
  return Emit({.op = Op::kElect}, in);
}

Status KernelLowering::Redux(const Statement& s, const Modifiers& m) {
  static constexpr Atomic kOperations[] = {Atomic::kAdd, Atomic::kMin, Atomic::kMax,
                                           Atomic::kAnd, Atomic::kOr,  Atomic::kXor};
  TRY(NeedOperands(s, 3));
  TRY(MeetLanes(&s.operands[2]));
  Instruction in;
  in.atomic = kOperations[*m.OneOf({"add", "min", "max", "and", "or", "xor"})];
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], m.type(0)));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], m.type(0)));
  ASSIGN_OR_RETURN(in.b, Source(s.operands[2], Type::kU32));
  return Emit({.op = Op::kRedux, .type = m.type(0)}, in);
}

Status KernelLowering::ActiveMask(const Statement& s, const Modifiers&) {
  TRY(NeedOperands(s, 1));
  Instruction in;
  in.a = kTruePredicate;
  in.b = Constant(~0u, false);
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], Type::kU32));
  return Emit({.op = Op::kActiveMask}, in);
}

}  // namespace tandem::ptx
