// setp, set, selp and slct in every comparison and type, with a second predicate and without.
#include <limits>
#include <string>

#include "softgpu/ptx/float_format.h"

namespace tandem::ptx {
namespace {

using Ordered = long double;  // holds every number of 64 bits

struct Comparison {
  const char* name;
  bool (*holds)(Ordered a, Ordered b);
};

constexpr bool Unordered(Ordered a, Ordered b) {
  return a != a || b != b;
}
constexpr Comparison kOrdered[] = {
    {"eq", [](Ordered a, Ordered b) { return a == b; }},
    {"ne", [](Ordered a, Ordered b) { return !Unordered(a, b) && a != b; }},
    {"lt", [](Ordered a, Ordered b) { return a < b; }},
    {"le", [](Ordered a, Ordered b) { return a <= b; }},
    {"gt", [](Ordered a, Ordered b) { return a > b; }},
    {"ge", [](Ordered a, Ordered b) { return a >= b; }},
};
constexpr Comparison kUnsigned[] = {
    {"lo", [](Ordered a, Ordered b) { return a < b; }},
    {"ls", [](Ordered a, Ordered b) { return a <= b; }},
    {"hi", [](Ordered a, Ordered b) { return a > b; }},
    {"hs", [](Ordered a, Ordered b) { return a >= b; }},
};
constexpr Comparison kFloat[] = {
    {"equ", [](Ordered a, Ordered b) { return Unordered(a, b) || a == b; }},
    {"neu", [](Ordered a, Ordered b) { return Unordered(a, b) || a != b; }},
    {"ltu", [](Ordered a, Ordered b) { return Unordered(a, b) || a < b; }},
    {"leu", [](Ordered a, Ordered b) { return Unordered(a, b) || a <= b; }},
    {"gtu", [](Ordered a, Ordered b) { return Unordered(a, b) || a > b; }},
    {"geu", [](Ordered a, Ordered b) { return Unordered(a, b) || a >= b; }},
    {"num", [](Ordered a, Ordered b) { return !Unordered(a, b); }},
    {"nan", [](Ordered a, Ordered b) { return Unordered(a, b); }},
};

// A type, the modifier that goes before it, and what its bits mean.
struct ComparedType {
  const char *ftz, *name;
  int bits;
  Ordered (*value)(uint64_t bits);

