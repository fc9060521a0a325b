#include "softgpu/ptx/lower.h"

#include <algorithm>

#include "softgpu/ptx/execute.h"
#include "softgpu/ptx/registers.h"

namespace tandem::ptx {
namespace {

constexpr uint32_t kMaxSharedBytes = 48 * 1024;
constexpr uint64_t kMaxLocalBytes = uint64_t{512} * 1024;
constexpr uint64_t kMaxParamBytes = 32764;
constexpr int kMaxCallDepth = 64;

}  // namespace

Error KernelLowering::Bad(const std::string& what) const {
  if (statement_ == nullptr) return SyntaxError(function_ ? function_->line : 1, what);
  const std::string spelled =
      statement_->kind == Statement::Kind::kInstruction ? Spell(*statement_) + ": " : "";
  return SyntaxError(statement_->line, spelled + what);
}

Status KernelLowering::NeedOperands(const Statement& statement, size_t count) const {
  if (statement.operands.size() == count) return {};
  return Bad("expected " + std::to_string(count) + " operands");
}

namespace {

// The handlers of the other paths, where there are any.
void SelectFaster([[maybe_unused]] const Selector& selector, [[maybe_unused]] Instruction& in) {
#ifdef TANDEM_PTX_X86
  static const size_t paths = Paths().size();
  if (paths > 1) in.handler[1] = avx2::Select(selector);
  if (paths > 2) in.handler[2] = avx512::Select(selector);
  if (in.handler[2] == nullptr) in.handler[2] = in.handler[1];
#endif
}

}  // namespace

Status KernelLowering::Emit(const Selector& selector, Instruction in) {
  if (symbols_.maps_f64 && (selector.type == Type::kF64 || selector.from == Type::kF64)) {
    return Bad("f64 in a module for map_f64_to_f32 is not supported");
  }
  in.handler[0] = baseline::Select(selector);
  if (in.handler[0] == nullptr) return Bad("unsupported combination of modifiers and types");
  SelectFaster(selector, in);
  const bool global = in.space == Space::kGlobal || in.space == Space::kGeneric;
  if (selector.op == Op::kLoad && global) in.trail = NewTrail();
  TRY(CheckFrame());
  return Append(in);
}

Status KernelLowering::Spend(size_t work) {
  if (work > work_left_) return Bad("the module is too large");
  work_left_ -= work;
  return {};
}

Status KernelLowering::Append(Instruction in) {
  TRY(Spend(1));
  in.line = statement_ != nullptr ? statement_->line : function_->line;
  in.guard = guard_;
  in.guard_negated = guard_ != kTruePredicate && statement_->guard_negated;
  code_.instructions.push_back(in);
  return {};
}

Result<Kernel> KernelLowering::Run() {
  function_ = &kernel_;
  Kernel kernel;
  kernel.name = std::string(kernel_.name);
  kernel.max_threads = kernel_.max_threads;
  std::copy_n(kernel_.required_block, 3, kernel.required_block);
  OpenScope();
  TRY(LowerCallees(kernel_, 0));
  if (passing_.has_value()) TRY(LowerPointers());
  function_ = &kernel_;
  statement_ = nullptr;
  return_row_ = inside_ = 0;
  if (kernel_.entry) {
    TRY(DefineKernelParams(&kernel.params, &kernel.param_bytes));
  } else {
    Callee alone;
    TRY(DefineFormals(kernel_, &alone));
  }
  code_.entry = static_cast<uint32_t>(code_.instructions.size());
  TRY(LowerBody(kernel_));

  CountStraightRuns();

  code_.local_bytes = static_cast<uint32_t>(RoundUp(code_.local_bytes, 16));
  if (has_stack_) code_.local_bytes += kStackBytes;
  kernel.local_bytes = code_.local_bytes;
  kernel.static_shared_bytes = static_cast<uint32_t>(RoundUp(shared_bytes_, dynamic_shared_align_));
  // Virtual registers outnumber what an allocator would use; a block of max_threads has to fit.
  const uint32_t most = kernel_.max_registers != 0 ? kernel_.max_registers : 255;
  const uint32_t fit = MostRegisters((kernel.max_threads + 31) / 32);
  kernel.registers = std::clamp(register_rows_, 1u, std::min({255u, most, fit}));
  kernel.code = std::make_shared<const Code>(std::move(code_));
  return kernel;
}

Status KernelLowering::DefineKernelParams(std::vector<Param>* params, uint32_t* bytes) {
  uint64_t end = 0;
  for (const Declaration& declaration : kernel_.params) {
    if (declaration.space != Declaration::Space::kParam || declaration.bytes == 0) {
      return Bad("a kernel's parameter needs .param and a size");
    }
    const uint64_t offset = RoundUp(end, declaration.align);
    end = offset + declaration.bytes;
    if (end > kMaxParamBytes) return Bad("the parameters are too large");
    params->push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(declaration.bytes),
                       declaration.align});
    Symbol symbol;
    symbol.kind = Symbol::Kind::kKernelParam;
    symbol.space = Declaration::Space::kParam;
    symbol.offset = offset;
    symbol.size = declaration.bytes;
    symbol.index_bytes = declaration.index_bytes;
    if (!scopes_.front().symbols.emplace(declaration.name, symbol).second) {
      return Bad("a parameter is declared twice");
    }
  }
  *bytes = static_cast<uint32_t>(end);
  return {};
}

