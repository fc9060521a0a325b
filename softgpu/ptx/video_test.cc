// The video instructions, form by form, against a scalar reference that is written from the
// document's steps: pick, compute, saturate, combine.
#include <gtest/gtest.h>

#include <algorithm>

#include "softgpu/ptx/operations.h"

namespace tandem::ptx {
namespace {

using Wide = __int128;

Wide Element(uint64_t word, int start, int bits, bool is_signed) {
  Wide value = static_cast<Wide>(word >> start) & ((Wide{1} << bits) - 1);
  if (is_signed && value >= Wide{1} << (bits - 1)) value -= Wide{1} << bits;
  return value;
}

Wide Saturated(Wide value, int bits, bool is_signed) {
  const Wide least = is_signed ? -(Wide{1} << (bits - 1)) : 0;
  return std::clamp<Wide>(value, least, (Wide{1} << (is_signed ? bits - 1 : bits)) - 1);
}

Wide Computed(const std::string& name, Wide a, Wide b) {
  if (name == "vadd") return a + b;
  if (name == "vsub") return a - b;
  if (name == "vabsdiff") return a < b ? b - a : a - b;
  if (name == "vmin") return std::min(a, b);
  if (name == "vmax") return std::max(a, b);
  if (name == "vavrg") return a + b >= 0 ? (a + b + 1) >> 1 : (a + b) >> 1;
  if (name == "eq") return a == b;
  if (name == "ne") return a != b;
  if (name == "lt") return a < b;
  if (name == "le") return a <= b;
  if (name == "gt") return a > b;
  return a >= b;
}

uint64_t Word(Wide value) {
  return static_cast<uint32_t>(value);
}

std::string Joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

struct Part {
  std::string name;
  int start, bits;
};
const Part kParts[] = {{"", 0, 32},    {".b0", 0, 8},  {".b1", 8, 8},  {".b2", 16, 8},
                       {".b3", 24, 8}, {".h0", 0, 16}, {".h1", 16, 16}};

Wide Combined(const std::string& second, Wide value, uint64_t c, bool is_signed) {
  const Wide other = Element(c, 0, 32, is_signed);
  if (second == ".add") return value + other;
  if (second == ".min") return std::min(value, other);
  if (second == ".max") return std::max(value, other);
  return value;
}

struct Types {
  bool d, a, b;
  std::string Names() const {
    return std::string(d ? ".s32" : ".u32") + (a ? ".s32" : ".u32") + (b ? ".s32" : ".u32");
  }
};

constexpr const char* kSecondSteps[] = {"", ".add", ".min", ".max"};

Types TypesOf(int number) {
  return {(number & 1) != 0, (number & 2) != 0, (number & 4) != 0};
}

TEST(Video, ScalarArithmetic) {
  int number = 0;
  for (const std::string name : {"vadd", "vsub", "vabsdiff", "vmin", "vmax"}) {
    for (const std::string second : {"", ".add", ".min", ".max"}) {
      for (int form = 0; form < 16; ++form) {
        const bool sat = form >= 8;
        const Types types = TypesOf(form % 8);
        ++number;
        const Part &pa = kParts[number % 7], &pb = kParts[(number / 2) % 7];
        Check({Joined({name, types.Names(), sat ? ".sat" : "", second, " %wd, %wa", pa.name,
                       ", %wb", pb.name, second.empty() ? "" : ", %wc", ";"}),
               'w', [=](auto a, auto b, auto c) {
                 Wide value = Computed(name, Element(a, pa.start, pa.bits, types.a),
                                       Element(b, pb.start, pb.bits, types.b));
                 if (sat) value = Saturated(value, 32, types.d);
                 return Word(Combined(second, value, c, types.d));
               }});
      }
    }
  }
}

TEST(Video, ScalarsMergeIntoAPart) {
  int number = 0;
  for (const Part& target : kParts) {
    if (target.name.empty()) continue;
    for (const bool sat : {false, true}) {
      const Types types = TypesOf(++number);
      Check({"vsub" + types.Names() + (sat ? ".sat" : "") + " %wd" + target.name +
                 ", %wa.h1, %wb.b2, %wc;",
             'w', [=](auto a, auto b, auto c) {
               Wide value = Element(a, 16, 16, types.a) - Element(b, 16, 8, types.b);
               if (sat) value = Saturated(value, target.bits, types.d);
               const uint64_t mask = ((uint64_t{1} << target.bits) - 1) << target.start;
               return W((Word(value) << target.start & mask) | (c & ~mask));
             }});
    }
  }
}

TEST(Video, ScalarShifts) {
  for (const bool left : {true, false}) {
    for (const bool wrap : {true, false}) {
      for (int form = 0; form < 32; ++form) {
        const bool sat = (form & 4) != 0;
        const std::string second = kSecondSteps[form / 8];
        const Types types = TypesOf(form & 3);
        const std::string name = std::string(left ? "vshl" : "vshr") + (types.d ? ".s32" : ".u32") +
                                 (types.a ? ".s32" : ".u32") + ".u32" + (sat ? ".sat" : "") +
                                 (wrap ? ".wrap" : ".clamp");
        const std::string tail = second.empty() ? ";" : ", %wc;";
        Check({name + second + " %wd, %wa, %wb.b0" + tail, 'w', [=](auto a, auto b, auto c) {
                 const int by = static_cast<int>(wrap ? b & 31 : std::min<uint64_t>(b & 255, 32));
                 const Wide x = Element(a, 0, 32, types.a);
                 Wide value = left ? x * (Wide{1} << by) : x >> by;
                 if (sat) value = Saturated(value, 32, types.d);
                 return Word(Combined(second, value, c, types.d));
               }});
      }
    }
  }
}

TEST(Video, ScalarComparison) {
  for (const std::string compare : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    for (int form = 0; form < 16; ++form) {
      const Types types = TypesOf(2 * (form % 4));
      const std::string second = kSecondSteps[form / 4], tail = second.empty() ? ";" : ", %wc;";
      Check({"vset" + types.Names().substr(4) + "." + compare + second + " %wd, %wa.b3, %wb.h0" +
                 tail,
             'w', [=](auto a, auto b, auto c) {
               const Wide holds =
                   Computed(compare, Element(a, 24, 8, types.a), Element(b, 0, 16, types.b));
               return Word(Combined(second, holds, c, types.d));
             }});
    }
  }
}

TEST(Video, MultiplyAndAdd) {
  for (int number = 0; number < 8; ++number) {
    const Types types = TypesOf(number);
    const bool is_signed = types.a || types.b;
    for (const int form : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) {
      const bool plus = (form & 1) != 0, sat = (form & 2) != 0;
      const int shift = form < 4 ? 0 : form < 8 ? 7 : 15;
      const std::string scale = shift == 0 ? "" : shift == 7 ? ".shr7" : ".shr15";
      Check({"vmad" + types.Names() + (plus ? ".po" : "") + (sat ? ".sat" : "") + scale +
                 " %wd, %wa, %wb.h1, %wc;",
             'w', [=](auto a, auto b, auto c) {
               Wide value = Element(a, 0, 32, types.a) * Element(b, 16, 16, types.b) +
                            Element(c, 0, 32, is_signed) + (plus ? 1 : 0);
               value >>= shift;
               if (sat) value = Saturated(value, 32, is_signed);
               return Word(value);
             }});
    }
  }
}

struct Layout {
  std::string mask, a, b;
  std::vector<int> lanes, from_a, from_b;
};
const Layout kQuads[] = {{"", "", "", {0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6, 7}},
                         {".b31", ".b7120", ".b0365", {1, 3}, {0, 2, 1, 7}, {5, 6, 3, 0}}};
const Layout kPairs[] = {{"", "", "", {0, 1}, {0, 1}, {2, 3}},
                         {".h1", ".h03", ".h12", {1}, {3, 0}, {2, 1}}};

uint64_t Lanes(const Layout& layout, const std::string& name, const Types& types, bool sat,
               bool add, uint64_t a, uint64_t b, uint64_t c) {
  const int count = static_cast<int>(layout.from_a.size()), bits = 32 / count;
  const uint64_t both = b << 32 | W(a), mask = (uint64_t{1} << bits) - 1;
  uint64_t result = W(c);
  for (const int lane : layout.lanes) {
    const auto at = static_cast<size_t>(lane);
    Wide value = Computed(name, Element(both, layout.from_a[at] * bits, bits, types.a),
                          Element(both, layout.from_b[at] * bits, bits, types.b));
    if (sat) value = Saturated(value, bits, types.d);
    if (add) {
      result += Word(value);
    } else {
      result = (result & ~(mask << (lane * bits))) | (Word(value) & mask) << (lane * bits);
    }
  }
  return W(result);
}

TEST(Video, TwoAndFourAtOnce) {
  int number = 0;
  for (const std::string name : {"vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"}) {
    for (const std::string modifier : {"", ".sat", ".add"}) {
      for (int form = 0; form < 16; ++form) {
        const Types types = TypesOf(form % 8);
        const int which = form / 8 * 2 + number++ % 2;
        const Layout& layout = which < 2 ? kQuads[which] : kPairs[which - 2];
        Check({Joined({name, which < 2 ? "4" : "2", types.Names(), modifier, " %wd", layout.mask,
                       ", %wa", layout.a, ", %wb", layout.b, ", %wc;"}),
               'w', [=](auto a, auto b, auto c) {
                 return Lanes(layout, name, types, modifier == ".sat", modifier == ".add", a, b, c);
               }});
      }
    }
  }
}

TEST(Video, TwoAndFourComparisons) {
  int number = 0;
  for (const std::string compare : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    for (int form = 0; form < 16; ++form) {
      const Types types = TypesOf(2 * (form % 4));
      const bool add = (form & 4) != 0;
      const int which = form / 8 * 2 + number++ % 2;
      const Layout& layout = which < 2 ? kQuads[which] : kPairs[which - 2];
      Check({std::string("vset") + (which < 2 ? "4" : "2") + types.Names().substr(4) + "." +
                 compare + (add ? ".add" : "") + " %wd" + layout.mask + ", %wa" + layout.a +
                 ", %wb" + layout.b + ", %wc;",
             'w', [=](auto a, auto b, auto c) {
               return Lanes(layout, compare, types, false, add, a, b, c);
             }});
    }
  }
}

}  // namespace
}  // namespace tandem::ptx
