// Arithmetic in every rounding mode, flushed and saturated, against exact residuals in quadruple
// precision.
#include <limits>

#include "softgpu/ptx/code.h"
#include "softgpu/ptx/operations.h"

namespace tandem::ptx {
namespace {

struct Mode {
  const char* name;
  Round round;
};
constexpr Mode kModes[] = {
    {".rn", Round::kNearest}, {".rz", Round::kZero}, {".rm", Round::kDown}, {".rp", Round::kUp}};
constexpr Mode kUnnamed = {"", Round::kNearest};

// From `near`, which is next to the exact result, to where the mode takes it. `above`: the sign of
// the exact result less `near`.
template <class T>
T Step(T near, int above, Round round) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  if (above < 0 && (round == Round::kDown || (round == Round::kZero && near > 0))) {
    return std::nextafter(near, -kInfinity);
  }
  if (above > 0 && (round == Round::kUp || (round == Round::kZero && near < 0))) {
    return std::nextafter(near, kInfinity);
  }
  return near;
}

int SignOf(Quad x) {
  return x > 0 ? 1 : x < 0 ? -1 : 0;
}
bool Negative(Quad x) {
  return std::signbit(static_cast<double>(x));
}

// `sum` with what its 113 bits have lost kept in an odd last one, so that it can be rounded again.
Quad OddOf(Quad sum, Quad error) {
  const auto bits = std::bit_cast<unsigned __int128>(sum);
  if (error == 0 || (bits & 1) != 0) return sum;
  return std::bit_cast<Quad>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

// a + b, whose sum and error have 113 bits each.
template <class T>
T Sum(Quad a, Quad b, Round round) {
  const Quad sum = a + b, part = sum - a;
  if (sum != sum || sum - sum != 0) return static_cast<T>(sum);
  if (sum == 0) {
    const bool negative =
        round == Round::kDown ? Negative(a) || Negative(b) : Negative(a) && Negative(b);
    return negative ? -T(0) : T(0);
  }
  const Quad odd = OddOf(sum, (a - (sum - part)) + (b - part));
  const T near = static_cast<T>(odd);
  // Overflown, the sum lies on this side of infinity.
  if (std::isinf(near)) return Step(near, near > 0 ? -1 : 1, round);
  return Step(near, SignOf(odd - near), round);
}

template <class T>
T Product(T a, T b, Round round) {
  const Quad exact = static_cast<Quad>(a) * b;
  const T near = static_cast<T>(exact);
  if (std::isnan(near) || std::isinf(a) || std::isinf(b) || exact == 0) return a * b;
  if (std::isinf(near)) return Step(near, near > 0 ? -1 : 1, round);
  return Step(near, SignOf(exact - near), round);
}

template <class T>
T Quotient(T a, T b, Round round) {
  const T near = static_cast<T>(static_cast<Quad>(a) / b);
  if (std::isnan(near) || std::isinf(a) || std::isinf(b) || a == 0 || b == 0) return a / b;
  if (std::isinf(near)) return Step(near, near > 0 ? -1 : 1, round);
  const int residual = SignOf(static_cast<Quad>(a) - static_cast<Quad>(near) * b);
  return Step(near, b > 0 ? residual : -residual, round);
}

template <class T>
T Root(T a, Round round) {
  const T near = std::sqrt(a);
  if (std::isnan(near) || std::isinf(near) || near == 0) return near;
  return Step(near, SignOf(static_cast<Quad>(a) - static_cast<Quad>(near) * near), round);
}

template <class T>
T Fused(T a, T b, T c, Round round) {
  if (!std::isfinite(a) || !std::isfinite(b) || !std::isfinite(c)) return std::fma(a, b, c);
  // A zero keeps the product's sign.
  return Sum<T>(static_cast<Quad>(a) * b, c, round);
}

// What the modifiers make of operands and results.
struct Modified {
  bool ftz, sat;

  std::string text() const { return std::string(ftz ? ".ftz" : "") + (sat ? ".sat" : ""); }
  template <class T>
  T In(T x) const {
    constexpr T kNormal = std::numeric_limits<T>::min();
    return ftz && std::abs(x) < kNormal ? std::copysign(T(0), x) : x;
  }
  template <class T>
  uint64_t Out(T x) const {
    x = In(x);
    if (sat) return B(x > 0 ? std::min(x, T(1)) : T(0));  // a NaN gives 0
    return B(x);
  }
};

// Every pair of what lies at the ends of a type's ranges, and then others.
template <class T>
std::vector<uint64_t> FloatInputs() {
  using Limits = std::numeric_limits<T>;
  const T edges[] = {T(0),
                     T(1),
                     T(1) + Limits::epsilon(),
                     T(1) - Limits::epsilon() / 2,
                     T(1.5),
                     T(2),
                     T(3),
                     Limits::epsilon() / 2,
                     Limits::denorm_min(),
                     3 * Limits::denorm_min(),
                     Limits::min() - Limits::denorm_min(),
                     Limits::min(),
                     Limits::min() + Limits::denorm_min(),
                     2 * Limits::min(),
                     std::sqrt(Limits::min()),
                     Limits::max(),
                     Limits::max() / 2,
                     Limits::infinity(),
                     Limits::quiet_NaN()};
  std::vector<uint64_t> values;
  for (const T edge : edges) {
    values.push_back(B(edge));
    values.push_back(B(-edge));
  }
  return WithPairs(values);
}

// One type, one mode, and modifiers: each operation that takes them.
template <class T>
class Rounded {
 public:
  Rounded(const Mode& mode, const Modified& modified) : mode_(mode), modified_(modified) {}

  void CheckSums() const {
    const Round round = mode_.round;
    CheckOne("add", 2, [=](T x, T y, T) { return Sum<T>(x, y, round); });
    CheckOne("sub", 2, [=](T x, T y, T) { return Sum<T>(x, -y, round); });
    CheckOne("mul", 2, [=](T x, T y, T) { return Product<T>(x, y, round); });
  }
  void CheckFused() const {
    const Round round = mode_.round;
    CheckOne("fma", 3, [=](T x, T y, T z) { return Fused<T>(x, y, z, round); });
    CheckOne("mad", 3, [=](T x, T y, T z) { return Fused<T>(x, y, z, round); });
  }
  void CheckQuotients() const {
    const Round round = mode_.round;
    CheckOne("div", 2, [=](T x, T y, T) { return Quotient<T>(x, y, round); });
    CheckOne("rcp", 1, [=](T x, T, T) { return Quotient<T>(T(1), x, round); });
    CheckOne("sqrt", 1, [=](T x, T, T) { return Root<T>(x, round); });
  }
  void CheckOne(const std::string& name, int operands,
                const std::function<T(T, T, T)>& exact) const {
    constexpr bool kWide = sizeof(T) == 8;
    const std::string view = kWide ? "%" : "%w";
    std::string text =
        name + mode_.name + modified_.text() + (kWide ? ".f64 " : ".f32 ") + view + "d";
    for (int i = 0; i < operands; ++i) text += ", " + view + static_cast<char>('a' + i);
    Check({text + ";", kWide ? 'd' : 'w',
           [=, modified = modified_](auto a, auto b, auto c) {
             const auto in = [&](uint64_t bits) { return modified.In(Value(bits)); };
             return modified.Out(exact(in(a), in(b), in(c)));
           }},
          FloatInputs<T>());
  }

 private:
  static T Value(uint64_t bits) {
    if constexpr (sizeof(T) == 8) return D(bits);
    return F(bits);
  }

  Mode mode_;
  Modified modified_;
};

TEST(Rounding, EveryModeOfEveryOperation) {
  for (const Mode& mode : kModes) {
    for (const bool ftz : {false, true}) {
      for (const bool sat : {false, true}) {
        const Rounded<float> rounded(mode, {ftz, sat});
        rounded.CheckSums();
        rounded.CheckFused();
      }
      Rounded<float>(mode, {ftz, false}).CheckQuotients();
    }
    const Rounded<double> rounded(mode, {false, false});
    rounded.CheckSums();
    rounded.CheckFused();
    rounded.CheckQuotients();
  }
}

TEST(Rounding, ToTheNearestWithoutBeingTold) {
  for (const bool ftz : {false, true}) {
    for (const bool sat : {false, true}) Rounded<float>(kUnnamed, {ftz, sat}).CheckSums();
  }
  Rounded<double>(kUnnamed, {false, false}).CheckSums();
}

// The smaller number, of which -0 is one; with `largest` the larger.
template <class T>
T ExtremeOf(T a, T b, bool largest) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? b : a;
  if (a == b) return std::signbit(a) != largest ? a : b;
  return (a < b) != largest ? a : b;
}

template <class T>
void CheckExact(const Modified& modified) {
  const Rounded<T> plain(kUnnamed, modified);
  plain.CheckOne("abs", 1, [](T x, T, T) { return std::abs(x); });
  plain.CheckOne("neg", 1, [](T x, T, T) { return -x; });
  for (const bool largest : {false, true}) {
    const std::string name = largest ? "max" : "min";
    plain.CheckOne(name, 2, [=](T x, T y, T) { return ExtremeOf(x, y, largest); });
  }
}

TEST(Rounding, WhatIsExactFlushesToo) {
  CheckExact<float>({false, false});
  CheckExact<float>({true, false});
  CheckExact<double>({false, false});
}

// Of what is no number, .NaN makes the result; .xorsign.abs compares magnitudes.
TEST(Rounding, FlushedExtremesWithModifiers) {
  const Modified flush = {true, false};
  for (const bool largest : {false, true}) {
    for (const bool nan : {false, true}) {
      for (const bool magnitudes : {false, true}) {
        const std::string name = std::string(largest ? "max" : "min") + ".ftz" +
                                 (nan ? ".NaN" : "") + (magnitudes ? ".xorsign.abs" : "");
        Check({name + ".f32 %wd, %wa, %wb;", 'w',
               [=](auto a, auto b, auto) {
                 float x = flush.In(F(a)), y = flush.In(F(b));
                 const bool negative = std::signbit(x) != std::signbit(y);
                 if (nan && (std::isnan(x) || std::isnan(y))) return B(NAN);
                 if (!magnitudes) return B(ExtremeOf(x, y, largest));
                 const float r = ExtremeOf(std::abs(x), std::abs(y), largest);
                 return B(negative ? -r : r);
               }},
              FloatInputs<float>());
      }
    }
  }
}

TEST(Rounding, Narrowing) {
  for (const Mode& mode : kModes) {
    const Round round = mode.round;
    Check({std::string("cvt") + mode.name + ".f32.f64 %wd, %a;", 'w',
           [=](auto a, auto, auto) { return B(Sum<float>(D(a), D(a) == 0 ? D(a) : 0, round)); }});
    Check({std::string("cvt") + mode.name + ".f32.s64 %wd, %a;", 'w',
           [=](auto a, auto, auto) { return L(a) == 0 ? 0 : B(Sum<float>(L(a), 0, round)); }});
    Check({std::string("cvt") + mode.name + ".f64.u64 %d, %a;", 'd',
           [=](auto a, auto, auto) { return a == 0 ? 0 : B(Sum<double>(a, 0, round)); }});
  }
}

}  // namespace
}  // namespace tandem::ptx
