// Lowering of control flow, barriers, calls and what lanes tell each other.
#include "softgpu/ptx/barriers.h"
#include "softgpu/ptx/lower.h"

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
  if (s.name != "exit" && !function_->entry) return Return();
  Instruction in;
  in.control = Control::kExit;
  return Append(in);
}

Status KernelLowering::Trap(const Statement& s, const Modifiers&) {
  TRY(NeedOperands(s, 0));
  Instruction in;
  in.control = Control::kTrap;
  return Append(in);
}

// Numbers that are known here: of the barrier, and of its threads.
Status KernelLowering::CheckBarrier(const Operand& barrier, const Operand* threads) const {
  if (barrier.kind == Operand::Kind::kInteger && barrier.integer >= Barriers::kCount) {
    return Bad("no such barrier");
  }
  if (threads != nullptr && threads->kind == Operand::Kind::kInteger &&
      threads->integer % kLanes != 0) {
    return Bad("a barrier is for whole warps");
  }
  return {};
}

// bar{.cta}.sync a{, b}; bar.arrive a, b
Status KernelLowering::Barrier(const Statement& s, const Modifiers& m) {
  const bool arrive = m.Has("arrive");
  const size_t count = s.operands.size();
  if (count < (arrive ? 2u : 1u) || count > 2) return Bad("a wrong number of operands");
  Instruction in;
  in.control = arrive ? Control::kBarrierArrive : Control::kBarrier;
  TRY(CheckBarrier(s.operands[0], count == 2 ? &s.operands[1] : nullptr));
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
  TRY(CheckBarrier(s.operands[1], count == 4 ? &s.operands[2] : nullptr));
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

// Between an argument and a parameter, each a .param variable or a register; an argument may be a
// number.
Status KernelLowering::CopyArgument(const Symbol& from, const Symbol& to) {
  const auto bytes_of = [](const Symbol& symbol) -> uint64_t {
    return symbol.kind == Symbol::Kind::kLocal ? symbol.size : TypeBytes(symbol.type);
  };
  const auto is_value = [](const Symbol& symbol) {
    return symbol.kind == Symbol::Kind::kLocal || symbol.kind == Symbol::Kind::kRegister;
  };
  if (!is_value(from) || !is_value(to)) return Bad("a predicate cannot be passed");
  const uint64_t bytes = bytes_of(from);
  if (bytes != bytes_of(to)) return Bad("an argument does not fit its parameter");
  const bool from_local = from.kind == Symbol::Kind::kLocal;
  const bool to_local = to.kind == Symbol::Kind::kLocal;
  Instruction copy;
  if (from_local && to_local) {
    copy.imm = static_cast<int64_t>(from.offset);
    copy.a = static_cast<uint32_t>(to.offset);
    copy.b = static_cast<uint32_t>(bytes);
    return Emit({.op = Op::kCopyLocal}, copy);
  }
  const Type type = bytes == 8   ? Type::kU64
                    : bytes == 4 ? Type::kU32
                    : bytes == 2 ? Type::kU16
                                 : Type::kU8;
  if (!from_local && !to_local) {
    copy.a = from.where;
    copy.dst = to.where;
    return Emit({.op = Op::kMov, .type = type}, copy);
  }
  copy.space = Space::kLocal;
  copy.dst = from_local ? to.where : from.where;
  copy.a = Constant(from_local ? from.offset : to.offset, true);
  return Emit({.op = from_local ? Op::kLoad : Op::kStore, .type = type, .from = type}, copy);
}

// What is passed for a parameter (`in`), or gets a result.
Result<KernelLowering::Symbol> KernelLowering::Actual(const Operand& operand, const Symbol& formal,
                                                      bool in) {
  if (formal.kind != Symbol::Kind::kLocal && formal.kind != Symbol::Kind::kRegister) {
    return Bad("a predicate cannot be passed");
  }
  if (IsPlainName(operand)) {
    const Result<Symbol> named = Find(operand);
    if (named.ok() && named.value().kind == Symbol::Kind::kLocal &&
        named.value().space == Declaration::Space::kParam) {
      return named.value();
    }
  }
  if (formal.kind == Symbol::Kind::kLocal && formal.size != TypeBytes(formal.type)) {
    return Bad("an argument does not fit its parameter");
  }
  Symbol symbol;
  symbol.kind = Symbol::Kind::kRegister;
  symbol.type = formal.type;
  ASSIGN_OR_RETURN(symbol.where,
                   in ? Source(operand, formal.type) : Destination(operand, formal.type));
  return symbol;
}

Status KernelLowering::CallFunction(const Callee& callee, const std::vector<Operand>& results,
                                    const std::vector<Operand>& arguments) {
  if (results.size() != callee.results.size() || arguments.size() != callee.params.size()) {
    return Bad("a wrong number of arguments or results");
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    ASSIGN_OR_RETURN(const Symbol actual, Actual(arguments[i], callee.params[i], true));
    TRY(CopyArgument(actual, callee.params[i]));
  }
  Instruction call;
  call.control = Control::kCall;
  call.imm = callee.entry;
  call.dst = callee.return_row;
  call.b = callee.inside;
  call.polls = callee.polls;
  TRY(Append(call));
  for (size_t i = 0; i < results.size(); ++i) {
    ASSIGN_OR_RETURN(const Symbol actual, Actual(results[i], callee.results[i], false));
    TRY(CopyArgument(callee.results[i], actual));
  }
  return {};
}

// call (results), function, (arguments); and by pointer, with a prototype behind.
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
  const Operand& target = s.operands[next++];
  if (next < s.operands.size() && s.operands[next].kind == Operand::Kind::kList) {
    arguments = &s.operands[next++].parts;
  }
  if (next + 1 == s.operands.size() && IsPlainName(s.operands[next])) {
    return CallPointer(target, s.operands[next], *results, *arguments);
  }
  if (next != s.operands.size()) return Bad("a wrong number of operands");
  const std::string_view name = target.name;
  if (IsSystemCall(name)) return SystemCall(name, *results, *arguments);
  const auto function = symbols_.functions.find(name);
  const auto found =
      function == symbols_.functions.end() ? lowered_.end() : lowered_.find(function->second->name);
  if (found == lowered_.end()) {
    return Bad(Quoted(name) + " is not a function with a body");
  }
  return CallFunction(found->second, *results, *arguments);
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
