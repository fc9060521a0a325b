// Integers for handlers: what functors build on, and the choice of a handler by type.
//
// Included like lanes.h.
#pragma once

#include "softgpu/ptx/lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

// Wrapping arithmetic happens in an unsigned type at least as wide as int.
template <class T>
struct WideOf {
  using type = uint32_t;
};
template <>
struct WideOf<uint64_t> {
  using type = uint64_t;
};
template <>
struct WideOf<int64_t> {
  using type = uint64_t;
};
template <class T>
using Wide = typename WideOf<T>::type;

template <template <class> class F>
Handler Ints2(Type t) {
  switch (t) {
    case Type::kU16:
      return Map2<F<uint16_t>>;
    case Type::kS16:
      return Map2<F<int16_t>>;
    case Type::kU32:
      return Map2<F<uint32_t>>;
    case Type::kS32:
      return Map2<F<int32_t>>;
    case Type::kU64:
      return Map2<F<uint64_t>>;
    case Type::kS64:
      return Map2<F<int64_t>>;
    default:
      return nullptr;
  }
}
// Those whose result does not depend on the sign.
inline Type Unsign(Type t) {
  switch (t) {
    case Type::kS16:
      return Type::kU16;
    case Type::kS32:
      return Type::kU32;
    case Type::kS64:
      return Type::kU64;
    default:
      return t;
  }
}
template <template <class> class F>
Handler Bits2(Type t) {
  switch (Unsign(t)) {
    case Type::kU16:
      return Map2<F<uint16_t>>;
    case Type::kU32:
      return Map2<F<uint32_t>>;
    case Type::kU64:
      return Map2<F<uint64_t>>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace tandem::ptx::TANDEM_PTX_PATH