Status KernelLowering::LowerCallees(const Function& function, int depth) {
  if (depth > kMaxCallDepth) return Bad("calls nest too deeply");
  in_progress_.insert(function.name);
  for (const Statement& statement : function.body) {
    if (statement.kind != Statement::Kind::kInstruction || statement.name != "call") continue;
    const auto* target = std::find_if(
        statement.operands.data(), statement.operands.data() + statement.operands.size(),
        [](const Operand& operand) { return operand.kind == Operand::Kind::kName; });
    if (target == statement.operands.data() + statement.operands.size()) continue;
    function_ = &function;
    statement_ = &statement;
    const Operand& last = statement.operands.back();
    if (&last != target && last.kind == Operand::Kind::kName) {  // a prototype
      TRY(PlacePassed());
      continue;
    }
    const auto callee = symbols_.functions.find(target->name);
    if (callee == symbols_.functions.end()) continue;
    const Function& called = *callee->second;
    if (!called.has_body) continue;
    if (in_progress_.contains(called.name)) return Bad("recursion is not supported");
    if (!lowered_.contains(called.name)) TRY(LowerFunction(called, depth + 1));
  }
  in_progress_.erase(function.name);
  return {};
}

Status KernelLowering::LowerFunction(const Function& function, int depth) {
  TRY(LowerCallees(function, depth));
  function_ = &function;
  statement_ = nullptr;
  OpenScope();
  Callee lowered;
  ASSIGN_OR_RETURN(lowered.return_row, NewRow(Type::kU32));
  TRY(DefineFormals(function, &lowered));
  if (!symbols_.pointers.empty()) {
    ASSIGN_OR_RETURN(lowered.inside, NewPredicate());
  }
  return_row_ = lowered.return_row;
  inside_ = lowered.inside;
  lowered.entry = static_cast<uint32_t>(code_.instructions.size());
  lowered_[function.name] = lowered;
  TRY(LowerBody(function));
  const auto& code = code_.instructions;
  lowered_[function.name].polls =
      std::any_of(code.begin() + lowered.entry, code.end(), [](auto& in) { return in.polls; });
  scopes_.pop_back();
  return {};
}

Status KernelLowering::DefineFormals(const Function& function, Callee* lowered) {
  for (const bool result : {true, false}) {
    for (const Declaration& formal : result ? function.results : function.params) {
      TRY(Define(formal));
      ASSIGN_OR_RETURN(const Symbol symbol, FindName(formal.name));
      (result ? lowered->results : lowered->params).push_back(symbol);
    }
  }
  return {};
}

