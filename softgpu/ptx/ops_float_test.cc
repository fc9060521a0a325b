// Operations on floats, and conversions, against references in higher precision.
#include <limits>

#include "softgpu/ptx/code.h"
#include "softgpu/ptx/operations.h"

namespace tandem::ptx {
namespace {

// `value` plus the far smaller `rest`, in the direction that `round` says. REQUIRES: the nearest
// of both is that of `value`.
template <class T>
uint64_t Directed(Quad value, Quad rest, Round round) {
  const T nearest = static_cast<T>(value);
  if (value != value || value - value != 0) return B(nearest);
  const Quad above = value - nearest != 0 ? value - nearest : rest;  // of the nearest
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const bool toward_zero = round == Round::kZero;
  if (above < 0 && (round == Round::kDown || (toward_zero && nearest > 0))) {
    return B(std::nextafter(nearest, -kInfinity));
  }
  if (above > 0 && (round == Round::kUp || (toward_zero && nearest < 0))) {
    return B(std::nextafter(nearest, kInfinity));
  }
  return B(nearest);
}

// a + b toward zero; both terms, and the error of their sum, are exact in 113 bits.
uint64_t SumTowardZero(float a, float b) {
  const Quad x = a, y = b, sum = x + y, part = sum - x;
  return Directed<float>(sum, (x - (sum - part)) + (y - part), Round::kZero);
}

// The nearest half, found among all of them; 65536 stands for infinity.
uint64_t Half(long double x) {
  if (std::isnan(x)) return 0x7fff;
  const long double magnitude = std::fabs(x);
  const auto value = [](uint32_t bits) { return bits == 0x7c00 ? 65536.0L : HalfValue(bits); };
  uint32_t low = 0, high = 0x7c00;
  while (low < high) {
    const uint32_t middle = (low + high + 1) / 2;
    (value(middle) <= magnitude ? low : high) = value(middle) <= magnitude ? middle : middle - 1;
  }
  if (low < 0x7c00) {
    const long double below = magnitude - value(low), above = value(low + 1) - magnitude;
    if (above < below || (above == below && (low & 1) != 0)) ++low;
  }
  return low | (std::signbit(x) ? 0x8000 : 0);
}

// The smaller number, of which -0 is one; with `largest` the larger.
template <class T>
T Extreme(T a, T b, bool largest) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? b : a;
  if (a == b) return std::signbit(a) != largest ? a : b;
  return (a < b) != largest ? a : b;
}

TEST(FloatOperations, Extremes) {
  for (const bool largest : {false, true}) {
    const std::string name = largest ? "max" : "min";
    Check({name + ".f64 %d, %a, %b;", 'd',
           [=](auto a, auto b, auto) { return B(Extreme(D(a), D(b), largest)); }});
    const auto by_magnitude = [=](uint64_t a, uint64_t b) {
      const float r = Extreme(std::abs(F(a)), std::abs(F(b)), largest);
      return std::isnan(r) ? B(r) : B(std::copysign(r, F((a ^ b) & 0x80000000)));
    };
    Check({name + ".xorsign.abs.f32 %wd, %wa, %wb;", 'w',
           [=](auto a, auto b, auto) { return by_magnitude(a, b); }});
    Check({name + ".NaN.xorsign.abs.f32 %wd, %wa, %wb;", 'w', [=](auto a, auto b, auto) {
             return std::isnan(F(a)) || std::isnan(F(b)) ? B(NAN) : by_magnitude(a, b);
           }});
  }
}

TEST(FloatOperations, Floats) {
  const auto ftz = [](float x) { return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; };
  const auto sat = [](float x) { return x > 0 ? std::min(x, 1.0f) : 0.0f; };
  const Operation kOperations[] = {
      {"add.f32 %wd, %wa, %wb;", 'w', [](auto a, auto b, auto) { return B(F(a) + F(b)); }},
      {"add.ftz.f32 %wd, %wa, %wb;", 'w',
       [=](auto a, auto b, auto) { return B(ftz(ftz(F(a)) + ftz(F(b)))); }},
      {"mul.sat.f32 %wd, %wa, %wb;", 'w',
       [=](auto a, auto b, auto) { return B(sat(F(a) * F(b))); }},
      {"sub.f64 %d, %a, %b;", 'd', [](auto a, auto b, auto) { return B(D(a) - D(b)); }},
      {"fma.rn.f32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) { return B(std::fma(F(a), F(b), F(c))); }},
      {"fma.rn.f64 %d, %a, %b, %c;", 'd',
       [](auto a, auto b, auto c) { return B(std::fma(D(a), D(b), D(c))); }},
      {"div.rn.f32 %wd, %wa, %wb;", 'w', [](auto a, auto b, auto) { return B(F(a) / F(b)); }},
      {"sqrt.rn.f64 %d, %a;", 'd', [](auto a, auto, auto) { return B(std::sqrt(D(a))); }},
      {"rcp.rn.f32 %wd, %wa;", 'w', [](auto a, auto, auto) { return B(1.0f / F(a)); }},
      {"neg.f32 %wd, %wa;", 'w', [](auto a, auto, auto) { return B(-F(a)); }},
      {"abs.f64 %d, %a;", 'd', [](auto a, auto, auto) { return B(std::fabs(D(a))); }},
      {"min.f32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) {
         if (F(a) == F(b)) return B(std::signbit(F(a)) ? F(a) : F(b));
         if (std::isnan(F(a))) return B(F(b));
         return B(std::isnan(F(b)) || F(a) < F(b) ? F(a) : F(b));
       }},
      {"min.NaN.f32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) {
         const bool nan = std::isnan(F(a)) || std::isnan(F(b));
         return nan ? uint64_t{0x7fffffff} : B(Extreme(F(a), F(b), false));
       }},
      {"max.NaN.f32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) {
         if (std::isnan(F(a)) || std::isnan(F(b))) return uint64_t{0x7fffffff};
         if (F(a) == F(b)) return B(std::signbit(F(a)) ? F(b) : F(a));
         return B(std::fmax(F(a), F(b)));
       }},
      {"copysign.f64 %d, %a, %b;", 'd',
       [](auto a, auto b, auto) { return (a >> 63 << 63) | (b << 1 >> 1); }},
      {"copysign.f32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return W((a & 0x80000000) | (b & 0x7fffffff)); }},
      {"min.ftz.f32 %wd, %wa, %wb;", 'w',
       [=](auto a, auto b, auto) {
         const float x = ftz(F(a)), y = ftz(F(b));
         if (x == y) return B(std::signbit(x) ? x : y);
         if (std::isnan(x)) return B(y);
         return B(std::isnan(y) || x < y ? x : y);
       }},
      {"max.ftz.f32 %wd, %wa, %wb;", 'w',
       [=](auto a, auto b, auto) {
         const float x = ftz(F(a)), y = ftz(F(b));
         if (x == y) return B(std::signbit(x) ? y : x);
         if (std::isnan(x)) return B(y);
         return B(std::isnan(y) || x > y ? x : y);
       }},
      {"add.rz.f32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return SumTowardZero(F(a), F(b)); }},
      {"mul.rp.f64 %d, %a, %b;", 'd',
       [](auto a, auto b, auto) {
         return Directed<double>(static_cast<Quad>(D(a)) * D(b), 0, Round::kUp);
       }},
      {"mul.rm.f32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) {
         return Directed<float>(static_cast<Quad>(F(a)) * F(b), 0, Round::kDown);
       }},
      {"add.f16 %hd, %ha, %hb;", 'h',
       [](auto a, auto b, auto) { return Half(HalfValue(a) + HalfValue(b)); }},
      {"mul.f16 %hd, %ha, %hb;", 'h',
       [](auto a, auto b, auto) { return Half(HalfValue(a) * HalfValue(b)); }},
      {"fma.rn.f16 %hd, %ha, %hb, %hc;", 'h',
       [](auto a, auto b, auto c) { return Half(HalfValue(a) * HalfValue(b) + HalfValue(c)); }},
      {"neg.f16 %hd, %ha;", 'h', [](auto a, auto, auto) { return (a ^ 0x8000) & 0xffff; }},
      {"abs.f16 %hd, %ha;", 'h', [](auto a, auto, auto) { return a & 0x7fff; }},
  };
  for (const Operation& operation : kOperations) Check(operation);
}

