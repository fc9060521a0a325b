// Lowering of arithmetic, bit operations, comparison and selection.
#include "src/softgpu/ptx/lower.h"

namespace tandem::ptx {
namespace {

bool IsFloat(Type type) {
  return type == Type::kF16 || type == Type::kF32 || type == Type::kF64;
}

bool IsSigned(Type type) {
  return type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}

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

struct NamedOp {
  std::string_view name;
  Op op;
  uint8_t operands;
};

const NamedOp* FindOp(std::string_view name) {
  static constexpr NamedOp kOps[] = {
      {"add", Op::kAdd, 2},       {"sub", Op::kSub, 2},           {"mul", Op::kMulLo, 2},
      {"mad", Op::kMadLo, 3},     {"fma", Op::kFma, 3},           {"div", Op::kDiv, 2},
      {"rem", Op::kRem, 2},       {"abs", Op::kAbs, 1},           {"neg", Op::kNeg, 1},
      {"min", Op::kMin, 2},       {"max", Op::kMax, 2},           {"mul24", Op::kMul24Lo, 2},
      {"mad24", Op::kMad24Lo, 3}, {"sad", Op::kSad, 3},           {"rcp", Op::kRcp, 1},
      {"sqrt", Op::kSqrt, 1},     {"rsqrt", Op::kRsqrt, 1},       {"ex2", Op::kEx2, 1},
      {"lg2", Op::kLg2, 1},       {"sin", Op::kSin, 1},           {"cos", Op::kCos, 1},
      {"tanh", Op::kTanh, 1},     {"copysign", Op::kCopysign, 2}, {"and", Op::kAnd, 2},
      {"or", Op::kOr, 2},         {"xor", Op::kXor, 2},           {"not", Op::kNot, 1},
      {"cnot", Op::kCnot, 1},     {"shl", Op::kShl, 2},           {"shr", Op::kShr, 2},
      {"popc", Op::kPopc, 1},     {"clz", Op::kClz, 1},           {"brev", Op::kBrev, 1},
      {"bfind", Op::kBfind, 1}};
  for (const NamedOp& op : kOps) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

}  // namespace

Status KernelLowering::NeedType(Type type) const {
  if (type != Type::kNone) return {};
  return Bad("a supported type is missing");
}

Status KernelLowering::Arithmetic(const Statement& s, Modifiers& m) {
  if (s.name == "add" || s.name == "sub" || s.name == "mad") {
    Modifiers copy = m;
    if (copy.Take("cc")) return Carry(s, m);
  }
  const NamedOp* op = FindOp(s.name);
  const Type type = m.TakeType();
  TRY(NeedType(type));
  TRY(NeedOperands(s, op->operands + 1u));
  if (IsFloat(type)) return FloatArithmetic(op->op, type, s, m);
  return IntegerArithmetic(op->op, type, s, m);
}

Status KernelLowering::FloatArithmetic(Op op, Type type, const Statement& s, Modifiers& m) {
  Selector selector{.op = op == Op::kMadLo ? Op::kFma : op, .type = type};
  const std::optional<int> round = m.TakeOne({"rn", "rz", "rm", "rp"});
  const bool approximate = m.TakeOne({"approx", "full"}).has_value();
  if (round.has_value() && approximate) return Bad("both a rounding and .approx");
  if (round.has_value()) selector.round = static_cast<Round>(*round);
  selector.ftz = m.Take("ftz");
  selector.sat = m.Take("sat");
  selector.nan = m.Take("NaN");
  m.Take("noftz");
  if (type == Type::kF64 && approximate) selector.ftz = false;  // rcp.approx.ftz.f64
  Instruction in;
  in.mode = static_cast<uint8_t>(selector.round);
  TRY(NeedNoMore(m));
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], type));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], type));
  if (s.operands.size() > 2) {
    ASSIGN_OR_RETURN(in.b, Source(s.operands[2], type));
  }
  if (s.operands.size() > 3) {
    ASSIGN_OR_RETURN(in.c, Source(s.operands[3], type));
  }
  return Emit(selector, in);
}