void KernelLowering::CollectLabels(const Function& function) {
  labels_.clear();
  targets_.clear();
  prototypes_.clear();
  next_scope_ = 0;
  std::vector<size_t> open;
  for (const Statement& statement : function.body) {
    if (statement.kind == Statement::Kind::kOpen) {
      open.push_back(labels_.size());
      labels_.emplace_back();
    } else if (statement.kind == Statement::Kind::kClose) {
      open.pop_back();
    } else if (statement.kind == Statement::Kind::kTargets) {
      targets_.emplace(statement.name, &statement);
    } else if (statement.kind == Statement::Kind::kPrototype ||
               statement.kind == Statement::Kind::kCallTargets) {
      prototypes_.emplace(statement.name, &statement);
    } else if (statement.kind == Statement::Kind::kLabel) {
      // A second label of the same name is found when it is met.
      if (labels_[open.back()]
              .emplace(statement.name, static_cast<uint32_t>(label_targets_.size()))
              .second) {
        label_targets_.push_back(~0u);
      }
    }
  }
}

void KernelLowering::OpenScope() {
  scopes_.emplace_back();
}

Status KernelLowering::LowerBody(const Function& function) {
  CollectLabels(function);
  const size_t first = code_.instructions.size();
  TRY(MarkStack(function));
  for (const Statement& statement : function.body) {
    statement_ = &statement;
    guard_ = kTruePredicate;
    TRY(LowerStatement(statement));
  }
  // Falling off the end returns.
  guard_ = kTruePredicate;
  if (function.entry) {
    Instruction end;
    end.control = Control::kExit;
    TRY(Append(end));
  } else {
    TRY(Return());
  }
  return PatchLabels(first);
}

// A function gives back what it takes by alloca.
Status KernelLowering::MarkStack(const Function& function) {
  stack_row_ = 0;
  const bool takes = std::any_of(function.body.begin(), function.body.end(),
                                 [](const Statement& one) { return one.name == "alloca"; });
  if (!takes || function.entry) return {};
  ASSIGN_OR_RETURN(stack_row_, NewRow(Type::kU32));
  Instruction save;
  save.dst = stack_row_;
  return Emit({.op = Op::kStackSave, .type = Type::kU32}, save);
}

void KernelLowering::CountStraightRuns() {
  std::vector<Instruction>& code = code_.instructions;
  std::vector<bool> target(code.size() + 1);
  for (const uint32_t label : label_targets_) {
    if (label != ~0u) target[label] = true;
  }
  for (size_t i = code.size(); i-- > 0;) {
    Instruction& in = code[i];
    if (in.control != Control::kNone || in.guard != kTruePredicate || in.guard_negated) continue;
    const bool goes_on = i + 1 < code.size() && !target[i + 1];
    in.straight = 1 + (goes_on ? code[i + 1].straight : 0);
  }
}

// Of the body that begins at instruction `first`.
Status KernelLowering::PatchLabels(size_t first) {
  std::vector<size_t> polls(1, 0);  // how many instructions before each poll
  for (size_t i = first; i < code_.instructions.size(); ++i) {
    polls.push_back(polls.back() + (code_.instructions[i].polls ? 1 : 0));
  }
  for (const auto& [instruction, label] : label_uses_) {
    Instruction& in = code_.instructions[instruction];
    const size_t target = label_targets_[label];
    in.imm = static_cast<int64_t>(target);
    in.polls = target <= instruction && polls[instruction - first] != polls[target - first];
  }
  label_uses_.clear();
  return {};
}

Status KernelLowering::LowerStatement(const Statement& statement) {
  TRY(Spend(1 + statement.declarations.size()));
  switch (statement.kind) {
    case Statement::Kind::kOpen:
      OpenScope();
      scopes_.back().labels = &labels_[next_scope_++];
      return {};
    case Statement::Kind::kClose:
      scopes_.pop_back();
      return {};
    case Statement::Kind::kDeclare:
      for (const Declaration& declaration : statement.declarations) TRY(Define(declaration));
      return {};
    case Statement::Kind::kLabel: {
      uint32_t& target = label_targets_[scopes_.back().labels->at(statement.name)];
      if (target != ~0u) return Bad("the label is defined twice");
      target = static_cast<uint32_t>(code_.instructions.size());
      return {};
    }
    case Statement::Kind::kTargets:
    case Statement::Kind::kCallTargets:
    case Statement::Kind::kPrototype:
      return {};
    case Statement::Kind::kInstruction:
      break;
  }
  if (!statement.guard.empty()) {
    Operand guard;
    guard.name = statement.guard;
    bool negated = false;
    ASSIGN_OR_RETURN(const uint32_t predicate, PredicateSource(guard, &negated));
    guard_ = static_cast<uint16_t>(predicate);
  }
  ASSIGN_OR_RETURN(const Form* form, FormOf(statement));
  return (this->*form->lower)(statement, Modifiers(statement.modifiers, *form));
}