// Against double precision, whose own errors are far smaller.
TEST(FloatOperations, Approximations) {
  const auto ftz = [](double x) { return std::abs(x) < 0x1p-126 ? std::copysign(0.0, x) : x; };
  const auto inverse_root = [](double x) { return 1.0 / std::sqrt(x); };
  const auto inverse = [](double x) { return 1.0 / x; };
  const struct {
    const char* name;
    double (*exact)(double);
    uint32_t ulps;
  } kFunctions[] = {
      {"ex2", std::exp2, 2}, {"lg2", std::log2, 2},      {"sin", std::sin, 2},
      {"cos", std::cos, 2},  {"rsqrt", inverse_root, 2}, {"sqrt", std::sqrt, 1},
      {"rcp", inverse, 1},
  };
  for (const auto& f : kFunctions) {
    const std::string name = f.name, operands = " %wd, %wa;";
    Check({name + ".approx.f32" + operands, 'w', nullptr, f.ulps,
           [&](auto a, auto, auto) { return f.exact(double{F(a)}); }});
    Check({name + ".approx.ftz.f32" + operands, 'w', nullptr, f.ulps,
           [&](auto a, auto, auto) { return ftz(f.exact(ftz(double{F(a)}))); }});
  }
  Check({"tanh.approx.f32 %wd, %wa;", 'w', nullptr, 2,
         [](auto a, auto, auto) { return std::tanh(double{F(a)}); }});
  Check({"rsqrt.approx.f64 %d, %a; cvt.rn.f32.f64 %wd, %d;", 'w', nullptr, 2,
         [=](auto a, auto, auto) { return inverse_root(D(a)); }});
  // Where the divisor is beyond 2^126 the quotient is 0, as the document says.
  Check({"div.approx.f32 %wd, %wa, %wb;", 'w', nullptr, 2, [](auto a, auto b, auto) {
           const double y = F(b);
           const bool large = std::abs(y) > 0x1p126 && std::isfinite(y);
           return large ? F(a) * std::copysign(0.0, y) : F(a) / y;
         }});
  Check({"div.approx.ftz.f32 %wd, %wa, %wb;", 'w', nullptr, 2, [=](auto a, auto b, auto) {
           const double x = ftz(F(a)), y = ftz(F(b));
           const bool large = std::abs(y) > 0x1p126 && std::isfinite(y);
           return large ? x * std::copysign(0.0, y) : ftz(x / y);
         }});
  Check({"div.full.f32 %wd, %wa, %wb;", 'w', nullptr, 2,
         [](auto a, auto b, auto) { return double{F(a)} / F(b); }});
  Check({"div.full.ftz.f32 %wd, %wa, %wb;", 'w', nullptr, 2,
         [=](auto a, auto b, auto) { return ftz(ftz(F(a)) / ftz(F(b))); }});
}

