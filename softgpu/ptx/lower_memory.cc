// Lowering of moves, addresses, loads, stores and atomics.
#include "softgpu/ptx/lower.h"

namespace tandem::ptx {
namespace {

Type UnsignedOf(uint32_t bytes) {
  switch (bytes) {
    case 1:
      return Type::kU8;
    case 2:
      return Type::kU16;
    case 4:
      return Type::kU32;
    default:
      return Type::kU64;
  }
}

// The state space that an instruction names; none: generic.
std::optional<Declaration::Space> NamedSpace(const Modifiers& m) {
  using Space = Declaration::Space;
  static constexpr Space kSpaces[] = {Space::kGlobal, Space::kConst, Space::kShared, Space::kShared,
                                      Space::kLocal,  Space::kParam, Space::kParam,  Space::kParam};
  const std::optional<int> named = m.OneOf({"global", "const", "shared", "shared::cta", "local",
                                            "param", "param::entry", "param::func"});
  if (!named.has_value()) return std::nullopt;
  return kSpaces[*named];
}

}  // namespace

Status KernelLowering::Mov(const Statement& s, const Modifiers& m) {
  const Type type = m.type(0);
  TRY(NeedOperands(s, 2));
  if (s.operands[1].kind == Operand::Kind::kVector) return Pack(s, type, true);
  if (s.operands[0].kind == Operand::Kind::kVector) return Pack(s, type, false);
  Instruction in;
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], type));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], type));
  return Emit({.op = Op::kMov, .type = UnsignedOf(TypeBytes(type))}, in);
}

Status KernelLowering::Pack(const Statement& s, Type type, bool pack) {
  const std::vector<Operand>& parts = s.operands[pack ? 1 : 0].parts;
  const uint32_t bytes = TypeBytes(type), count = static_cast<uint32_t>(parts.size());
  if ((count != 2 && count != 4) || bytes % count != 0) return Bad("2 or 4 parts are expected");
  const Type part = UnsignedOf(bytes / count);
  Instruction in;
  in.count = static_cast<uint8_t>(count);
  if (pack) {
    uint32_t* refs[4] = {&in.a, &in.b, &in.c, &in.d};
    ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], type));
    for (uint32_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(*refs[i], Source(parts[i], part));
    }
  } else {
    uint32_t* refs[4] = {&in.dst, &in.b, &in.c, &in.d};
    ASSIGN_OR_RETURN(in.a, Source(s.operands[1], type));
    for (uint32_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(*refs[i], Destination(parts[i], part));
    }
  }
  return Emit({.op = pack ? Op::kPack : Op::kUnpack, .type = UnsignedOf(bytes), .from = part}, in);
}

Status KernelLowering::Cvta(const Statement& s, const Modifiers& m) {
  TRY(NeedOperands(s, 2));
  Instruction in;
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], Type::kU64));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], Type::kU64));
  ASSIGN_OR_RETURN(const Space space, SpaceOf(m, std::nullopt, false));
  if (space == Space::kGlobal) return Emit({.op = Op::kMov, .type = Type::kU64}, in);
  const uint64_t window = space == Space::kShared  ? kSharedWindow
                          : space == Space::kLocal ? kLocalWindow
                                                   : kParamWindow;
  constexpr uint64_t kInside = (uint64_t{1} << kWindowShift) - 1;
  const bool to = m.Has("to");
  in.b = Constant(to ? kInside : window << kWindowShift, true);
  return Emit({.op = to ? Op::kAnd : Op::kOr, .type = Type::kU64}, in);
}

// Where an access goes. A variable's name tells that too, and must say the same.
Result<Space> KernelLowering::SpaceOf(const Modifiers& m, const std::optional<Symbol>& symbol,
                                      bool write) const {
  using Named = Declaration::Space;
  std::optional<Named> named = NamedSpace(m);
  if (symbol.has_value()) {
    if (named.has_value() && *named != symbol->space) {
      return Bad("the variable lies in another state space");
    }
    named = symbol->space;
    if (write && (*named == Named::kConst || symbol->kind == Symbol::Kind::kKernelParam)) {
      return Bad("the variable can only be read");
    }
  }
  if (!named.has_value()) return Space::kGeneric;
  switch (*named) {
    case Named::kGlobal:
    case Named::kConst:
      return Space::kGlobal;
    case Named::kShared:
      return Space::kShared;
    case Named::kParam: {
      // Only a kernel's own parameters lie apart; those of calls are in local memory.
      const bool own =
          symbol.has_value() ? symbol->kind == Symbol::Kind::kKernelParam : function_->entry;
      return own ? Space::kParam : Space::kLocal;
    }
    default:
      return Space::kLocal;
  }
}

// The row of one loaded or stored register; all of a vector have the same width.
Result<uint32_t> KernelLowering::MemoryRegister(const Operand& operand, Type type, bool store,
                                                Type* width) {
  if (operand.kind == Operand::Kind::kName && operand.name == "_" && !store) return kSinkRow;
  ASSIGN_OR_RETURN(const Register reg, RegisterOf(operand));
  const uint32_t bytes = TypeBytes(reg.type);
  if (bytes < TypeBytes(type)) return Bad("the register is too narrow");
  if (*width != Type::kNone && TypeBytes(*width) != bytes) return Bad("mixed widths");
  *width = UnsignedOf(bytes);
  return reg.ref;
}

