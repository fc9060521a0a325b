// Lowering of mma on few bits, ldmatrix and stmatrix, cp.async, cache policies and questions about
// addresses.
#include <charconv>

#include "softgpu/ptx/lower.h"

namespace tandem::ptx {

// The registers of a tile: {a, b, ...}, or one that stands alone.
Status KernelLowering::TileRows(const Operand& operand, size_t count, Type type, bool write,
                                std::vector<uint32_t>* refs) {
  const bool vector = operand.kind == Operand::Kind::kVector;
  if (vector ? operand.parts.size() != count : count != 1) {
    return Bad("a tile of " + std::to_string(count) + " registers is expected");
  }
  for (size_t i = 0; i < count; ++i) {
    const Operand& part = vector ? operand.parts[i] : operand;
    ASSIGN_OR_RETURN(const uint32_t ref, write ? Destination(part, type) : Source(part, type));
    refs->push_back(ref);
  }
  return {};
}

// Whole numbers of 4 bits or 1. The words that name them are no types elsewhere.
Status KernelLowering::MmaBits(const Statement& s, const Modifiers& m) {
  TRY(NeedOperands(s, 4));
  TRY(MeetLanes(nullptr));
  std::vector<bool> is_signed;
  uint32_t bits = 0;
  for (const std::string_view word : s.modifiers) {
    if (word != "s4" && word != "u4" && word != "b1") continue;
    bits = static_cast<uint32_t>(word[1] - '0');
    is_signed.push_back(word[0] == 's');
  }
  uint32_t depth = 0;
  bool tall = false;
  for (const std::string_view word : s.modifiers) {
    if (!word.starts_with("m8n8k") && !word.starts_with("m16n8k")) continue;
    tall = word.starts_with("m16");
    std::from_chars(word.data() + word.find('k') + 1, word.data() + word.size(), depth);
  }
  Instruction in;
  in.count = static_cast<uint8_t>(depth * bits / 128);
  in.high = tall;
  in.finite = m.Has("satfinite");
  in.imm = bits;
  in.logic = m.Has("and") ? Logic::kAnd : Logic::kXor;
  in.negate_a = is_signed[0];
  in.negate_b = is_signed[1];
  const size_t sums = tall ? 4 : 2;
  std::vector<uint32_t> refs;
  TRY(TileRows(s.operands[0], sums, Type::kS32, true, &refs));
  TRY(TileRows(s.operands[1], size_t{in.count} * (tall ? 2 : 1), Type::kU32, false, &refs));
  TRY(TileRows(s.operands[2], in.count, Type::kU32, false, &refs));
  TRY(TileRows(s.operands[3], sums, Type::kS32, false, &refs));
  ASSIGN_OR_RETURN(in.a, RowList(refs));
  return Emit({.op = Op::kMmaBits}, in);
}

// ldmatrix d, [a]; stmatrix [a], d
Status KernelLowering::MatrixMemory(const Statement& s, const Modifiers& m) {
  TRY(NeedOperands(s, 2));
  TRY(MeetLanes(nullptr));
  const bool store = m.form().op == Op::kStoreMatrix;
  Instruction in;
  in.count = m.Has("x4") ? 4 : m.Has("x2") ? 2 : 1;
  in.transposed = m.Has("trans");
  std::vector<uint32_t> refs;
  TRY(TileRows(s.operands[store ? 1 : 0], in.count, Type::kU32, !store, &refs));
  refs.resize(4, kSinkRow);
  in.dst = refs[0];
  in.b = refs[1];
  in.c = refs[2];
  in.d = refs[3];
  std::optional<Symbol> symbol;
  TRY(AddressOperand(s.operands[store ? 0 : 1], &in, &symbol));
  ASSIGN_OR_RETURN(in.space, SpaceOf(m, symbol, store));
  return Emit({.op = m.form().op}, in);
}

// cp.async.ca.shared.global [to], [from], bytes{, bytes to read}{, policy}, or with a predicate
// that tells whether to read nothing.
Status KernelLowering::CopyAsync(const Statement& s, const Modifiers& m) {
  size_t count = s.operands.size();
  if (m.Has("L2::cache_hint")) {
    if (count < 4) return Bad("a policy is missing");
    TRY(CheckPolicy(s.operands[--count]));
  }
  if (count != 3 && count != 4) return Bad("a wrong number of operands");
  Instruction to, in;
  std::optional<Symbol> target, source;
  TRY(AddressOperand(s.operands[0], &to, &target));
  TRY(AddressOperand(s.operands[1], &in, &source));
  if ((target.has_value() && target->space != Declaration::Space::kShared) ||
      (source.has_value() && source->kind != Symbol::Kind::kImage)) {
    return Bad("the variable lies in another state space");
  }
  const Operand& bytes = s.operands[2];
  const uint64_t size = bytes.kind == Operand::Kind::kInteger ? bytes.integer : 0;
  const bool small = (size == 4 || size == 8) && m.Has("ca");
  if (!small && size != 16) return Bad("that many bytes cannot be copied at once");
  in.count = static_cast<uint8_t>(size);
  in.space = Space::kGlobal;
  const Type width = to.narrow ? Type::kU32 : Type::kU64;
  Instruction place;
  place.a = to.a;
  place.b = Constant(static_cast<uint64_t>(to.imm) & (to.narrow ? 0xffff'ffff : ~uint64_t{0}),
                     !to.narrow);
  ASSIGN_OR_RETURN(place.dst, NewRow(width));
  TRY(Emit({.op = Op::kAdd, .type = width}, place));
  place.a = place.dst;
  ASSIGN_OR_RETURN(place.dst, NewRow(Type::kU64));
  in.b = place.dst;
  TRY(Emit({.op = Op::kCvt, .type = Type::kU64, .from = width}, place));
  in.c = Constant(size, false);
  if (count == 4) {
    Instruction choose;
    const Result<uint32_t> predicate = PredicateSource(s.operands[3], &choose.negate_c);
    if (predicate.ok() && s.operands[3].kind == Operand::Kind::kName) {
      choose.a = Constant(0, false);
      choose.b = in.c;
      choose.c = predicate.value();
      ASSIGN_OR_RETURN(choose.dst, NewRow(Type::kU32));
      TRY(Emit({.op = Op::kSelp, .type = Type::kU32}, choose));
      in.c = choose.dst;
    } else {
      ASSIGN_OR_RETURN(in.c, Source(s.operands[3], Type::kU32));
    }
  }
  return Emit({.op = Op::kCopyAsync, .count = in.count}, in);
}

// Copies are complete at once: groups need no keeping, nor waiting for.
Status KernelLowering::AsyncNothing(const Statement& s, const Modifiers& m) {
  TRY(NeedOperands(s, m.Has("wait_group") ? 1 : 0));
  if (m.Has("wait_group") && s.operands[0].kind != Operand::Kind::kInteger) {
    return Bad("expected a constant");
  }
  return {};
}

// There is no cache whose policy would matter; the operand must still be right.
Status KernelLowering::CheckPolicy(const Operand& operand) {
  ASSIGN_OR_RETURN(const uint32_t policy, Source(operand, Type::kU64));
  static_cast<void>(policy);
  return {};
}

Status KernelLowering::Policy(const Statement& s, const Modifiers& m) {
  const size_t count = s.operands.size();
  const bool range = m.Has("range"), fractional = m.Has("fractional");
  if (count != (range ? 4 : 2) && !(fractional && count == 1)) {
    return Bad("a wrong number of operands");
  }
  Instruction in;
  in.a = Constant(0, true);
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], Type::kU64));
  Instruction unused;
  if (range) {
    std::optional<Symbol> symbol;
    TRY(AddressOperand(s.operands[1], &unused, &symbol));
    ASSIGN_OR_RETURN(unused.b, Source(s.operands[2], Type::kU32));
    ASSIGN_OR_RETURN(unused.c, Source(s.operands[3], Type::kU32));
  } else if (count == 2) {
    ASSIGN_OR_RETURN(unused.a, Source(s.operands[1], fractional ? Type::kF32 : Type::kU64));
    const Operand& part = s.operands[1];
    if (part.kind == Operand::Kind::kFloat && !(part.real > 0 && part.real <= 1)) {
      return Bad("a fraction is above 0 and at most 1");
    }
  }
  return Emit({.op = Op::kMov, .type = Type::kU64}, in);
}

Status KernelLowering::IsSpace(const Statement& s, const Modifiers& m) {
  TRY(NeedOperands(s, 2));
  Instruction in;
  ASSIGN_OR_RETURN(in.dst, PredicateDestination(s.operands[0]));
  ASSIGN_OR_RETURN(in.a, Source(s.operands[1], Type::kU64));
  ASSIGN_OR_RETURN(in.space, SpaceOf(m, std::nullopt, false));
  if (m.Has("param") || m.Has("param::entry")) in.space = Space::kParam;
  // Constants are the first bytes of the module's image.
  in.high = m.Has("const");
  in.imm = static_cast<int64_t>(symbols_.constant_bytes);
  return Emit({.op = Op::kIsSpace}, in);
}

}  // namespace tandem::ptx