// Only the upper halves of operand and result count, and subnormal numbers are zeros.
TEST(FloatOperations, GrossApproximations) {
  const auto gross = [](double x, bool root) -> uint64_t {
    const double cut = D(std::bit_cast<uint64_t>(x) & 0xffffffff00000000);
    const long double exact = root ? 1.0L / std::sqrt(static_cast<long double>(cut)) : 1.0L / cut;
    double r = static_cast<double>(exact);
    if (std::isnan(x) || std::isnan(r)) r = NAN;
    if (std::abs(cut) < 0x1p-1022) r = std::copysign(INFINITY, x);
    if (std::abs(r) < 0x1p-1022) r = std::copysign(0.0, r);
    return B(r) >> 32;
  };
  // One unit of the upper half, up or down, is less than the error that the document allows.
  for (const auto& [text, root] : {std::pair{"rcp", false}, {"rsqrt", true}}) {
    Check({std::string(text) + ".approx.ftz.f64 %d, %a; mov.b64 {%wb, %wd}, %d;", 'w',
           [&gross, root = root](auto a, auto, auto) { return gross(D(a), root); }, 1});
  }
}

template <class T>
uint64_t ToInt(double x) {
  if (std::isnan(x)) return 0;
  if (x <= static_cast<double>(std::numeric_limits<T>::min())) {
    return static_cast<std::make_unsigned_t<T>>(std::numeric_limits<T>::min());
  }
  if (x >= static_cast<double>(std::numeric_limits<T>::max())) {
    return static_cast<std::make_unsigned_t<T>>(std::numeric_limits<T>::max());
  }
  return static_cast<std::make_unsigned_t<T>>(static_cast<T>(x));
}

