// cvt between all pairs of types, in every rounding mode, with every modifier, against exact
// values.
#include <string>

#include "softgpu/ptx/float_format.h"

namespace tandem::ptx {
namespace {

using WholeNumber = __int128;

struct WholeType {
  const char* name;
  int bits;
  bool is_signed;

  WholeNumber least() const { return is_signed ? -(WholeNumber{1} << (bits - 1)) : 0; }
  WholeNumber most() const { return least() + (WholeNumber{1} << bits) - 1; }
  WholeNumber Value(uint64_t raw) const {
    const WholeNumber value = raw & (~uint64_t{0} >> (64 - bits));
    return value > most() ? value - (WholeNumber{1} << bits) : value;
  }
};

constexpr WholeType kWholes[] = {{".u8", 8, false},   {".u16", 16, false}, {".u32", 32, false},
                                 {".u64", 64, false}, {".s8", 8, true},    {".s16", 16, true},
                                 {".s32", 32, true},  {".s64", 64, true}};

struct RoundingName {
  const char* name;
  Round round;
};
constexpr RoundingName kToFloat[] = {
    {".rn", Round::kNearest}, {".rz", Round::kZero}, {".rm", Round::kDown}, {".rp", Round::kUp}};
constexpr RoundingName kToWhole[] = {{".rni", Round::kNearest},
                                     {".rzi", Round::kZero},
                                     {".rmi", Round::kDown},
                                     {".rpi", Round::kUp}};

// The register of at least `bits` bits.
std::string RegisterOf(int bits, char which) {
  return std::string(bits <= 16 ? "%h" : bits == 32 ? "%w" : "%") + which;
}
char ResultIn(int bits) {
  return bits <= 16 ? 'h' : bits == 32 ? 'w' : 'd';
}
uint64_t Cut(WholeNumber value, int bits) {
  return static_cast<uint64_t>(value) & (~uint64_t{0} >> (64 - std::max(bits, 16)));
}

// Each of these as the first input, and then others.
std::vector<uint64_t> Each(const std::vector<uint64_t>& values) {
  std::vector<uint64_t> inputs;
  for (const uint64_t value : values) inputs.insert(inputs.end(), {value, ~value, value});
  const std::vector<uint64_t> others = Inputs();
  inputs.insert(inputs.end(), others.begin(), others.end());
  inputs.resize(inputs.size() / kGroup * kGroup);
  return inputs;
}

// Of `bits` bits: where the integer types end, next to the powers of two, and of every length.
std::vector<uint64_t> WholeInputs(int bits) {
  std::vector<uint64_t> values = {0};
  std::mt19937_64 random(Seed());
  for (int bit = 0; bit < bits; ++bit) {
    const uint64_t power = uint64_t{1} << bit, half = power >> 1;
    for (const uint64_t value : {power, power - 1, power + 1, power | half, power + half - 1,
                                 random() >> (63 - bit), random() & ~(power - 1)}) {
      values.insert(values.end(), {value, 0 - value});
    }
    // Just at, below and above the middle of two neighbours in each format.
    for (const FloatFormat& format : {kBf16, kF16, kF32, kF64}) {
      if (bit <= format.mantissa) continue;
      const uint64_t tie = power >> (format.mantissa + 1), place = tie << 1;
      for (const uint64_t value : {power + tie, power + tie + place, power + tie - 1,
                                   power + tie + 1, power + place + tie + 1}) {
        values.insert(values.end(), {value, 0 - value});
      }
    }
  }
  return Each(values);
}

// Numbers at which conversions change their mind, in one format.
std::vector<uint64_t> FloatInputsOf(const FloatFormat& from) {
  std::vector<uint64_t> values = {from.infinity(),
                                  from.infinity() - 1,
                                  from.nan,
                                  0,
                                  1,
                                  2,
                                  (uint64_t{1} << from.mantissa) - 1,
                                  uint64_t{1} << from.mantissa};
  const auto add_near = [&](Quad value) {
    const uint64_t raw = from.Nearest(value);
    values.insert(values.end(), {raw - 1, raw, raw + 1});
  };
  for (const Quad value : {Quad(0.5), Quad(1), Quad(1.5), Quad(2.5), Quad(3.5), Quad(0.4),
                           Quad(100), Quad(127.5), Quad(255.5)}) {
    add_near(value);
  }
  for (const int power : {7, 8, 11, 15, 16, 24, 31, 32, 52, 53, 63, 64}) {
    add_near(std::ldexp(1.0L, power));
    add_near(std::ldexp(1.0L, power) - 0.5L);
  }
  // Of each format: the ends of its ranges, and a tie.
  for (const FloatFormat& to : {kF16, kBf16, kF32}) {
    for (const uint64_t raw : {uint64_t{1}, uint64_t{2}, uint64_t{1} << to.mantissa,
                               to.infinity() - 1, to.infinity(), to.Nearest(1)}) {
      const Quad value = to.Magnitude(raw), next = to.Magnitude(raw + 1);
      add_near(value);
      if (raw < to.infinity()) add_near((value + next) / 2);
      add_near((value + to.Magnitude(raw - 1)) / 2);
    }
  }
  for (size_t i = values.size(); i-- > 0;) values.push_back(values[i] ^ from.sign());
  return Each(values);
}

// cvt.D.S: the result fills the register, whose width may be more than the type's; so may be that
// of the source.
TEST(Conversions, BetweenIntegers) {
  for (const WholeType& from : kWholes) {
    const std::vector<uint64_t> inputs = WholeInputs(from.bits);
    for (const WholeType& to : kWholes) {
      for (const bool sat : {false, true}) {
        for (const bool wide : {false, true}) {
          const int bits = wide ? 64 : to.bits;
          const std::string text = std::string("cvt") + (sat ? ".sat" : "") + to.name + from.name +
                                   " " + RegisterOf(bits, 'd') + ", " +
                                   RegisterOf(wide ? 64 : from.bits, 'a') + ";";
          Check({text, ResultIn(bits),
                 [=](auto a, auto, auto) {
                   const WholeNumber value = from.Value(a);
                   const WholeNumber kept = sat ? std::clamp(value, to.least(), to.most())
                                                : to.Value(static_cast<uint64_t>(value));
                   return Cut(kept, bits);
                 }},
                inputs);
        }
      }
    }
  }
}

// The whole number next to `value` in the direction that `round` says; infinities stay beyond all
// types, and a NaN gives 0.
WholeNumber WholeOf(Quad value, Round round) {
  if (value != value) return 0;
  if (value >= 0x1p100) return WholeNumber{1} << 100;
  if (value <= -0x1p100) return -(WholeNumber{1} << 100);
  const WholeNumber cut = static_cast<WholeNumber>(value);
  const Quad rest = value - static_cast<Quad>(cut), size = rest < 0 ? -rest : rest;
  if (round == Round::kDown) return rest < 0 ? cut - 1 : cut;
  if (round == Round::kUp) return rest > 0 ? cut + 1 : cut;
  const bool away = size > 0.5 || (size == 0.5 && (cut & 1) != 0);
  if (round == Round::kZero || !away) return cut;
  return rest < 0 ? cut - 1 : cut + 1;
}

// Saturates, whether .sat is there or not.
TEST(Conversions, FloatsToIntegers) {
  const auto check = [](const FloatFormat& from, const RoundingName& mode, const WholeType& to,
                        const std::string& modifiers, const std::vector<uint64_t>& inputs) {
    const bool ftz = modifiers.starts_with(".ftz");
    const std::string text = std::string("cvt") + mode.name + modifiers + to.name + "." +
                             from.name + " " + RegisterOf(to.bits, 'd') + ", " +
                             RegisterOf(from.bits, 'a') + ";";
    Check({text, ResultIn(to.bits),
           [=, round = mode.round](auto a, auto, auto) {
             const Quad value = from.Value(ftz ? from.Flush(a) : a);
             return Cut(std::clamp(WholeOf(value, round), to.least(), to.most()), to.bits);
           }},
          inputs);
  };
  for (const FloatFormat& from : {kF16, kBf16, kF32, kF64}) {
    const std::vector<uint64_t> inputs = FloatInputsOf(from);
    for (const RoundingName& mode : kToWhole) {
      for (const WholeType& to : kWholes) {
        check(from, mode, to, "", inputs);
        check(from, mode, to, ".sat", inputs);
        if (from.bits != 32) continue;
        check(from, mode, to, ".ftz", inputs);
        check(from, mode, to, ".ftz.sat", inputs);
      }
    }
  }
}

TEST(Conversions, IntegersToFloats) {
  for (const WholeType& from : kWholes) {
    const std::vector<uint64_t> inputs = WholeInputs(from.bits);
    for (const FloatFormat& to : {kF16, kBf16, kF32, kF64}) {
      for (const RoundingName& mode : kToFloat) {
        for (const bool sat : {false, true}) {
          if (sat && std::string(to.name) == "bf16") continue;  // PTX has none
          const std::string text = std::string("cvt") + mode.name + (sat ? ".sat." : ".") +
                                   to.name + from.name + " " + RegisterOf(to.bits, 'd') + ", " +
                                   RegisterOf(from.bits, 'a') + ";";
          Check({text, ResultIn(to.bits),
                 [=, round = mode.round](auto a, auto, auto) {
                   const uint64_t raw = to.Rounded(static_cast<Quad>(from.Value(a)), 0, round);
                   return sat ? to.Saturated(raw) : raw;
                 }},
                inputs);
        }
      }
    }
  }
}

struct FloatPair {
  FloatFormat to, from;
  std::vector<std::string> modifiers;
};

// .ftz is for f32 alone, as the source and as the result.
void CheckFloatPair(const FloatPair& pair, const RoundingName& mode) {
  const FloatFormat &to = pair.to, &from = pair.from;
  const std::vector<uint64_t> inputs = FloatInputsOf(from);
  for (const std::string& modifiers : pair.modifiers) {
    const bool ftz = modifiers.find("ftz") != std::string::npos;
    const bool sat = modifiers.find("sat") != std::string::npos;
    const std::string text = std::string("cvt") + mode.name + modifiers + "." + to.name + "." +
                             from.name + " " + RegisterOf(to.bits, 'd') + ", " +
                             RegisterOf(from.bits, 'a') + ";";
    Check({text, ResultIn(to.bits),
           [=, round = mode.round](auto a, auto, auto) {
             const Quad value = from.Value(ftz && from.bits == 32 ? from.Flush(a) : a);
             const uint64_t raw = to.Rounded(value, 0, round);
             const uint64_t kept = ftz && to.bits == 32 ? to.Flush(raw) : raw;
             return sat ? to.Saturated(kept) : kept;
           }},
          inputs);
  }
}

const std::vector<std::string> kFlushOrSaturate = {"", ".ftz", ".sat", ".ftz.sat"};
const std::vector<std::string> kSaturate = {"", ".sat"};

TEST(Conversions, FloatsToNarrowerOnes) {
  const FloatPair kPairs[] = {{kF16, kF32, kFlushOrSaturate},
                              {kF32, kF64, kFlushOrSaturate},
                              {kF16, kF64, kSaturate},
                              {kBf16, kF32, {""}},
                              {kBf16, kF64, {""}},
                              {kBf16, kF16, {""}},
                              {kF16, kBf16, {""}}};
  for (const FloatPair& pair : kPairs) {
    for (const RoundingName& mode : kToFloat) CheckFloatPair(pair, mode);
  }
}

// Of the same width, too.
TEST(Conversions, FloatsToWiderOnes) {
  const FloatPair kPairs[] = {{kF32, kF16, kFlushOrSaturate}, {kF64, kF32, kFlushOrSaturate},
                              {kF64, kF16, kSaturate},        {kF64, kBf16, {""}},
                              {kF32, kBf16, {"", ".ftz"}},    {kF32, kF32, kFlushOrSaturate},
                              {kF64, kF64, kSaturate},        {kF16, kF16, kSaturate}};
  for (const FloatPair& pair : kPairs) CheckFloatPair(pair, {"", Round::kNearest});
}

// cvt.rni.f32.f32 and its like: to a float that is whole. What rounds to zero keeps its sign.
TEST(Conversions, FloatsToWholeFloats) {
  const std::pair<FloatFormat, std::vector<std::string>> kFormats[] = {
      {kF16, kSaturate}, {kBf16, {""}}, {kF32, kFlushOrSaturate}, {kF64, kSaturate}};
  for (const auto& [format, all_modifiers] : kFormats) {
    const std::vector<uint64_t> inputs = FloatInputsOf(format);
    for (const RoundingName& mode : kToWhole) {
      for (const std::string& modifiers : all_modifiers) {
        const bool ftz = modifiers.starts_with(".ftz"), sat = modifiers.ends_with(".sat");
        const std::string name = std::string(".") + format.name;
        Check({std::string("cvt") + mode.name + modifiers + name + name + " " +
                   RegisterOf(format.bits, 'd') + ", " + RegisterOf(format.bits, 'a') + ";",
               ResultIn(format.bits),
               [=, f = format, round = mode.round](auto a, auto, auto) {
                 const uint64_t raw = ftz ? f.Flush(a) : a & (2 * f.sign() - 1);
                 const Quad value = f.Value(raw), size = value < 0 ? -value : value;
                 uint64_t whole = size < 0x1p53
                                      ? f.Nearest(static_cast<Quad>(WholeOf(value, round)))
                                      : f.Nearest(value);
                 if (whole == 0) whole = raw & f.sign();
                 return sat ? f.Saturated(whole) : whole;
               }},
              inputs);
      }
    }
  }
}

// One number, or two in a register, to a half or bfloat.
TEST(Conversions, PackedHalvesWithModifiers) {
  const std::vector<uint64_t> inputs = FloatInputsOf(kF32);
  for (const FloatFormat& to : {kF16, kBf16}) {
    for (const RoundingName& mode : {kToFloat[0], kToFloat[1]}) {
      for (const char* modifiers : {"", ".relu", ".satfinite", ".relu.satfinite"}) {
        const std::string with = modifiers, name = std::string("cvt") + mode.name + with + ".";
        const bool relu = with.starts_with(".relu"), finite = with.ends_with(".satfinite");
        const auto one = [=, round = mode.round](uint64_t raw) {
          uint64_t result = to.Rounded(kF32.Value(raw), 0, round);
          if (relu && result != to.nan && (result & to.sign()) != 0) result = 0;
          return finite && (result & ~to.sign()) == to.infinity() ? result - 1 : result;
        };
        Check({name + to.name + ".f32 %hd, %wa;", 'h', [=](auto a, auto, auto) { return one(a); }},
              inputs);
        Check({name + to.name + "x2.f32 %wd, %wa, %wb;", 'w',
               [=](auto a, auto b, auto) { return one(a) << 16 | one(b); }},
              inputs);
      }
    }
  }
}

// An f32 of 10 bits of fraction; .rna takes what lies in the middle away from zero.
TEST(Conversions, Tf32) {
  const FloatFormat tf32 = {"tf32", 19, 10, -126, 127, 0};
  const std::vector<uint64_t> inputs = FloatInputsOf(kF32);
  for (const char* name : {"rn", "rz", "rna"}) {
    const std::string mode = name;
    for (const char* modifiers : {"", ".relu", ".satfinite", ".relu.satfinite"}) {
      const std::string with = modifiers;
      const bool relu = with.starts_with(".relu"), finite = with.ends_with(".satfinite");
      if (mode == "rna" && relu) continue;
      Check({"cvt." + mode + with + ".tf32.f32 %wd, %wa;", 'w',
             [=](auto a, auto, auto) -> uint64_t {
               const Quad value = kF32.Value(a);
               if (value != value) return kF32.nan;
               const Quad away = mode == "rna" ? (value < 0 ? -0x1p-400 : 0x1p-400) : 0;
               const Round round = mode == "rz" ? Round::kZero : Round::kNearest;
               uint64_t result = tf32.Rounded(value, away, round);
               if (relu && (result & tf32.sign()) != 0) result = 0;
               if (finite && (result & ~tf32.sign()) == tf32.infinity()) --result;
               return result << 13;
             }},
            inputs);
    }
  }
}

TEST(Conversions, PackedIntegers) {
  for (const WholeType& to : kWholes) {
    if (to.bits > 16) continue;
    const std::string text = std::string("cvt.pack.sat") + to.name + ".s32";
    const auto both = [=](uint64_t a, uint64_t b) {
      const auto one = [&](uint64_t raw) {
        const WholeNumber clamped = std::clamp<WholeNumber>(S(raw), to.least(), to.most());
        return static_cast<uint64_t>(clamped) & ((uint64_t{1} << to.bits) - 1);
      };
      return one(a) << to.bits | one(b);
    };
    if (to.bits == 16) {
      Check({text + " %wd, %wa, %wb;", 'w', [=](auto a, auto b, auto) { return both(a, b); }},
            WholeInputs(32));
    } else {
      Check({text + ".b32 %wd, %wa, %wb, %wc;", 'w',
             [=](auto a, auto b, auto c) { return W(c << 16 | both(a, b)); }},
            WholeInputs(32));
    }
  }
}

}  // namespace
}  // namespace tandem::ptx