  std::string View(char which) const {
    return std::string(bits == 16 ? "%h" : bits == 32 ? "%w" : "%") + which;
  }
};

constexpr ComparedType kSignedTypes[] = {
    {"", ".s16", 16, [](uint64_t x) -> Ordered { return H(x); }},
    {"", ".s32", 32, [](uint64_t x) -> Ordered { return S(x); }},
    {"", ".s64", 64, [](uint64_t x) -> Ordered { return L(x); }},
};
constexpr ComparedType kUnsignedTypes[] = {
    {"", ".u16", 16, [](uint64_t x) -> Ordered { return x & 0xffff; }},
    {"", ".u32", 32, [](uint64_t x) -> Ordered { return W(x); }},
    {"", ".u64", 64, [](uint64_t x) -> Ordered { return x; }},
};
constexpr ComparedType kBitTypesCompared[] = {
    {"", ".b16", 16, [](uint64_t x) -> Ordered { return x & 0xffff; }},
    {"", ".b32", 32, [](uint64_t x) -> Ordered { return W(x); }},
    {"", ".b64", 64, [](uint64_t x) -> Ordered { return x; }},
};
constexpr ComparedType kFloatTypes[] = {
    {"", ".f32", 32, [](uint64_t x) -> Ordered { return F(x); }},
    {".ftz", ".f32", 32,
     [](uint64_t x) -> Ordered { return std::abs(F(x)) < 0x1p-126f ? 0.0f : F(x); }},
    {"", ".f64", 64, [](uint64_t x) -> Ordered { return D(x); }},
    {"", ".f16", 16, [](uint64_t x) -> Ordered { return kF16.Value(x); }},
    {".ftz", ".f16", 16, [](uint64_t x) -> Ordered { return kF16.Value(kF16.Flush(x)); }},
    {"", ".bf16", 16, [](uint64_t x) -> Ordered { return kBf16.Value(x); }},
};

// How the answer meets a second predicate.
struct Second {
  const char *logic, *operand;
  bool (*combine)(bool holds, bool second);
};
constexpr Second kSeconds[] = {
    {"", "", [](bool holds, bool) { return holds; }},
    {".and", ", %q", [](bool holds, bool second) { return holds && second; }},
    {".or", ", %q", [](bool holds, bool second) { return holds || second; }},
    {".xor", ", %q", [](bool holds, bool second) { return holds != second; }},
    {".and", ", !%q", [](bool holds, bool second) { return holds && !second; }},
    {".or", ", !%q", [](bool holds, bool second) { return holds || !second; }},
    {".xor", ", !%q", [](bool holds, bool second) { return holds == second; }},
};

std::vector<uint64_t> ComparedInputs() {
  const uint64_t edges[] = {0,
                            1,
                            2,
                            0x7fff,
                            0x8000,
                            0xffff,
                            0x3c003f80,
                            0xbc00bf80,
                            0x7c007f80,
                            0x7c01ff81,
                            0x80010400,
                            0x7fffffff,
                            0x80000000,
                            0x80000001,
                            0xffffffff,
                            B(1.0f),
                            B(-1.0f),
                            B(0x1p-126f),
                            B(-0x1p-126f),
                            B(0x1.fffffcp-127f),
                            B(INFINITY),
                            B(-INFINITY),
                            0xffc00001,
                            0x7f800001,
                            0x7fffffffffffffff,
                            0x8000000000000000,
                            0x8000000000000001,
                            0xffffffffffffffff,
                            B(1.0),
                            B(-1.0),
                            B(0x1p-1022),
                            B(-0x1p-1023),
                            B(double{INFINITY}),
                            B(-double{INFINITY}),
                            0x7ff0000000000001,
                            0xfff8000000000000};
  return WithPairs(edges);
}

// Calls `check` for each comparison in each type that has it.
template <class CheckOne>
void ForEachComparison(const CheckOne& check) {
  for (const ComparedType& type : kBitTypesCompared) {
    check(kOrdered[0], type);
    check(kOrdered[1], type);
  }
  for (const ComparedType& type : kSignedTypes) {
    for (const Comparison& comparison : kOrdered) check(comparison, type);
  }
  for (const ComparedType& type : kUnsignedTypes) {
    for (const Comparison& comparison : kOrdered) check(comparison, type);
    for (const Comparison& comparison : kUnsigned) check(comparison, type);
  }
  for (const ComparedType& type : kFloatTypes) {
    for (const Comparison& comparison : kOrdered) check(comparison, type);
    for (const Comparison& comparison : kFloat) check(comparison, type);
  }
}

// %q: whether c is odd.
constexpr char kSecondPredicate[] = "and.b32 %j, %wc, 1; setp.ne.u32 %q, %j, 0;\n";

// Both results of setp, in two bits for each of kSeconds.
TEST(Comparisons, Setp) {
  ForEachComparison([](const Comparison& comparison, const ComparedType& type) {
    std::string text = std::string(".reg .pred %r;\n") + kSecondPredicate + "mov.u32 %wd, 0;\n";
    for (size_t i = 0; i < std::size(kSeconds); ++i) {
      const Second& second = kSeconds[i];
      const std::string bit = std::to_string(1u << (2 * i)), next = std::to_string(2u << (2 * i));
      text += std::string("setp.") + comparison.name + second.logic + type.ftz + type.name +
              " %p|%r, " + type.View('a') + ", " + type.View('b') + second.operand + ";\n";
      text += "@%p or.b32 %wd, %wd, " + bit + ";\n@%r or.b32 %wd, %wd, " + next + ";\n";
    }
    Check({text, 'w',
           [=](auto a, auto b, auto c) {
             const bool holds = comparison.holds(type.value(a), type.value(b));
             uint64_t bits = 0;
             for (size_t i = 0; i < std::size(kSeconds); ++i) {
               if (kSeconds[i].combine(holds, (c & 1) != 0)) bits |= uint64_t{1} << (2 * i);
               if (kSeconds[i].combine(!holds, (c & 1) != 0)) bits |= uint64_t{2} << (2 * i);
             }
             return bits;
           }},
          ComparedInputs());
  });
}

// For every kind of second predicate two bits: whether the result of `set`, which leaves it in
// `result`, is `yes`, and whether it is 0.
std::string SetInstructions(const std::string& set, const std::string& types,
                            const std::string& result, const std::string& operands, uint64_t yes) {
  const std::string width = result == "%hd" ? "b16" : "b32";
  std::string text = std::string(kSecondPredicate) + "mov.u32 %hi, 0;\n";
  for (size_t i = 0; i < std::size(kSeconds); ++i) {
    const std::string bit = std::to_string(1u << (2 * i)), next = std::to_string(2u << (2 * i));
    text += set + kSeconds[i].logic + types + " " + result + operands + kSeconds[i].operand + ";\n";
    text += "setp.eq." + width + " %p, " + result + ", " + std::to_string(yes) + ";\n@%p or.b32 ";
    text += "%hi, %hi, " + bit + ";\nsetp.eq." + width + " %p, " + result + ", 0;\n@%p or.b32 ";
    text += "%hi, %hi, " + next + ";\n";
  }
  return text + "mov.u32 %wd, %hi;";
}

uint64_t SetBits(bool holds, bool second) {
  uint64_t bits = 0;
  for (size_t i = 0; i < std::size(kSeconds); ++i) {
    bits |= uint64_t{kSeconds[i].combine(holds, second) ? 1u : 2u} << (2 * i);
  }
  return bits;
}

// set: all bits, or the number 1.
TEST(Comparisons, Set) {
  const struct {
    const char* name;
    const char* result;
    uint64_t yes;
    bool of_any, of_halves;
  } kResults[] = {{".u32", "%wd", 0xffffffff, true, true}, {".s32", "%wd", 0xffffffff, true, true},
                  {".f32", "%wd", 0x3f800000, true, true}, {".u16", "%hd", 0xffff, false, true},
                  {".s16", "%hd", 0xffff, false, true},    {".f16", "%hd", 0x3c00, true, false},
                  {".bf16", "%hd", 0x3f80, true, false}};
  ForEachComparison([&](const Comparison& comparison, const ComparedType& type) {
    const std::string name = type.name;
    const bool half = name.ends_with("f16");
    for (const auto& result : kResults) {
      if (!(half ? result.of_halves || name == result.name : result.of_any)) continue;
      Check({SetInstructions(std::string("set.") + comparison.name,
                             std::string(type.ftz) + result.name + name, result.result,
                             ", " + type.View('a') + ", " + type.View('b'), result.yes),
             'w',
             [=](auto a, auto b, auto c) {
               return SetBits(comparison.holds(type.value(a), type.value(b)), (c & 1) != 0);
             }},
            ComparedInputs());
    }
  });
}

// Both parts of a register from what halves and bfloats hold.
std::vector<uint64_t> PairInputs() {
  const uint64_t edges[] = {0,          0x80000000, 0x3c003f80, 0xbc00bf80,
                            0x7c007f80, 0x7c01ff81, 0x80010400, 0x00018080};
  std::vector<uint64_t> inputs = WithPairs(edges);
  inputs.resize(512 / kBlock * kGroup);
  return inputs;
}

// Both parts of a pair are compared: setp gives a predicate for each, set all bits or 1 in each.
void CheckPairs(const Comparison& comparison, const ComparedType& half, uint64_t one) {
  const std::string type = std::string(half.name) + "x2";
  const auto holds = [=](uint64_t a, uint64_t b) {
    return comparison.holds(half.value(a), half.value(b));
  };
  for (const Second& second : kSeconds) {
    const auto both = [=](uint64_t yes) {
      return [=](auto a, auto b, auto c) {
        const bool odd = (c & 1) != 0;
        return (second.combine(holds(a, b), odd) ? yes : 0) |
               (second.combine(holds(a >> 16, b >> 16), odd) ? yes : 0) << 16;
      };
    };
    const std::string name = std::string(comparison.name) + second.logic + half.ftz;
    const std::string tail = std::string(", %wa, %wb") + second.operand + ";\n";
    Check({std::string(".reg .pred %r;\n") + kSecondPredicate + "setp." + name + type + " %p|%r" +
               tail + "selp.u32 %wd, 1, 0, %p;\n@%r or.b32 %wd, %wd, 0x10000;",
           'w', both(1)},
          PairInputs());
    for (const std::string& result : {std::string(".u32"), std::string(".s32"), type}) {
      Check({std::string(kSecondPredicate) + "set." + name + result + type + " %wd" + tail, 'w',
             both(result == type ? one : 0xffff)},
            PairInputs());
    }
  }
}

TEST(Comparisons, Pairs) {
  for (const ComparedType& half : kFloatTypes) {
    if (half.bits != 16) continue;
    const uint64_t one = half.name == std::string(".f16") ? 0x3c00 : 0x3f80;
    for (const Comparison& comparison : kOrdered) CheckPairs(comparison, half, one);
    for (const Comparison& comparison : kFloat) CheckPairs(comparison, half, one);
  }
}

TEST(Comparisons, Predicates) {
  const struct {
    const char* text;
    bool (*value)(bool p, bool q);
  } kRows[] = {
      {"and.pred %p, %p, %q;", [](bool p, bool q) { return p && q; }},
      {"or.pred %p, %p, %q;", [](bool p, bool q) { return p || q; }},
      {"xor.pred %p, %p, %q;", [](bool p, bool q) { return p != q; }},
      {"and.pred %p, !%p, %q;", [](bool p, bool q) { return !p && q; }},
      {"or.pred %p, %p, !%q;", [](bool p, bool q) { return p || !q; }},
      {"not.pred %p, %q;", [](bool, bool q) { return !q; }},
      {"mov.pred %p, %q;", [](bool, bool q) { return q; }},
  };
  for (const auto& row : kRows) {
    Check({std::string(kSecondPredicate) + "setp.lt.s32 %p, %wa, %wb;\n" + row.text +
               "\nselp.u32 %wd, 1, 0, %p;",
           'w',
           [=](auto a, auto b, auto c) { return row.value(S(a) < S(b), (c & 1) != 0) ? 1u : 0u; }},
          ComparedInputs());
  }
}

// mov, selp and slct move bits, whatever the type says they are.
TEST(Comparisons, Selection) {
  for (const char* name :
       {"b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"}) {
    const int bits = std::stoi(name + 1);
    const ComparedType type = {"", name, bits, nullptr};
    const char result = bits == 16 ? 'h' : bits == 32 ? 'w' : 'd';
    const std::string operands =
        std::string(" ") + type.View('d') + ", " + type.View('a') + ", " + type.View('b');
    const auto chosen = [bits](uint64_t a, uint64_t b, bool first) {
      return (first ? a : b) & (~uint64_t{0} >> (64 - bits));
    };
    Check({std::string(kSecondPredicate) + "selp." + name + operands + ", %q;", result,
           [=](auto a, auto b, auto c) { return chosen(a, b, (c & 1) != 0); }},
          ComparedInputs());
    Check({std::string(kSecondPredicate) + "selp." + name + operands + ", !%q;", result,
           [=](auto a, auto b, auto c) { return chosen(a, b, (c & 1) == 0); }},
          ComparedInputs());
    Check({std::string("mov.") + name + " " + type.View('d') + ", " + type.View('a') + ";", result,
           [=](auto a, auto b, auto) { return chosen(a, b, true); }},
          ComparedInputs());
    Check({std::string("slct.") + name + ".s32" + operands + ", %wc;", result,
           [=](auto a, auto b, auto c) { return chosen(a, b, S(c) >= 0); }},
          ComparedInputs());
    Check({std::string("slct.") + name + ".f32" + operands + ", %wc;", result,
           [=](auto a, auto b, auto c) { return chosen(a, b, F(c) >= 0); }},
          ComparedInputs());
    Check({std::string("slct.ftz.") + name + ".f32" + operands + ", %wc;", result,
           [=](auto a, auto b, auto c) { return chosen(a, b, kFloatTypes[1].value(c) >= 0); }},
          ComparedInputs());
  }
}

}  // namespace
}  // namespace tandem::ptx
