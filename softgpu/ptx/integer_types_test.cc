// Integer arithmetic and bits in every type that PTX has them for, against exact arithmetic.
#include <algorithm>
#include <string>

#include "softgpu/ptx/operations.h"

namespace tandem::ptx {
namespace {

using Exact = __int128;
using Bits128 = unsigned __int128;  // two's complement, of which a result takes the lowest bits

struct IntegerType {
  const char* name;
  int bits;
  bool is_signed;

  Bits128 mask() const { return (Bits128{1} << bits) - 1; }
  Exact least() const { return is_signed ? -(Exact{1} << (bits - 1)) : 0; }
  Exact most() const { return least() + static_cast<Exact>(mask()); }
  Exact Value(uint64_t raw) const {
    const Exact value = static_cast<Exact>(raw & mask());
    return is_signed && value > most() ? value - (Exact{1} << bits) : value;
  }
};

constexpr IntegerType kIntegers[] = {{"u16", 16, false}, {"u32", 32, false}, {"u64", 64, false},
                                     {"s16", 16, true},  {"s32", 32, true},  {"s64", 64, true}};
constexpr IntegerType kBitTypes[] = {{"b16", 16, false}, {"b32", 32, false}, {"b64", 64, false}};
constexpr IntegerType kS32 = {"s32", 32, true};

// Every pair of these and then others: where the types end, signs, and lengths of shifts.
std::vector<uint64_t> IntegerInputs() {
  const uint64_t edges[] = {0,
                            1,
                            2,
                            3,
                            15,
                            16,
                            17,
                            31,
                            32,
                            33,
                            63,
                            64,
                            65,
                            255,
                            256,
                            0x7fff,
                            0x8000,
                            0x8001,
                            0xffff,
                            0x7fffffff,
                            0x80000000,
                            0x80000001,
                            0xffffffff,
                            0x7fffffffffffffff,
                            0x8000000000000000,
                            0x8000000000000001,
                            0xfffffffffffffffe,
                            0xffffffffffffffff};
  return WithPairs(edges);
}

// "%wa" for 32 bits of a.
std::string View(int bits, char which) {
  return std::string(bits == 16 ? "%h" : bits == 32 ? "%w" : "%") + which;
}
char ResultOf(int bits) {
  return bits == 16 ? 'h' : bits == 32 ? 'w' : 'd';
}
Bits128 Low(int bits) {
  return (Bits128{1} << bits) - 1;
}

using ExactFunction = Bits128 (*)(Exact a, Exact b, Exact c, const IntegerType& type);

struct IntegerRow {
  const char* name;
  int operands;
  ExactFunction exact;
};

Bits128 Product(Exact a, Exact b) {
  return static_cast<Bits128>(a) * static_cast<Bits128>(b);
}
Bits128 Clamped(Exact value, const IntegerType& type) {
  return static_cast<Bits128>(std::clamp(value, type.least(), type.most()));
}

// `row` in one type; the result and the third operand have `wide` bits.
void CheckInteger(const IntegerRow& row, const IntegerType& type, int wide) {
  std::string text = std::string(row.name) + "." + type.name + " " + View(wide, 'd');
  for (int i = 0; i < row.operands; ++i) {
    text += ", " + View(i == 2 ? wide : type.bits, static_cast<char>('a' + i));
  }
  const IntegerType third = {"", wide, type.is_signed};
  Check({text + ";", ResultOf(wide),
         [=](auto a, auto b, auto c) {
           const Bits128 exact = row.exact(type.Value(a), type.Value(b), third.Value(c), type);
           return static_cast<uint64_t>(exact & Low(wide));
         }},
        IntegerInputs());
}

TEST(IntegerTypes, Arithmetic) {
  const IntegerRow kRows[] = {
      {"add", 2, [](auto a, auto b, auto, auto&) { return static_cast<Bits128>(a + b); }},
      {"sub", 2, [](auto a, auto b, auto, auto&) { return static_cast<Bits128>(a - b); }},
      {"mul.lo", 2, [](auto a, auto b, auto, auto&) { return Product(a, b); }},
      {"mul.hi", 2, [](auto a, auto b, auto, auto& t) { return Product(a, b) >> t.bits; }},
      {"mad.lo", 3,
       [](auto a, auto b, auto c, auto&) { return Product(a, b) + static_cast<Bits128>(c); }},
      {"mad.hi", 3,
       [](auto a, auto b, auto c, auto& t) {
         return (Product(a, b) >> t.bits) + static_cast<Bits128>(c);
       }},
      {"sad", 3,
       [](auto a, auto b, auto c, auto&) {
         return static_cast<Bits128>((a < b ? b - a : a - b) + c);
       }},
      // By zero all bits are set, as on a card.
      {"div", 2,
       [](auto a, auto b, auto, auto&) { return static_cast<Bits128>(b == 0 ? -1 : a / b); }},
      {"rem", 2,
       [](auto a, auto b, auto, auto&) { return static_cast<Bits128>(b == 0 ? -1 : a % b); }},
      {"min", 2, [](auto a, auto b, auto, auto&) { return static_cast<Bits128>(std::min(a, b)); }},
      {"max", 2, [](auto a, auto b, auto, auto&) { return static_cast<Bits128>(std::max(a, b)); }},
  };
  for (const IntegerRow& row : kRows) {
    for (const IntegerType& type : kIntegers) CheckInteger(row, type, type.bits);
  }
}

TEST(IntegerTypes, SignsAndSaturation) {
  const IntegerRow kSigned[] = {
      {"abs", 1, [](auto a, auto, auto, auto&) { return static_cast<Bits128>(a < 0 ? -a : a); }},
      {"neg", 1, [](auto a, auto, auto, auto&) { return static_cast<Bits128>(-a); }},
  };
  for (const IntegerRow& row : kSigned) {
    for (const IntegerType& type : kIntegers) {
      if (type.is_signed) CheckInteger(row, type, type.bits);
    }
  }
  const IntegerRow kSaturating[] = {
      {"add.sat", 2, [](auto a, auto b, auto, auto& t) { return Clamped(a + b, t); }},
      {"sub.sat", 2, [](auto a, auto b, auto, auto& t) { return Clamped(a - b, t); }},
      {"mad.hi.sat", 3,
       [](auto a, auto b, auto c, auto& t) { return Clamped(((a * b) >> 32) + c, t); }},
  };
  for (const IntegerRow& row : kSaturating) CheckInteger(row, kS32, 32);
}

// Results, and the third operand, are twice as wide as the type.
TEST(IntegerTypes, WideProducts) {
  const IntegerRow kRows[] = {
      {"mul.wide", 2, [](auto a, auto b, auto, auto&) { return Product(a, b); }},
      {"mad.wide", 3,
       [](auto a, auto b, auto c, auto&) { return Product(a, b) + static_cast<Bits128>(c); }},
  };
  for (const IntegerRow& row : kRows) {
    for (const IntegerType& type : kIntegers) {
      if (type.bits < 64) CheckInteger(row, type, 2 * type.bits);
    }
  }
}

// The lowest 24 bits of a and b: `.lo` gives bits 0 to 31 of the product, `.hi` bits 16 to 47.
TEST(IntegerTypes, ProductsOf24Bits) {
  for (const bool is_signed : {false, true}) {
    const IntegerType factor = {"", 24, is_signed};
    const std::string type = is_signed ? ".s32" : ".u32";
    for (const bool high : {false, true}) {
      const std::string half = high ? ".hi" : ".lo";
      const auto product = [=](uint64_t a, uint64_t b) {
        return W(
            static_cast<uint64_t>(Product(factor.Value(a), factor.Value(b)) >> (high ? 16 : 0)));
      };
      Check({"mul24" + half + type + " %wd, %wa, %wb;", 'w',
             [=](auto a, auto b, auto) { return product(a, b); }},
            IntegerInputs());
      Check({"mad24" + half + type + " %wd, %wa, %wb, %wc;", 'w',
             [=](auto a, auto b, auto c) { return W(product(a, b) + c); }},
            IntegerInputs());
    }
  }
}

// The carry goes from an instruction to the next: a 128- or 64-bit sum in two parts. A difference
// is a sum with the complement, so that nothing is borrowed where it carries.
TEST(IntegerTypes, Carries) {
  for (const IntegerType& type : kIntegers) {
    if (type.bits == 16) continue;
    const int bits = type.bits;
    const std::string dot = std::string(".") + type.name + " ", d = View(bits, 'd');
    const std::string a = View(bits, 'a'), b = View(bits, 'b'), c = View(bits, 'c');
    for (int subtracts = 0; subtracts < 8; ++subtracts) {
      const auto name = [=](int place) { return (subtracts >> place & 1) != 0 ? "sub" : "add"; };
      // What is carried out of c ± a, which takes what a ± b carries.
      std::string text = name(0) + (".cc" + dot) + d + ", " + a + ", " + b + ";\n";
      text += name(1) + ("c.cc" + dot) + d + ", " + c + ", " + a + ";\n";
      text += name(2) + ("c" + dot) + d + ", " + d + ", 0;";
      Check({text, ResultOf(bits),
             [=](auto x, auto y, auto z) {
               const Bits128 low = Low(bits);
               Bits128 carry = subtracts & 1;
               const auto sum = [&](int place, uint64_t p, uint64_t q) {
                 const bool minus = (subtracts >> place & 1) != 0;
                 const Bits128 all = (p & low) + ((minus ? ~q : q) & low) + carry;
                 carry = all >> bits;
                 return static_cast<uint64_t>(all & low);
               };
               sum(0, x, y);
               const uint64_t second = sum(1, z, x);
               return sum(2, second, 0);
             }},
            IntegerInputs());
    }
  }
}

// mad.cc and madc, of which each takes half of a product.
TEST(IntegerTypes, CarriesOfProducts) {
  for (const IntegerType& type : kIntegers) {
    if (type.bits == 16) continue;
    const int bits = type.bits;
    for (const bool high : {false, true}) {
      const std::string half = high ? ".hi" : ".lo", dot = std::string(".") + type.name + " ";
      const std::string d = View(bits, 'd'), a = View(bits, 'a'), b = View(bits, 'b'),
                        c = View(bits, 'c');
      std::string text = "mad" + half + ".cc" + dot + d + ", " + a + ", " + b + ", " + c + ";\n";
      text += "madc" + half + ".cc" + dot + d + ", " + a + ", " + c + ", " + d + ";\n";
      text += "madc" + half + dot + d + ", " + b + ", " + c + ", " + d + ";";
      Check({text, ResultOf(bits),
             [=](auto x, auto y, auto z) {
               const auto part = [&](uint64_t p, uint64_t q) {
                 return Product(type.Value(p), type.Value(q)) >> (high ? bits : 0) & Low(bits);
               };
               const Bits128 first = part(x, y) + (z & Low(bits));
               const Bits128 second = part(x, z) + (first & Low(bits)) + (first >> bits);
               const Bits128 third = part(y, z) + (second & Low(bits)) + (second >> bits);
               return static_cast<uint64_t>(third & Low(bits));
             }},
            IntegerInputs());
    }
  }
}

TEST(IntegerTypes, Logic) {
  const struct {
    const char* name;
    int operands;
    Bits128 (*value)(Bits128 a, Bits128 b);
  } kRows[] = {
      {"and", 2, [](auto a, auto b) { return a & b; }},
      {"or", 2, [](auto a, auto b) { return a | b; }},
      {"xor", 2, [](auto a, auto b) { return a ^ b; }},
      {"not", 1, [](auto a, auto) { return ~a; }},
      {"cnot", 1, [](auto a, auto) { return Bits128{a == 0 ? 1u : 0u}; }},
  };
  for (const auto& row : kRows) {
    for (const IntegerType& type : kBitTypes) {
      std::string text = std::string(row.name) + "." + type.name + " " + View(type.bits, 'd') +
                         ", " + View(type.bits, 'a');
      if (row.operands == 2) text += ", " + View(type.bits, 'b');
      Check({text + ";", ResultOf(type.bits),
             [=](auto a, auto b, auto) {
               return static_cast<uint64_t>(row.value(a & type.mask(), b & type.mask()) &
                                            type.mask());
             }},
            IntegerInputs());
    }
  }
}

// The length is a u32 and may be longer than the register.
TEST(IntegerTypes, Shifts) {
  const auto check = [](const char* name, const IntegerType& type, bool left) {
    Check({std::string(name) + "." + type.name + " " + View(type.bits, 'd') + ", " +
               View(type.bits, 'a') + ", %wb;",
           ResultOf(type.bits),
           [=](auto a, auto b, auto) {
             const Exact value = type.Value(a);
             const uint32_t length = std::min(W(b), 64u);
             return static_cast<uint64_t>(
                 static_cast<Bits128>(left ? value << length : value >> length) & type.mask());
           }},
          IntegerInputs());
  };
  for (const IntegerType& type : kBitTypes) {
    check("shl", type, true);
    check("shr", type, false);
  }
  for (const IntegerType& type : kIntegers) check("shr", type, false);
  for (const bool left : {false, true}) {
    for (const bool wraps : {false, true}) {
      const std::string name =
          std::string("shf.") + (left ? "l" : "r") + (wraps ? ".wrap" : ".clamp");
      Check({name + ".b32 %wd, %wa, %wb, %wc;", 'w',
             [=](auto a, auto b, auto c) {
               const Bits128 both = Bits128{W(b)} << 32 | W(a);
               const uint32_t length = wraps ? W(c) & 31 : std::min(W(c), 32u);
               return W(static_cast<uint64_t>(left ? both << length >> 32 : both >> length));
             }},
            IntegerInputs());
    }
  }
}

TEST(IntegerTypes, CountsAndPlaces) {
  const auto bit = [](uint64_t a, int i) { return (a >> i & 1) != 0; };
  for (const int bits : {32, 64}) {
    const std::string type = ".b" + std::to_string(bits), a = View(bits, 'a');
    Check({"popc" + type + " %wd, " + a + ";", 'w',
           [=](auto x, auto, auto) {
             uint64_t count = 0;
             for (int i = 0; i < bits; ++i) count += bit(x, i) ? 1 : 0;
             return count;
           }},
          IntegerInputs());
    Check({"clz" + type + " %wd, " + a + ";", 'w',
           [=](auto x, auto, auto) {
             uint64_t zeros = 0;
             for (int i = bits - 1; i >= 0 && !bit(x, i); --i) ++zeros;
             return zeros;
           }},
          IntegerInputs());
    Check({"brev" + type + " " + View(bits, 'd') + ", " + a + ";", ResultOf(bits),
           [=](auto x, auto, auto) {
             uint64_t reversed = 0;
             for (int i = 0; i < bits; ++i) {
               reversed |= uint64_t{bit(x, i) ? 1u : 0u} << (bits - 1 - i);
             }
             return reversed;
           }},
          IntegerInputs());
  }
}

// The highest bit that is no sign bit.
TEST(IntegerTypes, Bfind) {
  for (const IntegerType& type : kIntegers) {
    if (type.bits == 16) continue;
    for (const bool shift : {false, true}) {
      Check({std::string("bfind") + (shift ? ".shiftamt." : ".") + type.name + " %wd, " +
                 View(type.bits, 'a') + ";",
             'w',
             [=](auto a, auto, auto) {
               const Exact value = type.Value(a), magnitude = value < 0 ? ~value : value;
               int place = type.bits - 1;
               while (place >= 0 && (magnitude >> place & 1) == 0) --place;
               return place < 0 ? ~0u : U(shift ? type.bits - 1 - place : place);
             }},
            IntegerInputs());
    }
  }
}

TEST(IntegerTypes, Fields) {
  for (const IntegerType& type : kIntegers) {
    if (type.bits == 16) continue;
    // Beyond the register every bit is the sign, or zero; a field of no bits is zero.
    Check({std::string("bfe.") + type.name + " " + View(type.bits, 'd') + ", " +
               View(type.bits, 'a') + ", %wb, %wc;",
           ResultOf(type.bits),
           [=](auto a, auto b, auto c) {
             const int start = static_cast<int>(b & 255), length = static_cast<int>(c & 255);
             if (length == 0) return uint64_t{0};
             const IntegerType field = {"", std::min(length, type.bits), type.is_signed};
             const Exact shifted = type.Value(a) >> std::min(start, type.bits);
             const Exact value = field.Value(static_cast<uint64_t>(shifted));
             return static_cast<uint64_t>(static_cast<Bits128>(value) & type.mask());
           }},
          IntegerInputs());
  }
  for (const int bits : {32, 64}) {
    Check({"bfi.b" + std::to_string(bits) + " " + View(bits, 'd') + ", " + View(bits, 'a') + ", " +
               View(bits, 'b') + ", %wc, %wa;",
           ResultOf(bits),
           [=](auto a, auto b, auto c) {
             const int start = static_cast<int>(c & 255), length = static_cast<int>(a & 255);
             const Bits128 field = Low(std::min(length, 64)) << std::min(start, 64);
             const Bits128 moved = static_cast<Bits128>(a) << std::min(start, 64);
             return static_cast<uint64_t>(((b & ~field) | (moved & field)) & Low(bits));
           }},
          IntegerInputs());
  }
}

TEST(IntegerTypes, MasksAndExtensions) {
  for (const bool clamps : {false, true}) {
    const std::string mode = clamps ? ".clamp" : ".wrap";
    Check({"bmsk" + mode + ".b32 %wd, %wa, %wb;", 'w',
           [=](auto a, auto b, auto) {
             const uint64_t start = clamps ? W(a) : a & 31, length = clamps ? W(b) : b & 31;
             uint64_t mask = 0;
             for (uint64_t i = start; i < 32 && i - start < length; ++i) mask |= uint64_t{1} << i;
             return mask;
           }},
          IntegerInputs());
    for (const bool is_signed : {false, true}) {
      Check({"szext" + mode + (is_signed ? ".s32" : ".u32") + " %wd, %wa, %wb;", 'w',
             [=](auto a, auto b, auto) -> uint64_t {
               const int length = static_cast<int>(clamps ? std::min(W(b), 32u) : b & 31);
               if (length == 0) return 0;
               const IntegerType field = {"", length, is_signed};
               return W(static_cast<uint64_t>(field.Value(a)));
             }},
            IntegerInputs());
    }
  }
}

TEST(IntegerTypes, DotProducts) {
  for (const bool a_signed : {false, true}) {
    for (const bool b_signed : {false, true}) {
      const std::string types = std::string(a_signed ? ".s32" : ".u32") +
                                (b_signed ? ".s32" : ".u32") + " %wd, %wa, %wb, %wc;";
      const auto sum = [=](int a_bits, uint64_t a, uint64_t b, uint64_t c) {
        const IntegerType first = {"", a_bits, a_signed}, second = {"", 8, b_signed};
        Exact sum = static_cast<Exact>(W(c));
        for (int i = 0; i < 32 / a_bits; ++i) {
          sum += first.Value(W(a) >> (a_bits * i)) * second.Value(W(b) >> (8 * i));
        }
        return W(static_cast<uint64_t>(sum));
      };
      Check({"dp4a" + types, 'w', [=](auto a, auto b, auto c) { return sum(8, a, b, c); }},
            IntegerInputs());
      Check({"dp2a.lo" + types, 'w', [=](auto a, auto b, auto c) { return sum(16, a, b, c); }},
            IntegerInputs());
      Check({"dp2a.hi" + types, 'w',
             [=](auto a, auto b, auto c) { return sum(16, a, W(b) >> 16, c); }},
            IntegerInputs());
    }
  }
}

}  // namespace
}  // namespace tandem::ptx