Status KernelLowering::Define(const Declaration& declaration) {
  Symbol symbol;
  const auto twice = [&] { return Bad(Quoted(declaration.name) + " is declared twice"); };
  switch (declaration.space) {
    case Declaration::Space::kRegister: {
      if (declaration.range != 0) {
        const bool fresh = scopes_.back().ranges.emplace(declaration.name, ranges_.size()).second;
        ranges_.push_back({declaration.range, declaration.type, {}});
        return fresh ? Status() : twice();
      }
      ASSIGN_OR_RETURN(symbol, PlaceRegister(declaration));
      break;
    }
    case Declaration::Space::kLocal:
    case Declaration::Space::kParam: {
      ASSIGN_OR_RETURN(symbol, PlaceLocal(declaration));
      break;
    }
    case Declaration::Space::kShared: {
      ASSIGN_OR_RETURN(symbol, PlaceShared(declaration));
      break;
    }
    default:
      return Bad("a .global or .const variable inside a function is not supported");
  }
  const bool fresh = scopes_.back().symbols.emplace(declaration.name, symbol).second;
  return fresh ? Status() : twice();
}

Result<KernelLowering::Symbol> KernelLowering::PlaceRegister(const Declaration& declaration) {
  Symbol symbol;
  symbol.type = declaration.type;
  if (declaration.type == Type::kPred) {
    symbol.kind = Symbol::Kind::kPredicate;
    ASSIGN_OR_RETURN(symbol.where, NewPredicate());
  } else {
    symbol.kind = Symbol::Kind::kRegister;
    ASSIGN_OR_RETURN(symbol.where, NewRow(declaration.type));
  }
  return symbol;
}

Result<KernelLowering::Symbol> KernelLowering::PlaceLocal(const Declaration& declaration) {
  Symbol symbol;
  symbol.kind = Symbol::Kind::kLocal;
  symbol.space = declaration.space;
  symbol.type = declaration.type;
  symbol.index_bytes = declaration.index_bytes;
  symbol.offset = RoundUp(code_.local_bytes, declaration.align);
  symbol.size = declaration.bytes;
  if (symbol.offset + symbol.size > kMaxLocalBytes) return Bad("too much local memory");
  code_.local_bytes = static_cast<uint32_t>(symbol.offset + symbol.size);
  return symbol;
}

Result<KernelLowering::Symbol> KernelLowering::PlaceShared(const Declaration& declaration) {
  if (const auto placed = shared_placed_.find(&declaration); placed != shared_placed_.end()) {
    return placed->second;
  }
  Symbol symbol;
  symbol.space = Declaration::Space::kShared;
  symbol.index_bytes = declaration.index_bytes;
  if (declaration.bytes == 0) {
    if (!declaration.is_extern) return Bad("a shared array needs a size");
    symbol.kind = Symbol::Kind::kDynamicShared;
    dynamic_shared_align_ = std::max({dynamic_shared_align_, 16u, declaration.align});
  } else {
    symbol.kind = Symbol::Kind::kShared;
    symbol.offset = RoundUp(shared_bytes_, declaration.align);
    symbol.size = declaration.bytes;
    if (symbol.offset + symbol.size > kMaxSharedBytes) return Bad("too much shared memory");
    shared_bytes_ = static_cast<uint32_t>(symbol.offset + symbol.size);
  }
  shared_placed_[&declaration] = symbol;
  return symbol;
}

}  // namespace tandem::ptx
