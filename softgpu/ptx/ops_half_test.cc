// Halves and bfloats, alone and in pairs, against references in higher precision.
#include <string>

#include "softgpu/ptx/float_format.h"

namespace tandem::ptx {
namespace {

// Every 16 bits an edge value or random ones.
std::vector<uint64_t> HalfInputs(const FloatFormat& format) {
  const uint64_t infinity = format.infinity(), one = format.Nearest(1);
  const uint64_t edges[] = {0,
                            1,
                            2,
                            (uint64_t{1} << format.mantissa) - 1,
                            uint64_t{1} << format.mantissa,
                            one,
                            one + 1,
                            one - 1,
                            format.Nearest(2),
                            format.Nearest(0.5),
                            infinity - 1,
                            infinity,
                            infinity + 1,
                            0x7fff,
                            format.Nearest(3)};
  std::mt19937_64 random(Seed());
  const auto half = [&] {
    const uint64_t bits = random();
    const uint64_t sign = bits >> 63 << 15;
    if ((bits & 3) == 0) return (edges[(bits >> 8) % std::size(edges)] ^ sign) & 0xffff;
    // Near each other, so that sums cancel and tie.
    if ((bits & 3) == 1) return sign | (one + ((bits >> 8) % 0x800)) % infinity;
    return bits >> 8 & 0xffff;
  };
  std::vector<uint64_t> inputs(size_t{kCases} * 3);
  for (uint64_t& value : inputs) value = half() | half() << 16;
  return inputs;
}

// Every 16 bits there are, as the first of three inputs.
std::vector<uint64_t> EveryHalf() {
  std::vector<uint64_t> inputs(size_t{65536} * 3);
  for (uint64_t i = 0; i < 65536; ++i) inputs[3 * i] = i | (i ^ 0xffff) << 16;
  return inputs;
}

using HalfReference = std::function<uint64_t(uint64_t, uint64_t, uint64_t)>;

// One operation on a format's scalars and on its pairs.
void CheckBoth(const FloatFormat& format, const std::string& name, int operands,
               const HalfReference& expect, const std::string& suffix = "") {
  const std::string wide[] = {"", ", %wa", ", %wa, %wb", ", %wa, %wb, %wc"};
  const std::string narrow[] = {"", ", %ha", ", %ha, %hb", ", %ha, %hb, %hc"};
  const auto each = [expect](auto a, auto b, auto c) {
    const uint64_t low = expect(a & 0xffff, b & 0xffff, c & 0xffff);
    return low | expect(a >> 16 & 0xffff, b >> 16 & 0xffff, c >> 16 & 0xffff) << 16;
  };
  const auto inputs = operands == 1 ? EveryHalf() : HalfInputs(format);
  Check({name + "." + format.name + " %hd" + narrow[operands] + ";" + suffix, 'h',
         [expect](auto a, auto b, auto c) { return expect(a & 0xffff, b & 0xffff, c & 0xffff); }},
        inputs);
  Check({name + "." + format.name + "x2 %wd" + wide[operands] + ";" + suffix, 'w', each}, inputs);
}

bool IsNan(const FloatFormat& f, uint64_t bits) {
  return (bits & 0x7fff) > f.infinity();
}

uint64_t Least(const FloatFormat& f, uint64_t a, uint64_t b, bool nan) {
  if (IsNan(f, a) || IsNan(f, b)) {
    if (nan || (IsNan(f, a) && IsNan(f, b))) return 0x7fff;
    return IsNan(f, a) ? b : a;
  }
  if (f.Value(a) == f.Value(b)) return (a & 0x8000) != 0 ? a : b;
  return f.Value(a) < f.Value(b) ? a : b;
}

// What the modifiers of one instruction make of operands and results.
struct HalfModifiers {
  FloatFormat format;
  bool ftz = false, sat = false, relu = false;

