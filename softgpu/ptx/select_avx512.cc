// The handlers that are worth compiling for AVX-512.
#include "softgpu/ptx/lanes.h"

namespace tandem::ptx::avx512 {

// SelectCompare asks for it; AVX2's will do.
Handler SelectHalf(const Selector&) {
  return nullptr;
}

Handler Select(const Selector& s) {
  if (s.more) return nullptr;
  switch (s.op) {
    case Op::kLoad:
    case Op::kLoadParam:
    case Op::kStore:
      return SelectMemory(s);
    default:
      break;
  }
  if (Handler h = SelectCompare(s)) return h;
  if (s.type == Type::kF32 || s.type == Type::kF64) return SelectFloat(s);
  switch (s.type) {
    case Type::kU16:
    case Type::kU32:
    case Type::kU64:
    case Type::kS16:
    case Type::kS32:
    case Type::kS64:
      break;
    default:
      return nullptr;
  }
  if (Handler h = SelectBits(s)) return h;
  return SelectInteger(s);
}

}  // namespace tandem::ptx::avx512