TEST(FloatOperations, Conversions) {
  const Operation kOperations[] = {
      {"cvt.s64.s32 %d, %wa;", 'd', [](auto a, auto, auto) { return static_cast<uint64_t>(S(a)); }},
      {"cvt.s32.s8 %wd, %wa;", 'w', [](auto a, auto, auto) { return U(static_cast<int8_t>(a)); }},
      {"cvt.u8.u32 %wd, %wa;", 'w', [](auto a, auto, auto) { return a & 0xff; }},
      {"cvt.sat.s16.s32 %hd, %wa;", 'h',
       [](auto a, auto, auto) {
         return static_cast<uint64_t>(std::clamp(S(a), -32768, 32767)) & 0xffff;
       }},
      {"cvt.rzi.s16.f32 %hd, %wa;", 'h', [](auto a, auto, auto) { return ToInt<int16_t>(F(a)); }},
      {"cvt.sat.u8.s32 %wd, %wa;", 'w',
       [](auto a, auto, auto) { return static_cast<uint64_t>(std::clamp(S(a), 0, 255)); }},
      {"cvt.rn.f32.s32 %wd, %wa;", 'w',
       [](auto a, auto, auto) { return B(static_cast<float>(S(a))); }},
      {"cvt.rn.f32.u64 %wd, %a;", 'w', [](auto a, auto, auto) { return B(static_cast<float>(a)); }},
      {"cvt.rn.f64.u32 %d, %wa;", 'd',
       [](auto a, auto, auto) { return B(static_cast<double>(W(a))); }},
      {"cvt.rz.f32.u32 %wd, %wa;", 'w',
       [](auto a, auto, auto) { return Directed<float>(W(a), 0, Round::kZero); }},
      {"cvt.rp.f32.f64 %wd, %a;", 'w',
       [](auto a, auto, auto) { return Directed<float>(D(a), 0, Round::kUp); }},
      {"cvt.rzi.s32.f32 %wd, %wa;", 'w', [](auto a, auto, auto) { return ToInt<int32_t>(F(a)); }},
      {"cvt.rzi.u32.f32 %wd, %wa;", 'w', [](auto a, auto, auto) { return ToInt<uint32_t>(F(a)); }},
      {"cvt.rni.s32.f32 %wd, %wa;", 'w',
       [](auto a, auto, auto) { return ToInt<int32_t>(std::nearbyint(F(a))); }},
      {"cvt.rz.sat.f32.f64 %wd, %a;", 'w',
       [](auto a, auto, auto) {
         const double x = D(a) > 0 ? std::min(D(a), 1.0) : 0.0;
         const float nearest = static_cast<float>(x);
         return B(nearest > x ? std::nextafter(nearest, 0.0f) : nearest);
       }},
      {"cvt.rm.sat.f32.s32 %wd, %wa;", 'w',
       [](auto a, auto, auto) { return B(S(a) > 0 ? 1.0f : 0.0f); }},
      {"cvt.rmi.s64.f64 %d, %a;", 'd',
       [](auto a, auto, auto) { return ToInt<int64_t>(std::floor(D(a))); }},
      {"cvt.rzi.u16.f32 %hd, %wa;", 'h', [](auto a, auto, auto) { return ToInt<uint16_t>(F(a)); }},
      {"cvt.rpi.f32.f32 %wd, %wa;", 'w', [](auto a, auto, auto) { return B(std::ceil(F(a))); }},
      {"cvt.rn.f32.f64 %wd, %a;", 'w',
       [](auto a, auto, auto) { return B(static_cast<float>(D(a))); }},
      {"cvt.f64.f32 %d, %wa;", 'd',
       [](auto a, auto, auto) { return B(static_cast<double>(F(a))); }},
      {"cvt.sat.f32.f32 %wd, %wa;", 'w',
       [](auto a, auto, auto) { return B(F(a) > 0 ? std::min(F(a), 1.0f) : 0.0f); }},
      {"cvt.rn.f16.f32 %hd, %wa;", 'h', [](auto a, auto, auto) { return Half(F(a)); }},
      {"cvt.rn.f16.f64 %hd, %a;", 'h', [](auto a, auto, auto) { return Half(D(a)); }},
      {"cvt.rn.f16.s32 %hd, %wa;", 'h', [](auto a, auto, auto) { return Half(S(a)); }},
  };
  for (const Operation& operation : kOperations) Check(operation);
}

