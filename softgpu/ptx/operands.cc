// Operands of instructions: registers, constants, addresses, special registers.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "softgpu/ptx/lower.h"
#include "softgpu/ptx/registers.h"

namespace tandem::ptx {
namespace {

constexpr uint32_t kMaxFrameBytes = 8u << 20;  // 65,536 registers of 32 bits a thread
constexpr uint32_t kMaxPredicates = 60000;

struct SpecialName {
  std::string_view name, component;
  Special special;
};
constexpr SpecialName kSpecials[] = {
    {"%tid", "x", Special::kTidX},
    {"%tid", "y", Special::kTidY},
    {"%tid", "z", Special::kTidZ},
    {"%ntid", "x", Special::kNtidX},
    {"%ntid", "y", Special::kNtidY},
    {"%ntid", "z", Special::kNtidZ},
    {"%ctaid", "x", Special::kCtaidX},
    {"%ctaid", "y", Special::kCtaidY},
    {"%ctaid", "z", Special::kCtaidZ},
    {"%nctaid", "x", Special::kNctaidX},
    {"%nctaid", "y", Special::kNctaidY},
    {"%nctaid", "z", Special::kNctaidZ},
    {"%laneid", "", Special::kLaneId},
    {"%warpid", "", Special::kWarpId},
    {"%nwarpid", "", Special::kNwarpId},
    {"%smid", "", Special::kSmId},
    {"%nsmid", "", Special::kNsmId},
    {"%gridid", "", Special::kGridId},
    {"%clock", "", Special::kClock},
    {"%clock64", "", Special::kClock64},
    {"%globaltimer", "", Special::kGlobalTimer},
    {"%clock_hi", "", Special::kClockHigh},
    {"%globaltimer_lo", "", Special::kGlobalTimer},
    {"%globaltimer_hi", "", Special::kGlobalTimerHigh},
    {"%lanemask_eq", "", Special::kLanemaskEq},
    {"%lanemask_lt", "", Special::kLanemaskLt},
    {"%lanemask_le", "", Special::kLanemaskLe},
    {"%lanemask_gt", "", Special::kLanemaskGt},
    {"%lanemask_ge", "", Special::kLanemaskGe},
    {"%dynamic_smem_size", "", Special::kDynamicSharedSize},
    {"%total_smem_size", "", Special::kTotalSharedSize},
    {"%envreg1", "", Special::kEnvironment1},
    {"%envreg2", "", Special::kEnvironment2},
    // A cluster is one block here.
    {"%clusterid", "x", Special::kCtaidX},
    {"%clusterid", "y", Special::kCtaidY},
    {"%clusterid", "z", Special::kCtaidZ},
    {"%nclusterid", "x", Special::kNctaidX},
    {"%nclusterid", "y", Special::kNctaidY},
    {"%nclusterid", "z", Special::kNctaidZ},
    {"%cluster_ctaid", "x", Special::kZero},
    {"%cluster_ctaid", "y", Special::kZero},
    {"%cluster_ctaid", "z", Special::kZero},
    {"%cluster_nctaid", "x", Special::kOne},
    {"%cluster_nctaid", "y", Special::kOne},
    {"%cluster_nctaid", "z", Special::kOne},
    {"%cluster_ctarank", "", Special::kZero},
    {"%cluster_nctarank", "", Special::kOne},
    {"%aggr_smem_size", "", Special::kTotalSharedSize},
    {"%current_graph_exec", "", Special::kZero},
    {"%reserved_smem_offset_begin", "", Special::kReservedSharedBegin},
    {"%reserved_smem_offset_0", "", Special::kReservedSharedBegin},
    {"%reserved_smem_offset_1", "", Special::kReservedSharedBegin},
    {"%reserved_smem_offset_end", "", Special::kReservedSharedEnd},
    {"%reserved_smem_offset_cap", "", Special::kReservedSharedSize},
};

// %envreg0 to %envreg31 and the like.
bool IsNumbered(const Operand& operand, std::string_view prefix, uint32_t count) {
  if (!operand.name.starts_with(prefix) || !operand.component.empty()) return false;
  const std::string_view number = operand.name.substr(prefix.size());
  uint32_t index = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  return error == std::errc() && end == number.data() + number.size() && index < count;
}

const SpecialName* FindSpecial(const Operand& operand) {
  if (operand.kind != Operand::Kind::kName || !operand.name.starts_with('%')) return nullptr;
  const auto* found = std::find_if(std::begin(kSpecials), std::end(kSpecials), [&](auto& special) {
    return special.name == operand.name && special.component == operand.component;
  });
  if (found != std::end(kSpecials)) return found;
  static constexpr SpecialName kCounter = {"", "", Special::kZero};
  return IsNumbered(operand, "%envreg", 32) || IsNumbered(operand, "%pm", 8) ? &kCounter : nullptr;
}

uint64_t LowBits(uint64_t value, uint32_t bytes) {
  return bytes >= 8 ? value : value & ((uint64_t{1} << (8 * bytes)) - 1);
}

}  // namespace

Result<uint32_t> KernelLowering::NewRow(Type type) {
  const uint32_t bytes = TypeBytes(type) == 8 ? 2 * kRowBytes : kRowBytes;
  if (code_.frame_bytes + bytes > kMaxFrameBytes) return Bad("too many registers");
  const uint32_t row = code_.frame_bytes;
  code_.frame_bytes += bytes;
  register_rows_ += bytes / kRowBytes;
  return row;
}

Result<uint32_t> KernelLowering::NewPredicate() {
  if (code_.predicates >= kMaxPredicates) return Bad("too many predicates");
  return code_.predicates++;
}

uint32_t KernelLowering::NewTrail() {
  if (trails_ % kRowBytes == 0) {
    trails_ = code_.frame_bytes;
    code_.frame_bytes += kRowBytes;
  }
  const uint32_t trail = trails_;
  trails_ += sizeof(uint64_t);
  return trail;
}

// Code that places many operands checks the frame's size from time to time (CheckFrame).
uint32_t KernelLowering::PlaceConstant(const std::vector<Line>& lines) {
  const uint32_t row = code_.frame_bytes;
  for (const Line& line : lines) {
    code_.constants.push_back(line);
    code_.constant_places.push_back(code_.frame_bytes);
    code_.frame_bytes += sizeof(Line);
  }
  return row;
}

Status KernelLowering::CheckFrame() const {
  return code_.frame_bytes > kMaxFrameBytes ? Bad("too many registers and constants") : Status();
}

uint32_t KernelLowering::Constant(uint64_t bits, bool wide) {
  const auto [entry, fresh] = constants_.try_emplace({bits, wide}, 0);
  if (fresh) {
    Line line;
    std::fill(std::begin(line.words), std::end(line.words), wide ? bits : bits << 32 | bits);
    entry->second = PlaceConstant(std::vector<Line>(wide ? 4 : 2, line));
  }
  return entry->second;
}

// A constant that lists the rows of an instruction with more operands than fit into it.
Result<uint32_t> KernelLowering::RowList(const std::vector<uint32_t>& refs) {
  TRY(CheckFrame());
  const size_t bytes = refs.size() * sizeof(uint32_t);
  std::vector<Line> lines(RoundUp(bytes, 128) / sizeof(Line));
  std::memcpy(lines.data(), refs.data(), bytes);
  return PlaceConstant(lines);
}

// %r12 in a range %r<100>: registers come into being when they are first named.
Result<std::optional<KernelLowering::Symbol>> KernelLowering::FindInRange(const Scope& scope,
                                                                          std::string_view name) {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  if (digits == 0 || digits >= name.size()) return std::optional<Symbol>();
  uint32_t index = 0;
  // A prefix may itself end in digits: %r1<5> has %r10 to %r14. No index has more than 10.
  const size_t first = std::max(digits, name.size() - std::min<size_t>(name.size(), 10));
  for (size_t split = first; split < name.size(); ++split) {
    const auto found = scope.ranges.find(name.substr(0, split));
    if (found == scope.ranges.end()) continue;
    const std::string_view number = name.substr(split);
    if (std::from_chars(number.data(), number.data() + number.size(), index).ec != std::errc()) {
      continue;
    }
    Range& range = ranges_[found->second];
    if (index >= range.count || (number.size() > 1 && number[0] == '0')) continue;
    Symbol symbol;
    symbol.type = range.type;
    symbol.kind = range.type == Type::kPred ? Symbol::Kind::kPredicate : Symbol::Kind::kRegister;
    const auto slot = range.slots.find(index);
    if (slot != range.slots.end()) {
      symbol.where = slot->second;
      return std::optional<Symbol>(symbol);
    }
    ASSIGN_OR_RETURN(symbol.where, range.type == Type::kPred ? NewPredicate() : NewRow(range.type));
    range.slots[index] = symbol.where;
    return std::optional<Symbol>(symbol);
  }
  return std::optional<Symbol>();
}

// An inner scope's names, in ranges or alone, hide those of outer ones.
Result<KernelLowering::Symbol> KernelLowering::FindName(std::string_view name) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->symbols.find(name);
    if (found != scope->symbols.end()) return found->second;
    ASSIGN_OR_RETURN(const std::optional<Symbol> ranged, FindInRange(*scope, name));
    if (ranged.has_value()) return *ranged;
  }
  Symbol symbol;
  if (const auto image = symbols_.image.find(name); image != symbols_.image.end()) {
    symbol.kind = Symbol::Kind::kImage;
    symbol.offset = image->second.offset;
    symbol.space = image->second.space;
    symbol.index_bytes = image->second.index_bytes;
    return symbol;
  }
  if (const auto shared = symbols_.shared.find(name); shared != symbols_.shared.end()) {
    return PlaceShared(*shared->second);
  }
  if (const auto pointer = symbols_.pointers.find(name); pointer != symbols_.pointers.end()) {
    symbol.kind = Symbol::Kind::kFunction;
    symbol.offset = PointerTo(pointer->second);
    return symbol;
  }
  return Bad("unknown name " + Quoted(name));
}