  std::string text() const {
    return std::string(ftz ? ".ftz" : "") + (sat ? ".sat" : "") + (relu ? ".relu" : "");
  }
  Quad In(uint64_t bits) const { return format.Value(ftz ? format.Flush(bits) : bits); }
  uint64_t Out(uint64_t bits) const {
    if (ftz) bits = format.Flush(bits);
    if (relu && (bits & 0x8000) != 0) return 0;
    return sat ? format.Saturated(bits) : bits;
  }
};

void CheckSums(const HalfModifiers& m, const std::string& rounding) {
  const FloatFormat& f = m.format;
  const std::string suffix = rounding + m.text();
  CheckBoth(f, "add" + suffix, 2,
            [=](auto a, auto b, auto) { return m.Out(f.Sum(m.In(a), m.In(b))); });
  CheckBoth(f, "sub" + suffix, 2,
            [=](auto a, auto b, auto) { return m.Out(f.Sum(m.In(a), -m.In(b))); });
  CheckBoth(f, "mul" + suffix, 2,
            [=](auto a, auto b, auto) { return m.Out(f.Nearest(m.In(a) * m.In(b))); });
}

void CheckFma(const HalfModifiers& m) {
  const FloatFormat& f = m.format;
  CheckBoth(f, "fma.rn" + m.text(), 3,
            [=](auto a, auto b, auto c) { return m.Out(f.Sum(m.In(a) * m.In(b), m.In(c))); });
}

TEST(HalfOperations, EveryModifierOfSumsAndProducts) {
  for (const std::string rounding : {"", ".rn"}) {
    for (const bool ftz : {false, true}) {
      for (const bool sat : {false, true}) CheckSums({kF16, ftz, sat}, rounding);
    }
    CheckSums({kBf16}, rounding);
  }
  for (const bool ftz : {false, true}) {
    CheckFma({kF16, ftz});
    CheckFma({kF16, ftz, true});
    CheckFma({kF16, ftz, false, true});
  }
  CheckFma({kBf16});
  CheckFma({kBf16, false, false, true});
}

TEST(HalfOperations, Signs) {
  for (const FloatFormat& f : {kF16, kBf16}) {
    CheckBoth(f, "abs", 1, [](auto a, auto, auto) { return a & 0x7fff; });
    CheckBoth(f, "neg", 1, [](auto a, auto, auto) { return a ^ 0x8000; });
  }
  const FloatFormat f = kF16;
  CheckBoth(f, "abs.ftz", 1, [f](auto a, auto, auto) { return f.Flush(a) & 0x7fff; });
  CheckBoth(f, "neg.ftz", 1, [f](auto a, auto, auto) { return f.Flush(a) ^ 0x8000; });
}

TEST(HalfOperations, EveryModifierOfExtremes) {
  for (const FloatFormat& f : {kF16, kBf16}) {
    for (const int modifiers : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const bool ftz = (modifiers & 1) != 0, nan = (modifiers & 2) != 0,
                 magnitudes = (modifiers & 4) != 0;
      if (ftz && f.most > kF16.most) continue;
      const std::string text =
          std::string(ftz ? ".ftz" : "") + (nan ? ".NaN" : "") + (magnitudes ? ".xorsign.abs" : "");
      for (const bool largest : {false, true}) {
        CheckBoth(f, (largest ? "max" : "min") + text, 2, [=](auto a, auto b, auto) {
          uint64_t x = ftz ? f.Flush(a) : a, y = ftz ? f.Flush(b) : b;
          const uint64_t sign = magnitudes ? (x ^ y) & 0x8000 : 0;
          if (magnitudes) x &= 0x7fff, y &= 0x7fff;
          const bool unordered = IsNan(f, x) || IsNan(f, y);
          const uint64_t turn = largest && !unordered ? 0x8000 : 0;
          const uint64_t result = Least(f, x ^ turn, y ^ turn, nan) ^ turn;
          return IsNan(f, result) ? uint64_t{0x7fff} : result | sign;
        });
      }
    }
  }
}

// The document allows 2^-10.987 (f16) and 2^-8 (bf16) for tanh, 2^-9.9 and 2^-7 for ex2; a last
// place of the true value is less.
TEST(HalfOperations, Approximations) {
  for (const FloatFormat& f : {kF16, kBf16}) {
    CheckBoth(f, "tanh.approx", 1, [f](auto a, auto, auto) {
      return f.Nearest(std::tanh(static_cast<long double>(f.Value(a))));
    });
  }
  CheckBoth(kF16, "ex2.approx", 1, [](auto a, auto, auto) {
    return kF16.Nearest(std::exp2(static_cast<long double>(kF16.Value(a))));
  });
  CheckBoth(kBf16, "ex2.approx.ftz", 1, [](auto a, auto, auto) {
    const FloatFormat& f = kBf16;
    return f.Flush(f.Nearest(std::exp2(static_cast<long double>(f.Value(f.Flush(a))))));
  });
}

void CheckComparison(const FloatFormat& f) {
  const auto inputs = HalfInputs(f);
  const std::string name = f.name;
  const auto less = [f](auto a, auto b) {
    return f.Value(a & 0xffff) < f.Value(b & 0xffff) ? 1u : 0u;
  };
  const auto unlike = [f](auto a, auto b) {
    return !(f.Value(a & 0xffff) == f.Value(b & 0xffff)) ? 1u : 0u;
  };
  const std::string both = "selp.u32 %wd, 1, 0, %p; selp.u32 %wc, 2, 0, %q; or.b32 %wd, %wd, %wc;";
  Check({"setp.lt." + name + " %p|%q, %ha, %hb;" + both, 'w',
         [less](auto a, auto b, auto) { return less(a, b) != 0 ? 1u : 2u; }},
        inputs);
  Check({"setp.lt." + name + "x2 %p|%q, %wa, %wb;" + both, 'w',
         [less](auto a, auto b, auto) { return less(a, b) | less(a >> 16, b >> 16) << 1; }},
        inputs);
  Check({"setp.gt.u32 %q, %wc, 99999;setp.neu.and." + name + "x2 %p|%q, %wa, %wb, %q;" + both, 'w',
         [unlike](auto a, auto b, auto c) {
           return W(c) > 99999 ? unlike(a, b) | unlike(a >> 16, b >> 16) << 1 : 0u;
         }},
        inputs);
  const uint64_t one = f.Nearest(1);
  Check(
      {"set.lt." + name + "x2." + name + "x2 %wd, %wa, %wb;", 'w',
       [=](auto a, auto b, auto) { return less(a, b) * one | less(a >> 16, b >> 16) * one << 16; }},
      inputs);
  Check({"set.lt.u32." + name + "x2 %wd, %wa, %wb;", 'w',
         [=](auto a, auto b, auto) {
           return less(a, b) * 0xffff | less(a >> 16, b >> 16) * 0xffff0000u;
         }},
        inputs);
  Check({"set.lt.u32." + name + " %wd, %ha, %hb;", 'w',
         [=](auto a, auto b, auto) { return less(a, b) != 0 ? ~0u : 0u; }},
        inputs);
  Check({"set.lt." + name + ".s32 %hd, %wa, %wb;", 'h',
         [=](auto a, auto b, auto) { return S(a) < S(b) ? one : 0; }},
        inputs);
}

TEST(HalfOperations, Comparison) {
  CheckComparison(kF16);
  CheckComparison(kBf16);
}

void CheckConversions(const FloatFormat& f) {
  const std::string name = f.name;
  const auto relu = [](uint64_t bits) { return (bits & 0x8000) != 0 ? 0 : bits; };
  const auto finite = [f](uint64_t bits) {
    return (bits & 0x7fff) == f.infinity() ? bits - 1 : bits;
  };
  Check({"cvt.rn." + name + ".f32 %hd, %wa;", 'h',
         [f](auto a, auto, auto) { return f.Nearest(F(a)); }});
  Check({"cvt.rn.relu." + name + ".f32 %hd, %wa;", 'h',
         [=](auto a, auto, auto) { return relu(f.Nearest(F(a))); }});
  Check({"cvt.rn.satfinite." + name + ".f32 %hd, %wa;", 'h',
         [=](auto a, auto, auto) { return finite(f.Nearest(F(a))); }});
  Check({"cvt.rn." + name + "x2.f32 %wd, %wa, %wb;", 'w',
         [f](auto a, auto b, auto) { return f.Nearest(F(a)) << 16 | f.Nearest(F(b)); }});
  Check({"cvt.rn." + name + ".f64 %hd, %a;", 'h',
         [f](auto a, auto, auto) { return f.Nearest(D(a)); }});
  Check({"cvt.rn." + name + ".s64 %hd, %a;", 'h',
         [f](auto a, auto, auto) { return f.Nearest(static_cast<long double>(L(a))); }});
  Check({"cvt.rn." + name + ".u32 %hd, %wa;", 'h',
         [f](auto a, auto, auto) { return f.Nearest(W(a)); }});
  Check({"cvt.f32." + name + " %wd, %ha;", 'w',
         [f](auto a, auto, auto) { return B(static_cast<float>(f.Value(a & 0xffff))); }},
        HalfInputs(f));
  Check({"cvt.rzi.s32." + name + " %wd, %ha;", 'w',
         [f](auto a, auto, auto) -> uint64_t {
           const Quad value = f.Value(a & 0xffff);
           if (value != value) return 0;
           if (value >= 0x1p31) return 0x7fffffff;
           if (value <= -0x1p31) return 0x80000000;
           return W(static_cast<uint64_t>(static_cast<int64_t>(value)));
         }},
        HalfInputs(f));
  // Toward zero: the nearest, or the one before it.
  Check({"cvt.rz." + name + ".f32 %hd, %wa;", 'h', [f](auto a, auto, auto) {
           const uint64_t nearest = f.Nearest(F(a));
           const Quad value = F(a), magnitude = value < 0 ? -value : value;
           if (value != value || value - value != 0) return nearest;
           const bool above =
               (nearest & 0x7fff) == f.infinity() || f.Magnitude(nearest & 0x7fff) > magnitude;
           return above ? nearest - 1 : nearest;
         }});
}

TEST(HalfOperations, Conversions) {
  CheckConversions(kF16);
  CheckConversions(kBf16);
  Check({"cvt.rn.bf16.f16 %hd, %ha;", 'h',
         [](auto a, auto, auto) { return kBf16.Nearest(kF16.Value(a & 0xffff)); }},
        EveryHalf());
  Check({"cvt.rn.f16.bf16 %hd, %ha;", 'h',
         [](auto a, auto, auto) { return kF16.Nearest(kBf16.Value(a & 0xffff)); }},
        EveryHalf());
}

TEST(HalfOperations, Tf32AndPackedIntegers) {
  const auto cut = [](uint64_t bits, uint64_t add) -> uint64_t {
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fffffff;
    if ((bits & 0x7fffffff) == 0x7f800000) return W(bits);
    return W(bits + add) & 0xffffe000;
  };
  Check({"cvt.rna.tf32.f32 %wd, %wa;", 'w', [=](auto a, auto, auto) { return cut(W(a), 0x1000); }});
  Check({"cvt.rz.tf32.f32 %wd, %wa;", 'w', [=](auto a, auto, auto) { return cut(W(a), 0); }});
  const auto clamp = [](int32_t x, int32_t low, int32_t high) {
    return static_cast<uint32_t>(std::clamp(x, low, high));
  };
  Check({"cvt.pack.sat.s16.s32 %wd, %wa, %wb;", 'w', [=](auto a, auto b, auto) {
           return clamp(S(a), -32768, 32767) << 16 | (clamp(S(b), -32768, 32767) & 0xffff);
         }});
  Check({"cvt.pack.sat.u8.s32.b32 %wd, %wa, %wb, %wc;", 'w', [=](auto a, auto b, auto c) {
           return W(c << 16 | clamp(S(a), 0, 255) << 8 | clamp(S(b), 0, 255));
         }});
}

}  // namespace
}  // namespace tandem::ptx