Status KernelLowering::IntegerArithmetic(Op op, Type type, const Statement& s, Modifiers& m) {
  Selector selector{.op = op, .type = type};
  const std::optional<int> part = m.TakeOne({"lo", "hi", "wide"});
  selector.sat = m.Take("sat");
  if (part.has_value()) {
    static constexpr Op kParts[4][3] = {{Op::kMulLo, Op::kMulHi, Op::kMulWide},
                                        {Op::kMadLo, Op::kMadHi, Op::kMadWide},
                                        {Op::kMul24Lo, Op::kMul24Hi, Op::kNone},
                                        {Op::kMad24Lo, Op::kMad24Hi, Op::kNone}};
    bool known = false;
    for (const auto& row : kParts) {
      if (row[0] != op) continue;
      selector.op = row[*part];
      known = true;
    }
    if (!known) return Bad("unsupported modifier");
  } else if (op == Op::kMulLo || op == Op::kMadLo) {
    return Bad("one of .lo, .hi and .wide is missing");
  }
  TRY(NeedNoMore(m));
  const bool wide = selector.op == Op::kMulWide || selector.op == Op::kMadWide;
  const Type result = wide ? DoubleWidth(type) : type;
  TRY(NeedType(result));
  Instruction in;
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], result));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], type));
  if (s.operands.size() > 2) {
    ASSIGN_OR_RETURN(in.b, Source(s.operands[2], type));
  }
  if (s.operands.size() > 3) {
    ASSIGN_OR_RETURN(in.c, Source(s.operands[3], result));
  }
  return Emit(selector, in);
}

Status KernelLowering::Carry(const Statement& s, Modifiers& m) {
  const bool mad = s.name.starts_with("mad");
  const Type type = m.TakeType();
  TRY(NeedType(type));
  Selector selector{.op = s.name.starts_with("sub") ? Op::kSubBorrow : Op::kAddCarry, .type = type};
  if (mad) {
    const std::optional<int> part = m.TakeOne({"lo", "hi"});
    if (!part.has_value()) return Bad("one of .lo and .hi is missing");
    selector.op = *part == 0 ? Op::kMadLoCarry : Op::kMadHiCarry;
  }
  Instruction in;
  if (s.name.ends_with('c')) in.flags |= kCarryIn;
  if (m.Take("cc")) in.flags |= kCarryOut;
  in.mode = IsSigned(type) ? 1 : 0;
  TRY(NeedNoMore(m));
  TRY(NeedOperands(s, mad ? 4 : 3));
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], type));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], type));
  ASSIGN_OR_RETURN(in.b, Source(s.operands[2], type));
  if (mad) {
    ASSIGN_OR_RETURN(in.c, Source(s.operands[3], type));
  }
  return Emit(selector, in);
}

Status KernelLowering::PredicateLogic(Op op, const Statement& s) {
  static constexpr std::pair<Op, Op> kOps[] = {{Op::kAnd, Op::kPredAnd},
                                               {Op::kOr, Op::kPredOr},
                                               {Op::kXor, Op::kPredXor},
                                               {Op::kNot, Op::kPredNot},
                                               {Op::kMov, Op::kPredMov}};
  Selector selector;
  for (const auto& [plain, predicate] : kOps) {
    if (plain == op) selector.op = predicate;
  }
  if (selector.op == Op::kNone) return Bad("no such operation on predicates");
  Instruction in;
  bool negated = false;
  ASSIGN_OR_RETURN(in.dst, PredicateDestination(s.operands[0]));
  ASSIGN_OR_RETURN(in.a, PredicateSource(s.operands[1], &negated));
  if (negated) in.flags |= kNegateA;
  in.b = kTruePredicate;
  if (s.operands.size() > 2) {
    ASSIGN_OR_RETURN(in.b, PredicateSource(s.operands[2], &negated));
    if (negated) in.flags |= kNegateB;
  }
  return Emit(selector, in);
}

Status KernelLowering::Bitwise(const Statement& s, Modifiers& m) {
  const NamedOp* op = FindOp(s.name);
  Selector selector{.op = op->op, .type = m.TakeType()};
  TRY(NeedType(selector.type));
  selector.clamp = op->op == Op::kBfind && m.Take("shiftamt");
  TRY(NeedNoMore(m));
  TRY(NeedOperands(s, op->operands + 1u));
  if (selector.type == Type::kPred) return PredicateLogic(op->op, s);
  const bool counts = op->op == Op::kPopc || op->op == Op::kClz || op->op == Op::kBfind;
  const bool shift = op->op == Op::kShl || op->op == Op::kShr;
  Instruction in;
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], counts ? Type::kU32 : selector.type));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], selector.type));
  if (s.operands.size() > 2) {
    ASSIGN_OR_RETURN(in.b, Source(s.operands[2], shift ? Type::kU32 : selector.type));
  }
  return Emit(selector, in);
}