Result<KernelLowering::Symbol> KernelLowering::Find(const Operand& operand) {
  if (operand.kind != Operand::Kind::kName || !operand.component.empty() || operand.negated) {
    return Bad("expected a plain name");
  }
  return FindName(operand.name);
}

Result<KernelLowering::Register> KernelLowering::RegisterOf(const Operand& operand) {
  ASSIGN_OR_RETURN(const Symbol symbol, Find(operand));
  if (symbol.kind != Symbol::Kind::kRegister) {
    return Bad(Quoted(operand.name) + " is not a register");
  }
  return Register{symbol.where, symbol.type};
}

Result<uint32_t> KernelLowering::Destination(const Operand& operand, Type type) {
  if (operand.kind == Operand::Kind::kName && operand.name == "_") return kSinkRow;
  ASSIGN_OR_RETURN(const Register reg, RegisterOf(operand));
  if (TypeBytes(reg.type) != TypeBytes(type)) {
    return Bad("the width of " + Quoted(operand.name) + " does not fit the instruction");
  }
  return reg.ref;
}

Result<uint32_t> KernelLowering::Source(const Operand& operand, Type type) {
  if (operand.kind == Operand::Kind::kInteger || operand.kind == Operand::Kind::kFloat) {
    return Immediate(operand, type);
  }
  if (operand.negated) return Bad("only a predicate can be negated");
  if (const SpecialName* special = FindSpecial(operand)) {
    if (IsFloat(type)) return Bad("a special register is no float");
    return ReadSpecial(special->special, type);
  }
  Operand name = operand;
  if (operand.kind == Operand::Kind::kPlace) name.kind = Operand::Kind::kName;
  ASSIGN_OR_RETURN(const Symbol symbol, Find(name));
  if (symbol.kind == Symbol::Kind::kPredicate) {
    return Bad(Quoted(operand.name) + " is a predicate");
  }
  if (symbol.kind != Symbol::Kind::kRegister) return VariableSource(operand, symbol, type);
  if (operand.kind == Operand::Kind::kPlace) return Bad("a register has no displacement");
  if (TypeBytes(symbol.type) != TypeBytes(type)) {
    return Bad("the width of " + Quoted(operand.name) + " does not fit the instruction");
  }
  return symbol.where;
}

