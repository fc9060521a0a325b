// Lowering of arithmetic, bit operations, comparison, selection and conversion.
#include "softgpu/ptx/lower.h"

namespace tandem::ptx {
namespace {

Type DoubleWidth(Type type) {
  switch (type) {
    case Type::kU16:
      return Type::kU32;
    case Type::kS16:
      return Type::kS32;
    case Type::kU32:
      return Type::kU64;
    case Type::kS32:
      return Type::kS64;
    default:
      return Type::kNone;
  }
}

template <class Enum>
Enum EnumOr(std::optional<int> index, Enum otherwise) {
  return index.has_value() ? static_cast<Enum>(*index) : otherwise;
}

Round RoundOf(const Modifiers& m) {
  return EnumOr(m.OneOf({"rn", "rz", "rm", "rp"}), Round::kNearest);
}

Logic LogicOf(const Modifiers& m) {
  const std::optional<int> logic = m.OneOf({"and", "or", "xor"});
  return logic.has_value() ? static_cast<Logic>(*logic + 1) : Logic::kNone;
}

// Facts about a few of the forms, used only here.
void FillInstruction(const Statement& s, const Modifiers& m, Instruction* in) {
  in->carry_in = s.name.ends_with('c');
  in->carry_out = m.Has("cc");
  in->sat = m.Has("sat");
  in->relu = m.Has("relu");
  in->nan = m.Has("NaN");
  in->xorsign = m.Has("xorsign");
  in->high = m.Has("hi");
  if (m.form().op == Op::kTestp) {
    in->test = EnumOr(
        m.OneOf({"finite", "infinite", "number", "notanumber", "normal", "subnormal"}), Test());
  } else if (m.form().op == Op::kPrmt) {
    const auto mode = m.OneOf({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
    in->permute = mode.has_value() ? static_cast<Permute>(*mode + 1) : Permute::kIndex;
  }
}

// What set writes where the comparison holds.
int64_t TrueOf(Type type) {
  switch (type) {
    case Type::kF32:
      return 0x3f800000;
    case Type::kF16:
    case Type::kF16x2:
      return 0x3c00;
    case Type::kBf16:
    case Type::kBf16x2:
      return 0x3f80;
    case Type::kU16:
    case Type::kS16:
      return 0xffff;
    default:
      return -1;
  }
}

}  // namespace

// One source of a plain instruction; `kind` is its letter in the form.
Status KernelLowering::PlainSource(const Operand& operand, char kind, const Modifiers& m,
                                   Instruction* in, uint32_t* ref) {
  if (kind == 'i') {
    if (operand.kind != Operand::Kind::kInteger || operand.integer > 255) {
      return Bad("expected a constant from 0 to 255");
    }
    in->table = static_cast<uint8_t>(operand.integer);
    return {};
  }
  if (kind == 'p') {
    bool* negate = ref == &in->a ? &in->negate_a : ref == &in->b ? &in->negate_b : &in->negate_c;
    ASSIGN_OR_RETURN(*ref, PredicateSource(operand, negate));
    return {};
  }
  const Type type = kind == 'u'   ? Type::kU32
                    : kind == 'w' ? DoubleWidth(m.type(0))
                                  : m.type(kind == 's' ? 1 : 0);
  ASSIGN_OR_RETURN(*ref, Source(operand, type));
  return {};
}

// Instructions whose operands are all registers, predicates or constants, one after the other.
Status KernelLowering::Plain(const Statement& s, const Modifiers& m) {
  const std::string_view kinds = m.form().operands;
  TRY(NeedOperands(s, kinds.size()));
  Selector selector{.op = m.form().op, .type = m.type(0), .from = m.type(1), .round = RoundOf(m)};
  const bool single = selector.type == Type::kF32 || selector.from == Type::kF32;
  selector.ftz = single && (m.Has("ftz") || symbols_.flushes);
  const bool approximate = m.Has("approx") || (m.form().old && single);
  selector.more = m.Has("relu") || m.Has("xorsign") || (m.Has("ftz") && !single) ||
                  (selector.op == Op::kDiv && approximate);
  selector.sat = m.Has("sat");
  selector.clamp = m.Has("clamp") || m.Has("shiftamt");
  selector.nan = m.Has("NaN");
  Instruction in;
  in.round = selector.round;
  FillInstruction(s, m, &in);
  in.ftz = m.Has("ftz") || selector.ftz;
  if (kinds[0] == 'p') {
    ASSIGN_OR_RETURN(in.dst, PredicateDestination(s.operands[0]));
  } else {
    const Type result = kinds[0] == 'u'   ? Type::kU32
                        : kinds[0] == 'w' ? DoubleWidth(selector.type)
                                          : selector.type;
    ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], result));
  }
  uint32_t* refs[] = {&in.a, &in.b, &in.c, &in.d};
  for (size_t i = 1; i < kinds.size(); ++i) {
    TRY(PlainSource(s.operands[i], kinds[i], m, &in, refs[i - 1]));
  }
  return Emit(selector, in);
}

