// Lowering of moves, addresses, loads, stores and atomics.
#include "src/softgpu/ptx/lower.h"

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

// Caching, ordering and scope: blocks run one after the other, so that all orders are alike.
void SkipHints(Modifiers& m) {
  static constexpr std::string_view kHints[] = {"volatile",
                                                "relaxed",
                                                "acquire",
                                                "release",
                                                "acq_rel",
                                                "weak",
                                                "cta",
                                                "cluster",
                                                "gpu",
                                                "sys",
                                                "ca",
                                                "cg",
                                                "cs",
                                                "lu",
                                                "cv",
                                                "wb",
                                                "wt",
                                                "nc",
                                                "mmio",
                                                "noftz",
                                                "unified",
                                                "L1::evict_normal",
                                                "L1::evict_unchanged",
                                                "L1::evict_first",
                                                "L1::evict_last",
                                                "L1::no_allocate",
                                                "L2::64B",
                                                "L2::128B",
                                                "L2::256B"};
  for (const std::string_view hint : kHints) m.Take(hint);
}

Space TakeSpace(Modifiers& m) {
  static constexpr Space kSpaces[] = {Space::kGlobal, Space::kGlobal, Space::kShared,
                                      Space::kShared, Space::kLocal,  Space::kParam,
                                      Space::kParam,  Space::kParam};
  const std::optional<int> named = m.TakeOne({"global", "const", "shared", "shared::cta", "local",
                                              "param", "param::entry", "param::func"});
  return named.has_value() ? kSpaces[*named] : Space::kGeneric;
}

}  // namespace

Status KernelLowering::Mov(const Statement& s, Modifiers& m) {
  const Type type = m.TakeType();
  TRY(NeedType(type));
  TRY(NeedNoMore(m));
  TRY(NeedOperands(s, 2));
  if (type == Type::kPred) return PredicateLogic(Op::kMov, s);
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
  in.vector = static_cast<uint8_t>(count);
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

Status KernelLowering::Cvta(const Statement& s, Modifiers& m) {
  const bool to = m.Take("to");
  const std::optional<int> space = m.TakeOne({"global", "const", "shared", "local", "param"});
  const Type type = m.TakeType();
  if (!space.has_value()) return Bad("a state space is missing");
  if (TypeBytes(type) != 8) return Bad("an address has 64 bits");
  TRY(NeedNoMore(m));
  TRY(NeedOperands(s, 2));
  Instruction in;
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], type));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], type));
  if (*space < 2) return Emit({.op = Op::kMov, .type = Type::kU64}, in);
  const uint64_t windows[] = {0, 0, kSharedWindow, kLocalWindow,
                              function_->entry ? kParamWindow : kLocalWindow};
  const uint64_t window = windows[*space] << kWindowShift;
  in.b = Constant(to ? (uint64_t{1} << kWindowShift) - 1 : window, true);
  return Emit({.op = to ? Op::kAnd : Op::kOr, .type = Type::kU64}, in);
}