// Of a place inside a variable, in bytes.
Result<uint64_t> KernelLowering::Displacement(const Operand& operand, const Symbol& symbol) const {
  if (!operand.indexed) return operand.integer;
  if (symbol.index_bytes == 0) return Bad(Quoted(operand.name) + " takes more than one index");
  return operand.integer * symbol.index_bytes;
}

// The address of a variable, or of a place inside it.
Result<uint32_t> KernelLowering::VariableSource(const Operand& operand, const Symbol& symbol,
                                                Type type) {
  if (IsFloat(type)) return Bad("an address is no float");
  ASSIGN_OR_RETURN(const uint64_t displacement, Displacement(operand, symbol));
  if (TypeBytes(type) == 8) return AddressOf(symbol, displacement);
  if (TypeBytes(type) == 4 &&
      (symbol.kind == Symbol::Kind::kShared || symbol.kind == Symbol::Kind::kLocal)) {
    return Constant(LowBits(symbol.offset + displacement, 4), false);
  }
  if (TypeBytes(type) == 4 && symbol.kind == Symbol::Kind::kDynamicShared && displacement == 0) {
    return ReadSpecial(Special::kDynamicSharedBase, type);
  }
  return Bad("an address has 64 bits");
}

Result<uint64_t> KernelLowering::ImmediateBits(const Operand& operand, Type type) const {
  const uint32_t bytes = TypeBytes(type);
  TRY(CheckFrame());
  if (operand.kind == Operand::Kind::kInteger) {
    if (IsFloat(type)) {
      return Bad("an integer where a float is expected");
    }
    return LowBits(operand.integer, bytes);
  }
  const auto& words = statement_->modifiers;
  const bool bits = std::any_of(words.begin(), words.end(), [](auto& w) { return w[0] == 'b'; });
  if (!IsFloat(type) && !bits) return Bad("a float where an integer is expected");
  if (bytes == 8) return __builtin_bit_cast(uint64_t, operand.real);
  if (bytes != 4) return Bad("a float literal has 32 or 64 bits");
  if (operand.single) return operand.integer;
  return uint64_t{__builtin_bit_cast(uint32_t, static_cast<float>(operand.real))};
}