// lop3.or.b32 d|p, a, b, c, table, q: p tells whether d is not 0, or q.
Status KernelLowering::Lop3(const Statement& s, const Modifiers& m) {
  TRY(NeedOperands(s, 6));
  const Operand& target = s.operands[0];
  if (target.kind != Operand::Kind::kPair) return Bad("a predicate is missing");
  Instruction in, test;
  ASSIGN_OR_RETURN(in.dst, target.parts[0].name == "_" ? NewRow(Type::kU32)
                                                       : Destination(target.parts[0], Type::kU32));
  uint32_t* refs[] = {&in.a, &in.b, &in.c};
  for (size_t i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(*refs[i], Source(s.operands[i + 1], Type::kU32));
  }
  TRY(PlainSource(s.operands[4], 'i', m, &in, &in.d));
  TRY(Emit({.op = Op::kLop3, .type = Type::kU32}, in));
  test.a = in.dst;
  test.b = Constant(0, false);
  test.d = kSinkPredicate;
  test.logic = LogicOf(m);
  ASSIGN_OR_RETURN(test.c, PredicateSource(s.operands[5], &test.negate_c));
  ASSIGN_OR_RETURN(test.dst, PredicateDestination(target.parts[1]));
  return Emit({.op = Op::kSetp, .from = Type::kU32, .compare = Compare::kNe}, test);
}

// What setp and set have in common. The compared type is in `from`.
Status KernelLowering::Comparison(const Statement& s, const Modifiers& m, Selector* selector,
                                  Instruction* in) {
  static constexpr Compare kUnsigned[] = {Compare::kLt, Compare::kLe, Compare::kGt, Compare::kGe};
  const std::optional<int> other = m.OneOf({"lo", "ls", "hi", "hs"});
  selector->compare = other.has_value()
                          ? kUnsigned[*other]
                          : EnumOr(m.OneOf({"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu",
                                            "leu", "gtu", "geu", "num", "nan"}),
                                   Compare::kEq);
  selector->ftz = m.Has("ftz") || (symbols_.flushes && selector->from == Type::kF32);
  in->ftz = selector->ftz;
  in->compare = selector->compare;
  in->logic = LogicOf(m);
  const bool combined = in->logic != Logic::kNone;
  TRY(NeedOperands(s, combined ? 4 : 3));
  ASSIGN_OR_RETURN(in->a, Source(s.operands[1], selector->from));
  ASSIGN_OR_RETURN(in->b, Source(s.operands[2], selector->from));
  in->c = kTruePredicate;
  if (combined) {
    ASSIGN_OR_RETURN(in->c, PredicateSource(s.operands[3], &in->negate_c));
  }
  return {};
}

Status KernelLowering::Setp(const Statement& s, const Modifiers& m) {
  Selector selector{.op = Op::kSetp, .from = m.type(0)};
  Instruction in;
  TRY(Comparison(s, m, &selector, &in));
  const Operand& target = s.operands[0];
  const bool pair = target.kind == Operand::Kind::kPair;
  ASSIGN_OR_RETURN(in.dst, PredicateDestination(pair ? target.parts[0] : target));
  in.d = kSinkPredicate;
  if (pair) {
    ASSIGN_OR_RETURN(in.d, PredicateDestination(target.parts[1]));
  }
  const bool two = selector.from == Type::kF16x2 || selector.from == Type::kBf16x2;
  if (two && !pair) return Bad("a pair of predicates is expected");
  return Emit(selector, in);
}

Status KernelLowering::Set(const Statement& s, const Modifiers& m) {
  Selector selector{.op = Op::kSet, .type = m.type(0), .from = m.type(1)};
  Instruction in;
  TRY(Comparison(s, m, &selector, &in));
  in.imm = TrueOf(selector.type);
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], selector.type));
  return Emit(selector, in);
}