Status KernelLowering::Load(const Statement& s, Modifiers& m) {
  return Memory(s, m, false);
}
Status KernelLowering::Store(const Statement& s, Modifiers& m) {
  return Memory(s, m, true);
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
  for (int i = 0; i < in->vector; ++i) {
    const Operand& part = vector ? value.parts[i] : value;
    if (is_constant(part)) continue;
    ASSIGN_OR_RETURN(*refs[i], MemoryRegister(part, type, store, &width));
  }
  if (width == Type::kNone) width = UnsignedOf(TypeBytes(type));
  // Constants take the width that the registers have.
  for (int i = 0; i < in->vector; ++i) {
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
  const uint64_t bytes = uint64_t{TypeBytes(selector->type)} * in->vector;
  if (at > 65536 || at < param.offset || at + bytes > param.offset + param.size) {
    return Bad("outside the parameter");
  }
  selector->op = Op::kLoadParam;
  in->imm = static_cast<int64_t>(at);
  return {};
}

Status KernelLowering::Memory(const Statement& s, Modifiers& m, bool store) {
  SkipHints(m);
  Space space = TakeSpace(m);
  const std::optional<int> vector = m.TakeOne({"v2", "v4"});
  const Type type = m.TakeType();
  TRY(NeedType(type));
  if (type == Type::kPred) return Bad("a predicate has no place in memory");
  TRY(NeedNoMore(m));
  TRY(NeedOperands(s, 2));

  Instruction in;
  std::optional<Symbol> symbol;
  TRY(AddressOperand(s.operands[store ? 0 : 1], &in, &symbol));
  const Operand& value = s.operands[store ? 1 : 0];
  const bool is_vector = value.kind == Operand::Kind::kVector;
  in.vector = vector.has_value() ? (*vector == 0 ? 2 : 4) : 1;
  if (is_vector != vector.has_value() || (is_vector && value.parts.size() != in.vector)) {
    return Bad("the operand does not fit the vector");
  }
  Selector selector{.op = store ? Op::kStore : Op::kLoad, .type = type};
  ASSIGN_OR_RETURN(selector.from, MemoryValues(value, type, store, &in));

  if (space == Space::kParam && !function_->entry) space = Space::kLocal;
  if (symbol.has_value() && symbol->kind == Symbol::Kind::kLocal) {
    space = Space::kLocal;
  } else if (symbol.has_value() && symbol->kind == Symbol::Kind::kKernelParam) {
    if (store || space != Space::kParam) return Bad("a kernel's parameter can only be loaded");
    TRY(KernelParamLoad(*symbol, &selector, &in));
  } else if (symbol.has_value() && space == Space::kGeneric) {
    return Bad("a variable's name needs its state space");
  }
  in.mode = static_cast<uint8_t>(space);
  return Emit(selector, in);
}

Status KernelLowering::Atom(const Statement& s, Modifiers& m) {
  const bool red = s.name == "red";
  SkipHints(m);
  Instruction in;
  Space space = Space::kGeneric;
  if (const std::optional<int> named = m.TakeOne({"global", "shared", "shared::cta"})) {
    space = *named == 0 ? Space::kGlobal : Space::kShared;
  }
  const std::optional<int> op =
      m.TakeOne({"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"});
  if (!op.has_value()) return Bad("an operation is missing");
  const Atomic atomic = static_cast<Atomic>(*op);
  const Type type = m.TakeType();
  TRY(NeedType(type));
  TRY(NeedNoMore(m));
  const bool is_float = type == Type::kF32 || type == Type::kF64;
  const bool counts = atomic == Atomic::kInc || atomic == Atomic::kDec;
  if (TypeBytes(type) < 4 ||
      (is_float && atomic != Atomic::kAdd && atomic != Atomic::kMin && atomic != Atomic::kMax &&
       atomic != Atomic::kExch) ||
      (counts && type != Type::kU32)) {
    return Bad("no such operation on this type");
  }
  const bool cas = atomic == Atomic::kCas;
  TRY(NeedOperands(s, (red ? 2 : 3) + (cas ? 1 : 0)));
  size_t next = 0;
  if (!red) {
    ASSIGN_OR_RETURN(in.dst, Destination(s.operands[next++], type));
  }
  std::optional<Symbol> symbol;
  TRY(AddressOperand(s.operands[next++], &in, &symbol));
  if (symbol.has_value() && space == Space::kGeneric) {
    return Bad("a variable's name needs its state space");
  }
  ASSIGN_OR_RETURN(in.b, Source(s.operands[next++], type));
  if (cas) {
    ASSIGN_OR_RETURN(in.c, Source(s.operands[next++], type));
  }
  in.mode = static_cast<uint8_t>(atomic);
  in.flags = static_cast<uint8_t>(space);
  return Emit({.op = Op::kAtom, .type = type}, in);
}

Status KernelLowering::Nothing(const Statement&, Modifiers&) {
  return {};
}

}  // namespace tandem::ptx