// shf, prmt, lop3, bfe, bfi.
Status KernelLowering::BitField(const Statement& s, Modifiers& m) {
  Selector selector;
  Instruction in;
  const bool lop3 = s.name == "lop3", bfi = s.name == "bfi", bfe = s.name == "bfe";
  if (s.name == "shf") {
    const std::optional<int> side = m.TakeOne({"l", "r"});
    if (!side.has_value()) return Bad("one of .l and .r is missing");
    selector.op = *side == 0 ? Op::kShfLeft : Op::kShfRight;
    const std::optional<int> mode = m.TakeOne({"wrap", "clamp"});
    if (!mode.has_value()) return Bad("one of .wrap and .clamp is missing");
    selector.clamp = *mode == 1;
  } else {
    selector.op = lop3 ? Op::kLop3 : bfi ? Op::kBfi : bfe ? Op::kBfe : Op::kPrmt;
  }
  const Type type = selector.type = m.TakeType();
  TRY(NeedType(type));
  if (selector.op == Op::kPrmt) {
    const std::optional<int> mode = m.TakeOne({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
    in.mode = mode.has_value() ? static_cast<uint8_t>(*mode + 1) : 0;
  }
  TRY(NeedNoMore(m));
  if (!bfi && !bfe && TypeBytes(type) != 4) return Bad("only 32-bit types are supported");
  TRY(NeedOperands(s, lop3 || bfi ? 5 : 4));
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], type));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], type));
  ASSIGN_OR_RETURN(in.b, Source(s.operands[2], bfe ? Type::kU32 : type));
  ASSIGN_OR_RETURN(in.c, Source(s.operands[3], Type::kU32));
  if (bfi) {
    ASSIGN_OR_RETURN(in.d, Source(s.operands[4], Type::kU32));
  }
  if (lop3) {
    const Operand& table = s.operands[4];
    if (table.kind != Operand::Kind::kInteger || table.integer > 255) return Bad("a bad table");
    in.mode = static_cast<uint8_t>(table.integer);
  }
  return Emit(selector, in);
}

// The comparison, .and/.or/.xor and .ftz of setp and set. The compared type is in `from`.
Status KernelLowering::TakeComparison(Modifiers& m, Selector* selector, Instruction* in) {
  const std::optional<int> compare = m.TakeOne(
      {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
  if (compare.has_value()) {
    selector->compare = static_cast<Compare>(*compare);
  } else {
    static constexpr Compare kUnsigned[] = {Compare::kLt, Compare::kLe, Compare::kGt, Compare::kGe};
    const std::optional<int> other = m.TakeOne({"lo", "ls", "hi", "hs"});
    if (!other.has_value()) return Bad("a comparison is missing");
    if (IsSigned(selector->from) || IsFloat(selector->from)) return Bad("an unsigned comparison");
    selector->compare = kUnsigned[*other];
  }
  const std::optional<int> logic = m.TakeOne({"and", "or", "xor"});
  if (logic.has_value()) in->mode = static_cast<uint8_t>(*logic + 1);
  selector->ftz = m.Take("ftz");
  TRY(NeedNoMore(m));
  in->c = kTruePredicate;
  const size_t count = logic.has_value() ? 4 : 3;
  TRY(NeedOperands(*statement_, count));
  if (count == 4) {
    bool negated = false;
    ASSIGN_OR_RETURN(in->c, PredicateSource(statement_->operands[3], &negated));
    if (negated) in->flags |= kSwapNegated;
  }
  ASSIGN_OR_RETURN(in->a, Source(statement_->operands[1], selector->from));
  ASSIGN_OR_RETURN(in->b, Source(statement_->operands[2], selector->from));
  return {};
}

Status KernelLowering::Setp(const Statement& s, Modifiers& m) {
  Selector selector{.op = Op::kSetp, .from = m.TakeType()};
  TRY(NeedType(selector.from));
  Instruction in;
  TRY(TakeComparison(m, &selector, &in));
  const Operand& target = s.operands[0];
  const bool pair = target.kind == Operand::Kind::kPair;
  ASSIGN_OR_RETURN(in.dst, PredicateDestination(pair ? target.parts[0] : target));
  in.d = kSinkPredicate;
  if (pair) {
    ASSIGN_OR_RETURN(in.d, PredicateDestination(target.parts[1]));
  }
  return Emit(selector, in);
}

Status KernelLowering::Set(const Statement& s, Modifiers& m) {
  Selector selector{.op = Op::kSet, .type = m.TakeType()};
  selector.from = m.TakeType();
  TRY(NeedType(selector.from));
  if (TypeBytes(selector.type) != 4) return Bad("the result must have 32 bits");
  Instruction in;
  TRY(TakeComparison(m, &selector, &in));
  if (selector.type == Type::kF32) in.vector = 2;
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], selector.type));
  return Emit(selector, in);
}

