// Texture fetches, as the CUDA programming guide's appendix on texture fetching has them: weights
// of linear filtering are 9-bit fixed-point numbers with 8 fractional bits. All else is computed
// in double precision and rounded once.
#include "softgpu/ptx/float_lanes.h"
#include "softgpu/ptx/texture_lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

using Words = uint32_t[4][kLanes];
using Numbers = double[4][kLanes];

// The texels that the lanes read along one dimension: one each, or two with linear filtering.
struct Axis {
  int32_t texel[2][kLanes];
  uint32_t outside[2];    // lanes that read the border colour
  double weight[kLanes];  // of the second
};

struct Fetch {
  const Texture* texture = nullptr;
  uint32_t lanes = 0;
  bool linear = false;
  bool integer = false;  // what it gives are integers
  uint32_t layer[kLanes];
  Axis axis[3];
};

bool GivesIntegers(const Texture& t) {
  switch (t.format) {
    case TexelFormat::kF16:
    case TexelFormat::kF32:
      return false;
    case TexelFormat::kU32:
    case TexelFormat::kS32:
      return true;
    default:
      return t.as_integer;
  }
}

// Where along the axis, counted in texels; `at` is finite.
void Scale(double extent, AddressMode mode, double* at) {
  if (mode == AddressMode::kWrap) {
    TANDEM_LANES at[i] -= __builtin_floor(at[i]);
  } else if (mode == AddressMode::kMirror) {
    TANDEM_LANES {
      const double whole = __builtin_floor(at[i]);
      const double odd = whole - 2 * __builtin_floor(whole * 0.5);
      const double rest = at[i] - whole;
      at[i] = odd != 0 ? 1 - rest : rest;
    }
  }
  TANDEM_LANES at[i] *= extent;
}

void Place(const Texture& t, int dimension, bool normalized, bool linear, double* at, Axis& axis) {
  const int32_t n = static_cast<int32_t>(t.extent[dimension]);
  const AddressMode mode = t.mode[dimension];
  if (normalized) Scale(n, mode, at);
  const double shift = linear ? 0.5 : 0;
  TANDEM_LANES {
    const double x = at[i] - shift;
    double first = __builtin_floor(x);
    axis.weight[i] = __builtin_floor((x - first) * 256 + 0.5) * (1.0 / 256);
    first = first > -2 ? first : -2;
    axis.texel[0][i] = static_cast<int32_t>(first < n ? first : n);
  }
  TANDEM_LANES axis.texel[1][i] = axis.texel[0][i] + 1;
  for (int k = 0; k < 2; ++k) {
    int32_t* texel = axis.texel[k];
    if (mode == AddressMode::kWrap && normalized) {
      TANDEM_LANES {
        texel[i] = texel[i] < 0 ? texel[i] + n : texel[i];
        texel[i] = texel[i] >= n ? texel[i] - n : texel[i];
      }
    }
    uint32_t outside = 0;
    if (mode == AddressMode::kBorder) {
      TANDEM_LANES outside |= texel[i] < 0 || texel[i] >= n ? kLaneBit[i] : 0;
    }
    axis.outside[k] = outside;
    TANDEM_LANES {
      texel[i] = texel[i] > 0 ? texel[i] : 0;
      texel[i] = texel[i] < n ? texel[i] : n - 1;
    }
  }
}

// Reads the channels of texels at these offsets into the device.
template <class T>
bool Gather(WarpContext& w, const Texture& t, const uint64_t* offset, uint32_t lanes, Words& raw) {
  uint64_t known = ~uint64_t{0};
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    if ((offset[i] ^ known) >> w.granule_shift != 0) {
      if (!GranuleExists(w, offset[i], false)) {
        return Fail(w, FaultKind::kIllegal, w.device_base + offset[i]);
      }
      known = offset[i];
    }
    const uint8_t* from = reinterpret_cast<const uint8_t*>(w.device_base) + offset[i];
    for (int c = 0; c < t.channels; ++c) {
      T value;
      __builtin_memcpy(&value, from + c * sizeof(T), sizeof value);
      raw[c][i] = value;
    }
  }
  return true;
}

// One corner of the cell that each lane reads; bit d of `corner`: the second along dimension d.
bool ReadCorner(WarpContext& w, const Fetch& f, int corner, Words& raw, uint32_t* outside) {
  const Texture& t = *f.texture;
  const uint64_t bytes = uint64_t{t.channels} * ChannelBytes(t.format);
  const int x = corner & 1, y = corner >> 1 & 1, z = corner >> 2;
  *outside = f.axis[0].outside[x] | f.axis[1].outside[y] | f.axis[2].outside[z];
  uint64_t offset[kLanes];
  TANDEM_LANES {
    offset[i] = t.address - w.device_base + static_cast<uint32_t>(f.axis[0].texel[x][i]) * bytes +
                static_cast<uint32_t>(f.axis[1].texel[y][i]) * t.pitch +
                (static_cast<uint32_t>(f.axis[2].texel[z][i]) + uint64_t{f.layer[i]}) * t.slice;
  }
  const uint32_t inside = f.lanes & ~*outside;
  if (bytes == t.channels) return Gather<uint8_t>(w, t, offset, inside, raw);
  if (bytes == uint64_t{2} * t.channels) return Gather<uint16_t>(w, t, offset, inside, raw);
  return Gather<uint32_t>(w, t, offset, inside, raw);
}