Result<uint32_t> KernelLowering::Immediate(const Operand& operand, Type type) {
  ASSIGN_OR_RETURN(const uint64_t bits, ImmediateBits(operand, type));
  return Constant(bits, TypeBytes(type) == 8);
}

Result<uint32_t> KernelLowering::ReadSpecial(Special special, Type type) {
  Instruction in;
  in.special = special;
  if (special == Special::kReservedSharedBegin || special == Special::kReservedSharedEnd ||
      special == Special::kReservedSharedSize) {
    code_.reserved_shared_bytes = kReservedSharedBytes;
  }
  ASSIGN_OR_RETURN(in.dst, NewRow(type));
  const uint32_t bytes = TypeBytes(type);
  const Type width = bytes == 8 ? Type::kU64 : bytes == 2 ? Type::kU16 : Type::kU32;
  const uint16_t guard = std::exchange(guard_, uint16_t{kTruePredicate});
  TRY(Emit({.op = Op::kSpecial, .type = width}, in));
  guard_ = guard;
  return in.dst;
}

Result<uint32_t> KernelLowering::PredicateDestination(const Operand& operand) {
  if (operand.kind == Operand::Kind::kName && operand.name == "_") return kSinkPredicate;
  ASSIGN_OR_RETURN(const Symbol symbol, Find(operand));
  if (symbol.kind != Symbol::Kind::kPredicate) {
    return Bad(Quoted(operand.name) + " is not a predicate");
  }
  return symbol.where;
}

