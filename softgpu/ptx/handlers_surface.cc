// Surface loads and stores: whole texels of an array, as bytes. The first coordinate counts bytes.
#include "softgpu/ptx/texture_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

// One lane's coordinates: along x, y and z, and the layer.
struct Coordinates {
  int64_t at[3] = {0, 0, 0};
  int64_t layer = 0;
};

Coordinates CoordinatesOf(const WarpContext& w, const Instruction& in, int lane) {
  Coordinates c;
  int next = 0;
  if (in.texture.layered) c.layer = Source<uint32_t>(w, RowOfTexture(in, next++))[lane];
  for (int d = 0; d < in.texture.dimensions; ++d) {
    c.at[d] = Source<int32_t>(w, RowOfTexture(in, next++))[lane];
  }
  return c;
}

// Whether `value` is within [0, last]; where it is not, the nearest that is takes its place.
bool Clamp(int64_t last, int64_t* value) {
  const bool inside = *value >= 0 && *value <= last;
  if (!inside) *value = *value < 0 ? 0 : last;
  return inside;
}

// The address that a lane accesses. False: it is beyond an edge, and `address` is at the edge.
bool Address(const Texture& t, Coordinates c, uint32_t bytes, uint64_t* address) {
  const int64_t row = int64_t{t.extent[0]} * ChannelBytes(t.format) * t.channels;
  bool inside = Clamp(row - bytes, &c.at[0]);
  inside &= Clamp(int64_t{t.extent[1]} - 1, &c.at[1]);
  inside &= Clamp(int64_t{t.extent[2]} - 1, &c.at[2]);
  inside &= Clamp(t.layers > 0 ? int64_t{t.layers} - 1 : 0, &c.layer);
  *address = t.address + static_cast<uint64_t>(c.at[0]) + static_cast<uint64_t>(c.at[1]) * t.pitch +
             static_cast<uint64_t>(c.at[2] + c.layer) * t.slice;
  return inside;
}

// Where the lanes access their surfaces; those in *outside access nothing. False: a fault.
bool LocateTexels(WarpContext& w, const Instruction& in, uint32_t active, uint32_t bytes,
                  bool write, Plan& plan, uint32_t* outside) {
  const auto* handles = Source<uint64_t>(w, in.a);
  *outside = 0;
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    const Texture* t = FindTexture(w, handles[i]);
    if (t == nullptr || !t->surface ||
        bytes > uint64_t{t->extent[0]} * ChannelBytes(t->format) * t->channels) {
      return Fail(w, FaultKind::kIllegal, handles[i]);
    }
    if (Address(*t, CoordinatesOf(w, in, i), bytes, &plan.offset[i])) continue;
    if (in.texture.edge == Edge::kTrap) return Fail(w, FaultKind::kIllegal, plan.offset[i]);
    if (in.texture.edge == Edge::kZero) *outside |= 1u << i;
  }
  const uint32_t inside = active & ~*outside;
  return inside == 0 || LocateAddresses(w, Space::kGlobal, inside, bytes, write, plan);
}

template <class T, class D, uint32_t kCount>
bool RunSurfaceLoad(WarpContext& w, const Instruction& in, uint32_t active) {
  const uint32_t refs[4] = {in.dst, in.b, in.c, in.d};
  Plan plan = {};
  uint32_t outside = 0;
  if (!LocateTexels(w, in, active, sizeof(T) * kCount, false, plan, &outside)) return false;
  const uint32_t inside = active & ~outside;
  for (uint32_t part = 0; part < kCount; ++part) {
    auto* d = Target<D>(w, refs[part], active);
    TANDEM_LANES d[i] = 0;
    for (uint32_t rest = inside; rest != 0; rest &= rest - 1) {
      const int i = __builtin_ctz(rest);
      d[i] = Cell<D>::Put(static_cast<D>(Read<T>(plan.base + plan.offset[i] + part * sizeof(T))));
    }
    Finish<D>(w, refs[part], active);
  }
  return true;
}

template <class T, class S, uint32_t kCount>
bool RunSurfaceStore(WarpContext& w, const Instruction& in, uint32_t active) {
  const uint32_t refs[4] = {in.dst, in.b, in.c, in.d};
  Plan plan = {};
  uint32_t outside = 0;
  if (!LocateTexels(w, in, active, sizeof(T) * kCount, true, plan, &outside)) return false;
  for (uint32_t part = 0; part < kCount; ++part) {
    const auto* s = Source<S>(w, refs[part]);
    for (uint32_t rest = active & ~outside; rest != 0; rest &= rest - 1) {
      const int i = __builtin_ctz(rest);
      const T value = static_cast<T>(s[i]);
      __builtin_memcpy(plan.base + plan.offset[i] + part * sizeof(T), &value, sizeof value);
    }
  }
  return true;
}

template <class T, class R, uint32_t kCount>
Handler SelectDirection(const Selector& s) {
  return s.op == Op::kSurfaceStore ? RunSurfaceStore<T, R, kCount> : RunSurfaceLoad<T, R, kCount>;
}

template <class T, class R>
Handler SelectCount(const Selector& s) {
  return s.count == 1   ? SelectDirection<T, R, 1>(s)
         : s.count == 2 ? SelectDirection<T, R, 2>(s)
                        : SelectDirection<T, R, 4>(s);
}

// The register may be as wide as the value or wider.
template <class T>
Handler SelectRegister(const Selector& s) {
  if (s.from == Type::kU64) return SelectCount<T, uint64_t>(s);
  if constexpr (sizeof(T) <= 4) {
    if (s.from == Type::kU32) return SelectCount<T, uint32_t>(s);
  }
  if constexpr (sizeof(T) <= 2) {
    if (s.from == Type::kU16) return SelectCount<T, uint16_t>(s);
  }
  return nullptr;
}

}  // namespace

Handler SelectSurface(const Selector& s) {
  if (s.op != Op::kSurfaceLoad && s.op != Op::kSurfaceStore) return nullptr;
  switch (s.type) {
    case Type::kU8:
      return SelectRegister<uint8_t>(s);
    case Type::kU16:
      return SelectRegister<uint16_t>(s);
    case Type::kU32:
      return SelectRegister<uint32_t>(s);
    case Type::kU64:
      return SelectRegister<uint64_t>(s);
    default:
      return nullptr;
  }
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