// What the stored bits mean.
void Decode(TexelFormat format, bool integer, const uint32_t* raw, double* value) {
  switch (format) {
    case TexelFormat::kU8:
      TANDEM_LANES value[i] = static_cast<int32_t>(raw[i]) / (integer ? 1.0 : 255.0);
      break;
    case TexelFormat::kU16:
      TANDEM_LANES value[i] = static_cast<int32_t>(raw[i]) / (integer ? 1.0 : 65535.0);
      break;
    case TexelFormat::kS8:
      TANDEM_LANES value[i] = static_cast<int8_t>(raw[i]) / (integer ? 1.0 : 127.0);
      break;
    case TexelFormat::kS16:
      TANDEM_LANES value[i] = static_cast<int16_t>(raw[i]) / (integer ? 1.0 : 32767.0);
      break;
    case TexelFormat::kU32:
      TANDEM_LANES value[i] = raw[i];
      break;
    case TexelFormat::kS32:
      TANDEM_LANES value[i] = static_cast<int32_t>(raw[i]);
      break;
    case TexelFormat::kF16:
      TANDEM_LANES value[i] = HalfToFloat({static_cast<uint16_t>(raw[i])});
      break;
    case TexelFormat::kF32:
      TANDEM_LANES value[i] = FloatOf(raw[i]);
      break;
  }
  // The most negative number has no positive counterpart.
  if (!integer && (format == TexelFormat::kS8 || format == TexelFormat::kS16)) {
    TANDEM_LANES value[i] = value[i] > -1 ? value[i] : -1;
  }
}

void Encode(bool integer, const double* value, uint32_t* result) {
  if (integer) {
    TANDEM_LANES result[i] = static_cast<uint32_t>(static_cast<int64_t>(value[i]));
  } else {
    TANDEM_LANES result[i] = BitsOf(Canonical(static_cast<float>(value[i])));
  }
}

// The border colour as the fetch would give it: integers are cut to what 32 bits hold.
double Border(const Fetch& f, int channel) {
  const double value = f.texture->border[channel];
  if (!f.integer) return value;
  return value > -0x1p31 ? (value < 0xffffffffp0 ? value : 0xffffffffp0) : -0x1p31;
}

bool Nearest(WarpContext& w, const Fetch& f, Words& result) {
  const Texture& t = *f.texture;
  Words raw = {};
  uint32_t outside = 0;
  if (!ReadCorner(w, f, 0, raw, &outside)) return false;
  for (int c = 0; c < t.channels; ++c) {
    double value[kLanes];
    if (t.format == TexelFormat::kF32) {
      TANDEM_LANES result[c][i] = raw[c][i];  // a NaN keeps its bits
    } else {
      Decode(t.format, f.integer, raw[c], value);
      Encode(f.integer, value, result[c]);
    }
    if (outside == 0) continue;
    uint32_t border[kLanes];
    const double colour = Border(f, c);
    TANDEM_LANES value[i] = colour;
    Encode(f.integer, value, border);
    Choose<uint32_t>(result[c], border, result[c], outside);
  }
  return true;
}

bool Filtered(WarpContext& w, const Fetch& f, int dimensions, Words& result) {
  const Texture& t = *f.texture;
  Numbers sum = {};
  for (int corner = 0; corner < 1 << dimensions; ++corner) {
    Words raw = {};
    uint32_t outside = 0;
    if (!ReadCorner(w, f, corner, raw, &outside)) return false;
    double weight[kLanes];
    TANDEM_LANES weight[i] = 1;
    for (int d = 0; d < dimensions; ++d) {
      const double* second = f.axis[d].weight;
      if ((corner >> d & 1) != 0) {
        TANDEM_LANES weight[i] *= second[i];
      } else {
        TANDEM_LANES weight[i] *= 1 - second[i];
      }
    }
    for (int c = 0; c < t.channels; ++c) {
      double value[kLanes];
      Decode(t.format, f.integer, raw[c], value);
      const double border = Border(f, c);
      if (outside != 0) {
        TANDEM_LANES value[i] = (outside & kLaneBit[i]) != 0 ? border : value[i];
      }
      TANDEM_LANES sum[c][i] += weight[i] * value[i];
    }
  }
  for (int c = 0; c < t.channels; ++c) {
    if (f.integer) {
      TANDEM_LANES sum[c][i] = __builtin_floor(sum[c][i] + 0.5);
    }
    Encode(f.integer, sum[c], result[c]);
  }
  return true;
}

