// Arithmetic in every rounding mode, against exact residuals in quadruple precision.
#include <limits>

#include "src/softgpu/ptx/code.h"
#include "src/softgpu/ptx/operations.h"

namespace tandem::ptx {
namespace {

struct Mode {
  const char* name;
  Round round;
};
constexpr Mode kModes[] = {{"rz", Round::kZero}, {"rm", Round::kDown}, {"rp", Round::kUp}};

// From `near`, which is next to the exact result, to where the mode takes it. `above`: the sign of
// the exact result less `near`.
template <class T>
uint64_t Step(T near, int above, Round round) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  if (above < 0 && (round == Round::kDown || (round == Round::kZero && near > 0))) {
    return B(std::nextafter(near, -kInfinity));
  }
  if (above > 0 && (round == Round::kUp || (round == Round::kZero && near < 0))) {
    return B(std::nextafter(near, kInfinity));
  }
  return B(near);
}

int SignOf(Quad x) {
  return x > 0 ? 1 : x < 0 ? -1 : 0;
}
bool Negative(Quad x) {
  return std::signbit(static_cast<double>(x));
}

// a + b, whose sum and error have 113 bits each.
template <class T>
uint64_t Sum(Quad a, Quad b, Round round) {
  const Quad sum = a + b, part = sum - a;
  if (sum != sum || sum - sum != 0) return B(static_cast<T>(sum));
  const Quad error = (a - (sum - part)) + (b - part);
  if (sum == 0) {
    const bool negative =
        round == Round::kDown ? Negative(a) || Negative(b) : Negative(a) && Negative(b);
    return B(negative ? -T(0) : T(0));
  }
  const T near = static_cast<T>(sum);
  // Overflown, the sum lies on this side of infinity.
  if (std::isinf(near)) return Step(near, near > 0 ? -1 : 1, round);
  return Step(near, sum != near ? SignOf(sum - near) : SignOf(error), round);
}

template <class T>
uint64_t Product(T a, T b, Round round) {
  const Quad exact = static_cast<Quad>(a) * b;
  const T near = static_cast<T>(exact);
  if (std::isnan(near) || std::isinf(a) || std::isinf(b) || exact == 0) return B(a * b);
  if (std::isinf(near)) return Step(near, near > 0 ? -1 : 1, round);
  return Step(near, SignOf(exact - near), round);
}

template <class T>
uint64_t Quotient(T a, T b, Round round) {
  const T near = static_cast<T>(static_cast<Quad>(a) / b);
  if (std::isnan(near) || std::isinf(a) || std::isinf(b) || a == 0 || b == 0) return B(a / b);
  if (std::isinf(near)) return Step(near, near > 0 ? -1 : 1, round);
  const int residual = SignOf(static_cast<Quad>(a) - static_cast<Quad>(near) * b);
  return Step(near, b > 0 ? residual : -residual, round);
}

template <class T>
uint64_t Root(T a, Round round) {
  const T near = std::sqrt(a);
  if (std::isnan(near) || std::isinf(near) || near == 0) return B(near);
  return Step(near, SignOf(static_cast<Quad>(a) - static_cast<Quad>(near) * near), round);
}

template <class T>
uint64_t Fused(T a, T b, T c, Round round) {
  if (!std::isfinite(a) || !std::isfinite(b) || !std::isfinite(c)) return B(std::fma(a, b, c));
  // A zero keeps the product's sign.
  return Sum<T>(static_cast<Quad>(a) * b, c, round);
}

template <class T>
void CheckAll(const Mode& mode, const std::string& type, const std::string& to,
              const std::string& a, const std::string& b, const std::string& c,
              T (*value)(uint64_t)) {
  const char result = sizeof(T) == 8 ? 'd' : 'w';
  const std::string tail = std::string(".") + mode.name + "." + type + " " + to + ", ";
  const Round round = mode.round;
  Check({"add" + tail + a + ", " + b + ";", result,
         [=](auto x, auto y, auto) { return Sum<T>(value(x), value(y), round); }});
  Check({"sub" + tail + a + ", " + b + ";", result,
         [=](auto x, auto y, auto) { return Sum<T>(value(x), -value(y), round); }});
  Check({"mul" + tail + a + ", " + b + ";", result,
         [=](auto x, auto y, auto) { return Product<T>(value(x), value(y), round); }});
  Check({"div" + tail + a + ", " + b + ";", result,
         [=](auto x, auto y, auto) { return Quotient<T>(value(x), value(y), round); }});
  Check({"rcp" + tail + a + ";", result,
         [=](auto x, auto, auto) { return Quotient<T>(T(1), value(x), round); }});
  Check({"sqrt" + tail + a + ";", result,
         [=](auto x, auto, auto) { return Root<T>(value(x), round); }});
  Check({"fma" + tail + a + ", " + b + ", " + c + ";", result,
         [=](auto x, auto y, auto z) { return Fused<T>(value(x), value(y), value(z), round); }});
}

TEST(Rounding, EveryModeOfEveryOperation) {
  for (const Mode& mode : kModes) {
    CheckAll<float>(mode, "f32", "%wd", "%wa", "%wb", "%wc", F);
    CheckAll<double>(mode, "f64", "%d", "%a", "%b", "%c", D);
  }
}

TEST(Rounding, Narrowing) {
  for (const Mode& mode : kModes) {
    const Round round = mode.round;
    Check({std::string("cvt.") + mode.name + ".f32.f64 %wd, %a;", 'w',
           [=](auto a, auto, auto) { return Sum<float>(D(a), D(a) == 0 ? D(a) : 0, round); }});
    Check({std::string("cvt.") + mode.name + ".f32.s64 %wd, %a;", 'w',
           [=](auto a, auto, auto) { return L(a) == 0 ? 0 : Sum<float>(L(a), 0, round); }});
    Check({std::string("cvt.") + mode.name + ".f64.u64 %d, %a;", 'd',
           [=](auto a, auto, auto) { return a == 0 ? 0 : Sum<double>(a, 0, round); }});
  }
}

}  // namespace
}  // namespace tandem::ptx
