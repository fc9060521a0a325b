// Lowering of barriers that programs keep in shared memory.
#include "softgpu/ptx/lower.h"

namespace tandem::ptx {
namespace {

BarrierObject ObjectOf(const Modifiers& m) {
  const bool partial = m.Has("noComplete");
  if (m.Has("init")) return BarrierObject::kInit;
  if (m.Has("inval")) return BarrierObject::kInvalidate;
  if (m.Has("async")) return BarrierObject::kCopies;
  if (m.Has("test_wait") || m.Has("try_wait")) {
    return m.Has("parity") ? BarrierObject::kTestParity : BarrierObject::kTest;
  }
  if (m.Has("arrive_drop")) return partial ? BarrierObject::kDropNoComplete : BarrierObject::kDrop;
  return partial ? BarrierObject::kArriveNoComplete : BarrierObject::kArrive;
}

}  // namespace

Status KernelLowering::BarrierOperand(const Operand& operand, char kind, const Modifiers& m,
                                      Instruction* in) {
  std::optional<Symbol> symbol;
  switch (kind) {
    case 'a': {
      TRY(AddressOperand(operand, in, &symbol));
      ASSIGN_OR_RETURN(in->space, SpaceOf(m, symbol, true));
      return {};
    }
    case 'p': {
      ASSIGN_OR_RETURN(in->d, PredicateDestination(operand));
      return {};
    }
    case 'd':
    case 'u': {
      ASSIGN_OR_RETURN(in->dst, Destination(operand, kind == 'd' ? Type::kU64 : Type::kU32));
      return {};
    }
    case 's': {
      ASSIGN_OR_RETURN(in->c, Source(operand, Type::kU64));
      return {};
    }
    default: {
      ASSIGN_OR_RETURN(const uint32_t number, Source(operand, Type::kU32));
      if (kind != 't') in->b = number;  // no thread waits inside an instruction
      return {};
    }
  }
}

// mbarrier.*, and cp.async.mbarrier.arrive, which has nothing left to wait for.
Status KernelLowering::Mbarrier(const Statement& s, const Modifiers& m) {
  const std::string_view kinds = m.form().operands;
  const bool optional = kinds.ends_with('N') || kinds.ends_with('t');
  const size_t count = s.operands.size();
  if (count != kinds.size() && !(optional && count + 1 == kinds.size())) {
    return Bad("a wrong number of operands");
  }
  Instruction in;
  in.object = ObjectOf(m);
  in.polls = in.object == BarrierObject::kTest || in.object == BarrierObject::kTestParity;
  in.high = m.Has("noinc");
  in.d = kSinkPredicate;
  in.b = Constant(1, false);
  for (size_t i = 0; i < count; ++i) TRY(BarrierOperand(s.operands[i], kinds[i], m, &in));
  return Emit({.op = m.form().op}, in);
}

}  // namespace tandem::ptx