Result<uint32_t> KernelLowering::PredicateSource(const Operand& operand, bool* negated) {
  if (operand.kind == Operand::Kind::kInteger) {
    *negated = operand.integer == 0;
    return kTruePredicate;
  }
  Operand plain = operand;
  plain.negated = false;
  ASSIGN_OR_RETURN(const Symbol symbol, Find(plain));
  if (symbol.kind != Symbol::Kind::kPredicate) {
    return Bad(Quoted(operand.name) + " is not a predicate");
  }
  *negated = operand.negated;
  return symbol.where;
}

// The address of a variable in its own space, as 64 bits.
Result<uint32_t> KernelLowering::AddressOf(const Symbol& symbol, uint64_t displacement) {
  Instruction in;
  in.imm = static_cast<int64_t>(symbol.offset + displacement);
  switch (symbol.kind) {
    case Symbol::Kind::kKernelParam:
    case Symbol::Kind::kLocal:
    case Symbol::Kind::kShared:
      return Constant(symbol.offset + displacement, true);
    case Symbol::Kind::kImage: {
      ASSIGN_OR_RETURN(in.dst, NewRow(Type::kU64));
      TRY(Emit({.op = Op::kImageAddress, .type = Type::kU64}, in));
      return in.dst;
    }
    case Symbol::Kind::kDynamicShared: {
      ASSIGN_OR_RETURN(in.a, ReadSpecial(Special::kDynamicSharedBase, Type::kU64));
      if (displacement == 0) return in.a;
      in.b = Constant(displacement, true);
      ASSIGN_OR_RETURN(in.dst, NewRow(Type::kU64));
      TRY(Emit({.op = Op::kAdd, .type = Type::kU64}, in));
      return in.dst;
    }
    case Symbol::Kind::kFunction:
      if (displacement != 0) return Bad("a function has no places");
      return Constant(symbol.offset, true);
    default:
      return Bad("expected a variable");
  }
}

Status KernelLowering::AddressOperand(const Operand& operand, Instruction* in,
                                      std::optional<Symbol>* symbol) {
  const bool element = operand.kind == Operand::Kind::kPlace && operand.indexed;
  if ((operand.kind != Operand::Kind::kAddress && !element) || !operand.component.empty() ||
      !operand.parts.empty()) {
    return Bad("expected an address in brackets");
  }
  in->imm = static_cast<int64_t>(operand.integer);
  if (operand.name.empty()) {
    in->a = Constant(0, true);
    return {};
  }
  ASSIGN_OR_RETURN(const Symbol found, FindName(operand.name));
  if (found.kind == Symbol::Kind::kFunction) return Bad("a function is no variable");
  if (found.kind == Symbol::Kind::kRegister) {
    const uint32_t bytes = TypeBytes(found.type);
    if (element) return Bad("a register has no elements");
    if (bytes != 4 && bytes != 8) return Bad("an address register has 32 or 64 bits");
    in->a = found.where;
    in->narrow = bytes == 4;
    return {};
  }
  ASSIGN_OR_RETURN(const uint64_t displacement, Displacement(operand, found));
  in->imm = static_cast<int64_t>(displacement);
  *symbol = found;
  ASSIGN_OR_RETURN(in->a, AddressOf(found, 0));
  return {};
}

}  // namespace tandem::ptx