template <class T>
void Coordinates(const WarpContext& w, const Instruction& in, int index, double* at) {
  const auto* row = Source<T>(w, RowOfTexture(in, index));
  TANDEM_LANES {
    const double x = row[i];
    const double low = x > -0x1p30 ? x : -0x1p30;
    at[i] = x == x ? (low < 0x1p30 ? low : 0x1p30) : 0;
  }
}

// A fetch by the lanes that name the same texture. T is the type of the coordinates; integers
// count texels and are not filtered.
template <class T>
bool RunFetch(WarpContext& w, const Instruction& in, const Texture& t, uint32_t lanes,
              Words& result) {
  constexpr bool kTexels = kSame<T, int32_t>;
  Fetch f;
  f.texture = &t;
  f.lanes = lanes;
  const bool wide = t.format == TexelFormat::kU32 || t.format == TexelFormat::kS32;
  f.integer = GivesIntegers(t);
  // 32-bit integers cannot be filtered. Narrower ones that are read as such are, with a result
  // rounded to the nearest: programs rely on it (ffmpeg's bilinear scaling).
  f.linear = t.linear_filter && !kTexels && !wide;
  int next = 0;
  TANDEM_LANES f.layer[i] = 0;
  if (in.texture.layered) {
    const auto* layer = Source<uint32_t>(w, RowOfTexture(in, next++));
    const uint32_t last = t.layers > 0 ? t.layers - 1 : 0;
    TANDEM_LANES f.layer[i] = layer[i] < last ? layer[i] : last;
  }
  for (int d = 0; d < 3; ++d) {
    double at[kLanes] = {};
    if (d < in.texture.dimensions) Coordinates<T>(w, in, next++, at);
    Place(t, d, t.normalized && !kTexels, f.linear && d < in.texture.dimensions, at, f.axis[d]);
  }
  return f.linear ? Filtered(w, f, in.texture.dimensions, result) : Nearest(w, f, result);
}

template <class T>
bool RunTexture(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* handles = Source<uint64_t>(w, in.a);
  Words results = {};
  for (uint32_t rest = active; rest != 0;) {
    const uint64_t handle = handles[__builtin_ctz(rest)];
    uint32_t same = 0;
    TANDEM_LANES same |= handles[i] == handle ? kLaneBit[i] : 0;
    same &= rest;
    rest &= ~same;
    const Texture* texture = FindTexture(w, handle);
    if (texture == nullptr || texture->surface) return Fail(w, FaultKind::kIllegal, handle);
    // Channels that a texture has not: zero, and one for the last.
    Words fetched = {};
    const uint32_t one = GivesIntegers(*texture) ? 1 : BitsOf(1.0f);
    TANDEM_LANES fetched[3][i] = one;
    if (!RunFetch<T>(w, in, *texture, same, fetched)) return false;
    for (int c = 0; c < 4; ++c) Choose<uint32_t>(results[c], fetched[c], results[c], same);
  }
  const uint32_t refs[4] = {in.dst, in.b, in.c, in.d};
  for (int c = 0; c < 4; ++c) {
    auto* d = Target<uint32_t>(w, refs[c], active);
    TANDEM_LANES d[i] = results[c][i];
    Finish<uint32_t>(w, refs[c], active);
  }
  return true;
}

uint32_t Answer(const Texture& t, Query query) {
  switch (query) {
    case Query::kWidth:
      return t.extent[0];
    case Query::kHeight:
      return t.extent[1];
    case Query::kDepth:
      return t.extent[2];
    case Query::kLayers:
      return t.layers;
    case Query::kLevels:
      return 1;
    case Query::kNormalized:
      return t.normalized ? 1 : 0;
  }
  return 0;
}

bool RunTextureQuery(WarpContext& w, const Instruction& in, uint32_t active) {
  const auto* handles = Source<uint64_t>(w, in.a);
  uint32_t answers[kLanes] = {};
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    const Texture* texture = FindTexture(w, handles[i]);
    if (texture == nullptr) return Fail(w, FaultKind::kIllegal, handles[i]);
    answers[i] = Answer(*texture, in.query);
  }
  auto* d = Target<uint32_t>(w, in.dst, active);
  TANDEM_LANES d[i] = answers[i];
  Finish<uint32_t>(w, in.dst, active);
  return true;
}

}  // namespace

Handler SelectTexture(const Selector& s) {
  if (s.op == Op::kTextureQuery) return RunTextureQuery;
  if (s.op != Op::kTexture) return nullptr;
  return s.type == Type::kS32 ? RunTexture<int32_t> : RunTexture<float>;
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