TEST(FloatOperations, HalvesRoundedTowardZeroStayFinite) {
  std::vector<uint64_t> inputs(size_t{64} * 3, std::bit_cast<uint64_t>(1e305));
  inputs[3] = std::bit_cast<uint64_t>(-1e305);
  inputs[6] = std::bit_cast<uint64_t>(-std::numeric_limits<double>::infinity());
  Check({"cvt.rz.f16.f64 %hd, %a;", 'h',
         [](auto a, auto, auto) -> uint64_t {
           if (std::isinf(D(a))) return 0xfc00;
           return D(a) < 0 ? 0xfbff : 0x7bff;
         }},
        inputs);
}

TEST(FloatOperations, HalvesRoundTrip) {
  // Every half that is no NaN survives the way to float and back.
  std::vector<uint64_t> inputs(size_t{65536} * 3);
  for (size_t i = 0; i < 65536; ++i) inputs[3 * i] = i;
  Check({"cvt.f32.f16 %wd, %ha;\n cvt.rn.f16.f32 %hd, %wd;", 'h',
         [](auto a, auto, auto) -> uint64_t {
           const bool nan = (a & 0x7c00) == 0x7c00 && (a & 0x3ff) != 0;
           return nan ? 0x7fff : a;
         }},
        inputs);
  Check({"cvt.f32.f16 %wd, %ha;", 'w',
         [](auto a, auto, auto) { return B(static_cast<float>(HalfValue(a))); }},
        inputs);
}

TEST(FloatOperations, Testp) {
  const std::pair<const char*, bool (*)(double, int)> kTests[] = {
      {"finite", [](double x, int) { return std::isfinite(x); }},
      {"infinite", [](double x, int) { return std::isinf(x); }},
      {"number", [](double x, int) { return !std::isnan(x); }},
      {"notanumber", [](double x, int) { return std::isnan(x); }},
      // Zero counts as normal.
      {"normal", [](double, int kind) { return kind == FP_NORMAL || kind == FP_ZERO; }},
      {"subnormal", [](double, int kind) { return kind == FP_SUBNORMAL; }},
  };
  for (const auto& [name, holds] : kTests) {
    const std::string test = std::string("testp.") + name;
    Check({test + ".f32 %p, %wa;\n selp.u32 %wd, 1, 0, %p;", 'w',
           [holds = holds](auto a, auto, auto) { return holds(F(a), std::fpclassify(F(a))); }});
    Check({test + ".f64 %p, %a;\n selp.u32 %wd, 1, 0, %p;", 'w',
           [holds = holds](auto a, auto, auto) { return holds(D(a), std::fpclassify(D(a))); }});
  }
}

}  // namespace
}  // namespace tandem::ptx