// selp and slct.
Status KernelLowering::Selp(const Statement& s, Modifiers& m) {
  const bool slct = s.name == "slct";
  Selector selector{.op = slct ? Op::kSlct : Op::kSelp, .type = m.TakeType()};
  TRY(NeedType(selector.type));
  if (slct) {
    selector.ftz = m.Take("ftz");
    selector.from = m.TakeType();
    TRY(NeedType(selector.from));
  }
  TRY(NeedNoMore(m));
  TRY(NeedOperands(s, 4));
  Instruction in;
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], selector.type));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], selector.type));
  ASSIGN_OR_RETURN(in.b, Source(s.operands[2], selector.type));
  if (slct) {
    ASSIGN_OR_RETURN(in.c, Source(s.operands[3], selector.from));
  } else {
    bool negated = false;
    ASSIGN_OR_RETURN(in.c, PredicateSource(s.operands[3], &negated));
    if (negated) in.flags |= kSwapNegated;
  }
  return Emit(selector, in);
}

Status KernelLowering::Testp(const Statement& s, Modifiers& m) {
  Selector selector{.op = Op::kTestp, .type = m.TakeType()};
  TRY(NeedType(selector.type));
  const std::optional<int> test =
      m.TakeOne({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  if (!test.has_value()) return Bad("a test is missing");
  TRY(NeedNoMore(m));
  TRY(NeedOperands(s, 2));
  Instruction in;
  in.mode = static_cast<uint8_t>(*test);
  ASSIGN_OR_RETURN(in.dst, PredicateDestination(s.operands[0]));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], selector.type));
  return Emit(selector, in);
}

// The rounding, flushing and saturation of a conversion.
Status KernelLowering::TakeRounding(Modifiers& m, Selector* selector) {
  const bool from_float = IsFloat(selector->from), to_float = IsFloat(selector->type);
  if (const std::optional<int> integral = m.TakeOne({"rni", "rzi", "rmi", "rpi"})) {
    if (!from_float) return Bad("an integer needs no rounding to an integer");
    selector->round = static_cast<Round>(*integral);
    selector->to_integral = to_float;
  } else if (const std::optional<int> round = m.TakeOne({"rn", "rz", "rm", "rp"})) {
    if (!to_float) return Bad("a result that is no float needs .rni, .rzi, .rmi or .rpi");
    selector->round = static_cast<Round>(*round);
  } else if (from_float && !to_float) {
    selector->round = Round::kZero;
  }
  // Only an f32 has subnormals to flush; a float turned integer saturates anyway.
  const bool flushes = selector->from == Type::kF32 || (from_float && selector->type == Type::kF32);
  selector->ftz = m.Take("ftz") && flushes;
  selector->sat = m.Take("sat") && (to_float || !from_float);
  return {};
}

// A width that differs between the type and the register costs a second conversion: wide sources
// are cut first, wide destinations extended last.
Status KernelLowering::Cvt(const Statement& s, Modifiers& m) {
  Selector selector{.op = Op::kCvt, .type = m.TakeType()};
  selector.from = m.TakeType();
  TRY(NeedType(selector.from));
  TRY(TakeRounding(m, &selector));
  TRY(NeedNoMore(m));
  TRY(NeedOperands(s, 2));

  Instruction in;
  in.mode = static_cast<uint8_t>(selector.round);
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

// Widens a result to the register that is to hold it.
Status KernelLowering::Extend(uint32_t row, Type type, const Register& target) {
  static constexpr Type kUnsigned[] = {Type::kU16, Type::kU32, Type::kU64};
  static constexpr Type kSigned[] = {Type::kS16, Type::kS32, Type::kS64};
  const uint32_t bytes = TypeBytes(target.type);
  const int width = bytes == 2 ? 0 : bytes == 4 ? 1 : 2;
  const bool sign = IsSigned(type) || type == Type::kS8;
  if (type == Type::kF16) type = Type::kU16;
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