// A width that differs between the type and the register costs a second conversion: wide sources
// are cut first, wide destinations extended last.
Status KernelLowering::Cvt(const Statement& s, const Modifiers& m) {
  Selector selector{.op = Op::kCvt, .type = m.type(0), .from = m.type(1)};
  const bool from_float = IsFloat(selector.from), to_float = IsFloat(selector.type);
  const std::optional<int> integral = m.OneOf({"rni", "rzi", "rmi", "rpi"});
  selector.round = integral.has_value() ? static_cast<Round>(*integral) : RoundOf(m);
  selector.to_integral = integral.has_value() && to_float;
  selector.ftz = m.Has("ftz") ||
                 (symbols_.flushes && (selector.type == Type::kF32 || selector.from == Type::kF32));
  // A float turned integer saturates anyway.
  selector.sat = m.Has("sat") && (to_float || !from_float);
  TRY(NeedOperands(s, 2));
  Instruction in;
  in.round = selector.round;
  in.ftz = selector.ftz;
  in.sat = selector.sat;
  ASSIGN_OR_RETURN(in.a, ConvertSource(s.operands[1], selector.from));
  ASSIGN_OR_RETURN(const Register target, RegisterOf(s.operands[0]));
  const uint32_t result_bytes = TypeBytes(selector.type), bytes = TypeBytes(target.type);
  if (bytes == result_bytes) {
    in.dst = target.ref;
    return Emit(selector, in);
  }
  if (bytes < result_bytes) return Bad("the destination is too narrow");
  ASSIGN_OR_RETURN(in.dst, NewRow(selector.type));
  TRY(Emit(selector, in));
  return Extend(in.dst, selector.type, target);
}

// cvt that makes one register of several sources, or with .relu, .satfinite or .rna.
Status KernelLowering::CvtPack(const Statement& s, const Modifiers& m) {
  const std::string_view kinds = m.form().operands;
  TRY(NeedOperands(s, kinds.size()));
  Instruction in;
  in.round = RoundOf(m);
  in.away = m.Has("rna");
  in.relu = m.Has("relu");
  in.finite = m.Has("satfinite");
  const bool ints = m.Has("pack");
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], ints ? Type::kU32 : m.type(0)));
  uint32_t* refs[] = {&in.a, &in.b, &in.c};
  for (size_t i = 1; i < kinds.size(); ++i) {
    ASSIGN_OR_RETURN(*refs[i - 1], Source(s.operands[i], ints ? Type::kU32 : Type::kF32));
  }
  return Emit({.op = Op::kCvtPack, .type = m.type(0)}, in);
}

// Widens a result to the register that is to hold it.
Status KernelLowering::Extend(uint32_t row, Type type, const Register& target) {
  static constexpr Type kUnsigned[] = {Type::kU16, Type::kU32, Type::kU64};
  static constexpr Type kSigned[] = {Type::kS16, Type::kS32, Type::kS64};
  const uint32_t bytes = TypeBytes(target.type);
  const int width = bytes == 2 ? 0 : bytes == 4 ? 1 : 2;
  const bool sign = IsSigned(type);
  if (type == Type::kF16 || type == Type::kBf16) type = Type::kU16;
  if (type == Type::kF32) type = Type::kU32;
  Instruction extend;
  extend.a = row;
  extend.dst = target.ref;
  return Emit({.op = Op::kCvt, .type = sign ? kSigned[width] : kUnsigned[width], .from = type},
              extend);
}

Result<uint32_t> KernelLowering::ConvertSource(const Operand& operand, Type type) {
  if (operand.kind != Operand::Kind::kName || !operand.component.empty()) {
    return Source(operand, type);
  }
  const Result<Symbol> symbol = Find(operand);
  if (!symbol.ok() || symbol.value().kind != Symbol::Kind::kRegister) return Source(operand, type);
  const uint32_t bytes = TypeBytes(symbol.value().type), wanted = TypeBytes(type);
  if (bytes < wanted) return Bad("the source is too narrow");
  if (bytes < 8 || wanted == 8) return symbol.value().where;
  Instruction cut;
  cut.a = symbol.value().where;
  ASSIGN_OR_RETURN(cut.dst, NewRow(Type::kU32));
  TRY(Emit({.op = Op::kCvt, .type = Type::kU32, .from = Type::kU64}, cut));
  return cut.dst;
}

}  // namespace tandem::ptx
