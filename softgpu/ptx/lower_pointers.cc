// Lowering of calls by pointer, and of the stack that alloca takes from.
//
// Where a kernel calls a pointer, every function whose address the module takes is lowered into it,
// each with a thunk: arguments and results are passed through one place in local memory, laid out
// by the prototype alone; the thunk copies them to and from where the function wants them.
// Functions have their registers once for each lane, so that a lane that enters one it has not left
// is stopped at run time.
#include "softgpu/ptx/lower.h"

namespace tandem::ptx {

uint64_t LayOut(const std::vector<Declaration>& formals, std::vector<uint64_t>* offsets) {
  uint64_t end = 0;
  for (const Declaration& formal : formals) {
    end = RoundUp(end, formal.align);
    offsets->push_back(end);
    end += formal.bytes;
  }
  return end;
}

std::vector<KernelLowering::Symbol> KernelLowering::Passed(
    const std::vector<Declaration>& formals) const {
  std::vector<uint64_t> offsets;
  LayOut(formals, &offsets);
  std::vector<Symbol> symbols;
  for (size_t i = 0; i < formals.size(); ++i) {
    Symbol symbol;
    symbol.kind = Symbol::Kind::kLocal;
    symbol.type = formals[i].type;
    symbol.offset = *passing_ + offsets[i];
    symbol.size = formals[i].bytes;
    symbols.push_back(symbol);
  }
  return symbols;
}

// REQUIRES: no body that calls a pointer has been lowered yet.
Status KernelLowering::PlacePassed() {
  if (passing_.has_value()) return {};
  Declaration place;
  place.space = Declaration::Space::kLocal;
  place.align = 16;
  place.bytes = symbols_.argument_bytes;
  ASSIGN_OR_RETURN(const Symbol passing, PlaceLocal(place));
  passing_ = passing.offset;
  return {};
}

Status KernelLowering::LowerPointers() {
  for (const Function* function : symbols_.pointed_at) {
    if (function != nullptr && !lowered_.contains(function->name)) {
      TRY(LowerFunction(*function, 1));
    }
  }
  for (const Function* function : symbols_.pointed_at) {
    code_.pointers.emplace_back();
    if (function != nullptr) TRY(LowerThunk(*function));
  }
  return {};
}

Status KernelLowering::LowerThunk(const Function& function) {
  function_ = &function;
  statement_ = nullptr;
  guard_ = kTruePredicate;
  const Callee& callee = lowered_.at(function.name);
  Code::Pointer& pointer = code_.pointers.back();
  pointer.entry = static_cast<uint32_t>(code_.instructions.size());
  ASSIGN_OR_RETURN(pointer.return_row, NewRow(Type::kU32));
  const std::vector<Symbol> arguments = Passed(function.params), results = Passed(function.results);
  for (size_t i = 0; i < arguments.size(); ++i) {
    TRY(CopyArgument(arguments[i], callee.params[i]));
  }
  Instruction call;
  call.control = Control::kCall;
  call.imm = callee.entry;
  call.dst = callee.return_row;
  call.b = callee.inside;
  TRY(Append(call));
  for (size_t i = 0; i < results.size(); ++i) TRY(CopyArgument(callee.results[i], results[i]));
  Instruction back;
  back.control = Control::kReturn;
  back.a = pointer.return_row;
  return Append(back);
}

// `prototype` names a .callprototype, or a list of functions, which all have the same.
Status KernelLowering::CallPointer(const Operand& target, const Operand& prototype,
                                   const std::vector<Operand>& results,
                                   const std::vector<Operand>& arguments) {
  const auto found = prototypes_.find(prototype.name);
  if (found == prototypes_.end()) return Bad("unknown prototype " + Quoted(prototype.name));
  const Statement& named = *found->second;
  const std::vector<Declaration>* formals[2] = {&named.results, &named.declarations};
  if (named.kind == Statement::Kind::kCallTargets) {
    const auto function = symbols_.functions.find(named.operands.front().name);
    if (function == symbols_.functions.end() || function->second->entry) {
      return Bad(Quoted(named.operands.front().name) + " is not a function");
    }
    formals[0] = &function->second->results;
    formals[1] = &function->second->params;
  }
  const std::vector<Symbol> passed[2] = {Passed(*formals[0]), Passed(*formals[1])};
  if (passed[0].size() != results.size() || passed[1].size() != arguments.size()) {
    return Bad("a wrong number of arguments or results");
  }
  Instruction call;
  call.control = Control::kCallPointer;
  ASSIGN_OR_RETURN(call.a, Source(target, Type::kU64));
  for (size_t i = 0; i < arguments.size(); ++i) {
    ASSIGN_OR_RETURN(const Symbol actual, Actual(arguments[i], passed[1][i], true));
    TRY(CopyArgument(actual, passed[1][i]));
  }
  TRY(Append(call));
  for (size_t i = 0; i < results.size(); ++i) {
    ASSIGN_OR_RETURN(const Symbol actual, Actual(results[i], passed[0][i], false));
    TRY(CopyArgument(passed[0][i], actual));
  }
  return {};
}

// alloca.u64 d, bytes{, alignment}: an address in local memory.
Status KernelLowering::Alloca(const Statement& s, const Modifiers& m) {
  const size_t count = s.operands.size();
  if (count != 2 && count != 3) return Bad("a wrong number of operands");
  Instruction in;
  in.imm = 8;
  if (count == 3) {
    const Operand& align = s.operands[2];
    const uint64_t value = align.kind == Operand::Kind::kInteger ? align.integer : 0;
    if (value == 0 || value > 128 || (value & (value - 1)) != 0) return Bad("a bad alignment");
    in.imm = static_cast<int64_t>(value);
  }
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], m.type(0)));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], m.type(0)));
  has_stack_ = true;
  return Emit({.op = Op::kAlloca, .type = m.type(0)}, in);
}

// stacksave d; stackrestore a
Status KernelLowering::StackMark(const Statement& s, const Modifiers& m) {
  TRY(NeedOperands(s, 1));
  Instruction in;
  if (m.form().op == Op::kStackSave) {
    ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], m.type(0)));
  } else {
    ASSIGN_OR_RETURN(in.a, Source(s.operands[0], m.type(0)));
  }
  return Emit({.op = m.form().op, .type = m.type(0)}, in);
}

Status KernelLowering::Return() {
  if (stack_row_ != 0) {
    Instruction restore;
    restore.a = stack_row_;
    TRY(Emit({.op = Op::kStackRestore, .type = Type::kU32}, restore));
  }
  Instruction in;
  in.control = Control::kReturn;
  in.a = return_row_;
  in.b = inside_;
  return Append(in);
}

}  // namespace tandem::ptx