// The rows of what is loaded or stored, one value or a vector; their common width.
Result<Type> KernelLowering::MemoryValues(const Operand& value, Type type, bool store,
                                          Instruction* in) {
  Type width = Type::kNone;
  const bool vector = value.kind == Operand::Kind::kVector;
  uint32_t* refs[4] = {&in->dst, &in->b, &in->c, &in->d};
  const auto is_constant = [store](const Operand& part) {
    return store && (part.kind == Operand::Kind::kInteger || part.kind == Operand::Kind::kFloat);
  };
  for (int i = 0; i < in->count; ++i) {
    const Operand& part = vector ? value.parts[i] : value;
    if (is_constant(part)) continue;
    ASSIGN_OR_RETURN(*refs[i], MemoryRegister(part, type, store, &width));
  }
  if (width == Type::kNone) width = UnsignedOf(TypeBytes(type));
  // Constants take the width that the registers have.
  for (int i = 0; i < in->count; ++i) {
    const Operand& part = vector ? value.parts[i] : value;
    if (!is_constant(part)) continue;
    ASSIGN_OR_RETURN(const uint64_t bits, ImmediateBits(part, type));
    *refs[i] = Constant(bits, TypeBytes(width) == 8);
  }
  return width;
}

// A kernel's parameters are apart from all memory, and their bounds are known here.
Status KernelLowering::KernelParamLoad(const Symbol& param, Selector* selector, Instruction* in) {
  const uint64_t at = param.offset + static_cast<uint64_t>(in->imm);
  const uint64_t bytes = uint64_t{TypeBytes(selector->type)} * in->count;
  if (at > 65536 || at < param.offset || at + bytes > param.offset + param.size) {
    return Bad("outside the parameter");
  }
  if (at % bytes != 0) return Bad("a misaligned place in the parameter");
  selector->op = Op::kLoadParam;
  in->imm = static_cast<int64_t>(at);
  return {};
}

Status KernelLowering::Memory(const Statement& s, const Modifiers& m) {
  const bool store = m.form().op == Op::kStore;
  const bool hint = m.Has("L2::cache_hint");
  TRY(NeedOperands(s, hint ? 3 : 2));
  if (hint) TRY(CheckPolicy(s.operands[2]));
  Instruction in;
  std::optional<Symbol> symbol;
  TRY(AddressOperand(s.operands[store ? 0 : 1], &in, &symbol));
  const Operand& value = s.operands[store ? 1 : 0];
  const bool is_vector = value.kind == Operand::Kind::kVector;
  in.count = m.Has("v4") ? 4 : m.Has("v2") ? 2 : 1;
  if (is_vector ? value.parts.size() != in.count : in.count != 1) {
    return Bad("the operand does not fit the vector");
  }
  if (in.count == 4 && TypeBytes(m.type(0)) == 8) return Bad("at most 16 bytes at once");
  Selector selector{.op = m.form().op, .type = m.type(0), .count = in.count};
  ASSIGN_OR_RETURN(selector.from, MemoryValues(value, selector.type, store, &in));
  ASSIGN_OR_RETURN(in.space, SpaceOf(m, symbol, store));
  if (symbol.has_value() && symbol->kind == Symbol::Kind::kKernelParam) {
    TRY(KernelParamLoad(*symbol, &selector, &in));
  }
  in.polls = !store && m.OneOf({"volatile", "relaxed", "acquire", "cv"}).has_value();
  return Emit(selector, in);
}

Status KernelLowering::Atom(const Statement& s, const Modifiers& m) {
  const bool red = s.name == "red";
  const Type type = m.type(0);
  Instruction in;
  in.atomic = static_cast<Atomic>(
      *m.OneOf({"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"}));
  const bool cas = in.atomic == Atomic::kCas;
  in.polls = cas || in.atomic == Atomic::kExch;
  const bool hint = m.Has("L2::cache_hint");
  TRY(NeedOperands(s, (red ? 2 : 3) + (cas ? 1 : 0) + (hint ? 1 : 0)));
  if (hint) TRY(CheckPolicy(s.operands.back()));
  size_t next = 0;
  if (!red) {
    ASSIGN_OR_RETURN(in.dst, Destination(s.operands[next++], type));
  }
  std::optional<Symbol> symbol;
  TRY(AddressOperand(s.operands[next++], &in, &symbol));
  ASSIGN_OR_RETURN(in.space, SpaceOf(m, symbol, true));
  ASSIGN_OR_RETURN(in.b, Source(s.operands[next++], type));
  if (cas) {
    ASSIGN_OR_RETURN(in.c, Source(s.operands[next++], type));
  }
  return Emit({.op = Op::kAtom, .type = type, .system = m.Has("sys")}, in);
}

// Fences and hints do nothing here, but must be right.
Status KernelLowering::Nothing(const Statement& s, const Modifiers& m) {
  const std::string_view kinds = m.form().operands;
  TRY(NeedOperands(s, kinds.size()));
  for (size_t i = 0; i < kinds.size(); ++i) {
    Instruction unused;
    std::optional<Symbol> symbol;
    if (kinds[i] == 'a') {
      TRY(AddressOperand(s.operands[i], &unused, &symbol));
    } else {
      ASSIGN_OR_RETURN(unused.a, Source(s.operands[i], Type::kU32));
    }
  }
  return {};
}

}  // namespace tandem::ptx
