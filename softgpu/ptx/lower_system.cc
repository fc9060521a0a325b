// Lowering of calls to functions of the system (vprintf, __assertfail, malloc, free and
// cudaGraphSetConditional), and of indexed branches.
#include <utility>

#include "softgpu/ptx/lower.h"

namespace tandem::ptx {
namespace {

constexpr std::string_view kSetConditional = "cudaGraphSetConditional";

}  // namespace

// An argument as compilers pass it: a .param variable that holds it, or a register.
Result<uint32_t> KernelLowering::SystemArgument(const Operand& argument, Type type) {
  if (argument.kind == Operand::Kind::kName) {
    const Result<Symbol> symbol = Find(argument);
    if (symbol.ok() && symbol.value().kind == Symbol::Kind::kLocal) {
      if (symbol.value().size != TypeBytes(type)) {
        return Bad("an argument does not fit its parameter");
      }
      Instruction load;
      load.a = Constant(symbol.value().offset, true);
      load.space = Space::kLocal;
      ASSIGN_OR_RETURN(load.dst, NewRow(type));
      TRY(Emit({.op = Op::kLoad, .type = type, .from = type}, load));
      return load.dst;
    }
  }
  return Source(argument, type);
}

bool KernelLowering::IsSystemCall(std::string_view name) const {
  const auto function = symbols_.functions.find(name);
  if (function != symbols_.functions.end() && function->second->has_body) return false;
  if (name == "malloc" || name == "free") return function != symbols_.functions.end();
  return name == "__assertfail" || name == "vprintf" || name == kSetConditional;
}

Status KernelLowering::SystemCall(std::string_view name, const std::vector<Operand>& results,
                                  const std::vector<Operand>& arguments) {
  if (name == "__assertfail") return CallAssert(results, arguments);
  if (name == kSetConditional) return SetConditional(results, arguments);
  const bool print = name == "vprintf", gives = name == "malloc";
  if (arguments.size() != (print ? 2 : 1) || results.size() > (print || gives ? 1u : 0u)) {
    return Bad("a wrong number of arguments or results");
  }
  Instruction in;
  Symbol result;
  result.type = gives ? Type::kU64 : Type::kU32;
  ASSIGN_OR_RETURN(in.a, SystemArgument(arguments[0], Type::kU64));
  ASSIGN_OR_RETURN(in.dst, NewRow(result.type));
  result.where = in.dst;
  if (print) {
    in.control = Control::kPrint;
    ASSIGN_OR_RETURN(in.b, SystemArgument(arguments[1], Type::kU64));
    TRY(Append(in));
  } else {
    in.imm = static_cast<int64_t>(symbols_.heap);
    TRY(Emit({.op = gives ? Op::kMalloc : Op::kFree}, in));
  }
  if (results.empty()) return {};
  ASSIGN_OR_RETURN(const Symbol actual, Actual(results[0], result, false));
  return CopyArgument(result, actual);
}

Status KernelLowering::CallAssert(const std::vector<Operand>& results,
                                  const std::vector<Operand>& arguments) {
  if (arguments.size() != 5 || !results.empty()) {
    return Bad("a wrong number of arguments or results");
  }
  Instruction in;
  in.control = Control::kAssert;
  ASSIGN_OR_RETURN(in.a, SystemArgument(arguments[0], Type::kU64));
  ASSIGN_OR_RETURN(in.b, SystemArgument(arguments[1], Type::kU64));
  ASSIGN_OR_RETURN(in.c, SystemArgument(arguments[2], Type::kU32));
  ASSIGN_OR_RETURN(in.d, SystemArgument(arguments[3], Type::kU64));
  return Append(in);
}

// The handle of a condition is the address of its value.
Status KernelLowering::SetConditional(const std::vector<Operand>& results,
                                      const std::vector<Operand>& arguments) {
  if (arguments.size() != 2 || !results.empty()) {
    return Bad("a wrong number of arguments or results");
  }
  Instruction in;
  in.space = Space::kGlobal;
  ASSIGN_OR_RETURN(in.a, SystemArgument(arguments[0], Type::kU64));
  ASSIGN_OR_RETURN(in.dst, SystemArgument(arguments[1], Type::kU32));
  return Emit({.op = Op::kStore, .type = Type::kU32, .from = Type::kU32}, in);
}

// brx.idx i, targets: one branch for each target that the index may name.
Status KernelLowering::BranchIndexed(const Statement& s, const Modifiers&) {
  TRY(NeedOperands(s, 2));
  ASSIGN_OR_RETURN(const uint32_t index, Source(s.operands[0], Type::kU32));
  const auto list = targets_.find(s.operands[1].name);
  if (list == targets_.end()) return Bad("unknown targets " + Quoted(s.operands[1].name));
  const uint16_t guard = guard_;
  const bool negated = guard != kTruePredicate && s.guard_negated;
  uint64_t number = 0;
  for (const Operand& target : list->second->operands) {
    Instruction compare;
    compare.a = index;
    compare.b = Constant(number++, false);
    compare.c = guard;
    compare.negate_c = negated;
    compare.logic = Logic::kAnd;
    compare.d = kSinkPredicate;
    ASSIGN_OR_RETURN(compare.dst, NewPredicate());
    guard_ = kTruePredicate;
    TRY(Emit({.op = Op::kSetp, .from = Type::kU32, .compare = Compare::kEq}, compare));
    // A copy without the guard, which the predicate already has.
    Statement jump;
    jump.line = s.line;
    jump.name = s.name;
    jump.modifiers = s.modifiers;
    guard_ = static_cast<uint16_t>(compare.dst);
    const Statement* const outer = std::exchange(statement_, &jump);
    const Status done = JumpTo(target);
    statement_ = outer;
    TRY(done);
  }
  return {};
}

}  // namespace tandem::ptx
