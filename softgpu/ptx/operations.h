// Runs one PTX operation on edge values and random ones, on all paths, and compares it with a
// scalar reference. For tests.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "softgpu/ptx/testing.h"

namespace tandem::ptx {

inline constexpr uint32_t kCases = 1024;
inline constexpr size_t kBlock = 64;          // cases to a block
inline constexpr size_t kGroup = kBlock * 3;  // their inputs

// A float of 113 bits.
#if LDBL_MANT_DIG == 113
using Quad = long double;
#else
using Quad = __float128;
#endif

// An operation on 64-bit inputs a, b and c; `setup` and `op` are PTX over %a, %b, %c (.b64), the
// 32- and 16-bit views %wa.. and %ha.., giving %d (.b64), %wd or %hd.
struct Operation {
  std::string text;
  char result = 'w';  // which of %d, %wd, %hd: 'd', 'w', 'h'
  std::function<uint64_t(uint64_t, uint64_t, uint64_t)> expect;
  uint32_t ulps = 0;  // how far an approximate f32 may be off
  // Of an approximate f32, in place of `expect`: what it is an approximation of.
  std::function<double(uint64_t, uint64_t, uint64_t)> exact = nullptr;
  const char* head = nullptr;  // in place of Module()'s: .version and .target
};

inline float F(uint64_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits));
}
inline double D(uint64_t bits) {
  return std::bit_cast<double>(bits);
}
inline uint64_t B(float x) {
  return std::isnan(x) ? 0x7fffffffu : std::bit_cast<uint32_t>(x);
}
inline uint64_t B(double x) {
  return std::isnan(x) ? 0x7ff8000000000000u : std::bit_cast<uint64_t>(x);
}
inline uint32_t W(uint64_t x) {
  return static_cast<uint32_t>(x);
}
inline int32_t S(uint64_t x) {
  return static_cast<int32_t>(x);
}
inline int64_t L(uint64_t x) {
  return static_cast<int64_t>(x);
}
inline int16_t H(uint64_t x) {
  return static_cast<int16_t>(x);
}
inline uint64_t U(int32_t x) {
  return static_cast<uint32_t>(x);
}

inline long double HalfValue(uint64_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31), fraction = bits & 0x3ff;
  const long double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(static_cast<long double>(fraction), -24)
                               : std::ldexp(1024.0L + fraction, exponent - 25));
}

// The distance between two floats, counted in floats.
inline uint64_t UlpsApart(uint64_t a, uint64_t b) {
  const auto place = [](uint64_t bits) {
    const int64_t magnitude = bits & 0x7fffffff;
    return (bits & 0x80000000) != 0 ? -magnitude : magnitude;
  };
  return std::abs(place(a) - place(b));
}

// Whether the f32 is within `ulps` units in the last place of `exact`. Zeros, infinities and what
// is no number must be the right ones.
inline bool IsNear(uint64_t bits, double exact, uint32_t ulps) {
  if (exact == 0 || !std::isfinite(exact)) return bits == B(static_cast<float>(exact));
  const double margin = ulps * std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  const double result = F(bits);
  if (std::isnan(result) || std::signbit(result) != std::signbit(exact)) return false;
  if (std::isinf(result)) return std::abs(exact) + margin >= 0x1p128;
  return std::abs(result - exact) <= margin;
}

inline std::string KernelFor(const Operation& operation) {
  const std::string store = operation.result == 'd' ? "st.global.u64 [%out], %d;"
                            : operation.result == 'w'
                                ? "cvt.u64.u32 %d, %wd;\nst.global.u64 [%out], %d;"
                                : "cvt.u64.u16 %d, %hd;\nst.global.u64 [%out], %d;";
  std::string kernel = Module(".param .u64 in, .param .u64 result", R"(
  .reg .b64 %a, %b, %c, %d, %in, %out, %off;
  .reg .b32 %wa, %wb, %wc, %wd, %i, %n, %j, %hi;
  .reg .b16 %ha, %hb, %hc, %hd;
  .reg .pred %p, %q;
  mov.u32 %i, %tid.x; mov.u32 %n, %ntid.x; mov.u32 %j, %ctaid.x;
  mad.lo.u32 %i, %j, %n, %i;
  ld.param.u64 %in, [in]; ld.param.u64 %out, [result];
  mul.wide.u32 %off, %i, 24; add.u64 %in, %in, %off;
  mul.wide.u32 %off, %i, 8; add.u64 %out, %out, %off;
  ld.global.u64 %a, [%in]; ld.global.u64 %b, [%in+8]; ld.global.u64 %c, [%in+16];
  mov.b64 {%wa, %hi}, %a; mov.b64 {%wb, %hi}, %b; mov.b64 {%wc, %hi}, %c;
  cvt.u16.u32 %ha, %wa; cvt.u16.u32 %hb, %wb; cvt.u16.u32 %hc, %wc;
  )" + operation.text + "\n  " + store + "\n  ret;");
  if (operation.head != nullptr) kernel.replace(0, kernel.find(".visible"), operation.head);
  return kernel;
}

inline std::vector<uint64_t> Inputs() {
  static const uint64_t kEdges[] = {0,
                                    1,
                                    2,
                                    3,
                                    7,
                                    8,
                                    15,
                                    16,
                                    31,
                                    32,
                                    33,
                                    63,
                                    64,
                                    127,
                                    128,
                                    255,
                                    256,
                                    0x7fff,
                                    0x8000,
                                    0xffff,
                                    0x7fffffff,
                                    0x80000000,
                                    0xffffffff,
                                    0xfffffffe,
                                    0x7fffffffffffffff,
                                    0x8000000000000000,
                                    0xffffffffffffffff,
                                    0x3f800000,
                                    0xbf800000,
                                    0x3f000000,
                                    0x7f800000,
                                    0xff800000,
                                    0x7fc00000,
                                    0x00000001,
                                    0x80000001,
                                    0x007fffff,
                                    0x00800000,
                                    0x4f000000,
                                    0x4f800000,
                                    0xcf000000,
                                    0x40490fdb,
                                    0x3ff0000000000000,
                                    0xbff0000000000000,
                                    0x7ff0000000000000,
                                    0x7ff8000000000000,
                                    0x43e0000000000000,
                                    0xc3e0000000000000,
                                    0x0000000000000001,
                                    0x3c00,
                                    0x7bff,
                                    0xfc00};
  std::mt19937_64 random(Seed());
  std::vector<uint64_t> inputs(size_t{kCases} * 3);
  for (uint64_t& value : inputs) {
    const uint64_t bits = random();
    const int kind = static_cast<int>(bits >> 60) & 3;
    value = kind == 0   ? kEdges[bits % std::size(kEdges)]
            : kind == 1 ? std::bit_cast<uint32_t>(static_cast<float>(L(bits) >> 20) / 4096.0f)
            : kind == 2 ? random()
                        : (random() & 0xff) | (random() << 32);
  }
  return inputs;
}

// Every pair of these values as the first two inputs, a third for the third, and then Inputs().
inline std::vector<uint64_t> WithPairs(std::span<const uint64_t> values) {
  std::vector<uint64_t> inputs;
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = 0; j < values.size(); ++j) {
      inputs.insert(inputs.end(), {values[i], values[j], values[(3 * i + 7 * j) % values.size()]});
    }
  }
  const std::vector<uint64_t> others = Inputs();
  inputs.insert(inputs.end(), others.begin(), others.end());
  inputs.resize(inputs.size() / kGroup * kGroup);
  return inputs;
}

// Three inputs to a case.
inline void Check(const Operation& operation, const std::vector<uint64_t>& inputs = Inputs()) {
  SCOPED_TRACE(operation.text);
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  const auto program = MustCompile(KernelFor(operation));
  if (program == nullptr) return;
  const uint32_t cases = static_cast<uint32_t>(inputs.size() / 3);
  const uint64_t out = 32 * uint64_t{cases};
  std::vector<std::vector<uint64_t>> results;  // testing.h says when there is but one path
  for (const Path path : Paths()) {
    TestDevice device(2 * out);
    std::copy(inputs.begin(), inputs.end(), device.Array<uint64_t>(0));
    MustRun(*program, device, {.grid = {cases / uint32_t{kBlock}, 1, 1}, .block = {kBlock, 1, 1}},
            Params().Add(device.At(0)).Add(device.At(out)), path);
    results.emplace_back(device.Array<uint64_t>(out), device.Array<uint64_t>(out) + cases);
    EXPECT_EQ(results.front(), results.back()) << "the paths differ";
  }
  for (size_t i = 0; i < cases; ++i) {
    const uint64_t a = inputs[3 * i], b = inputs[3 * i + 1], c = inputs[3 * i + 2];
    const uint64_t result = results[0][i];
    if (operation.exact) {
      const double exact = operation.exact(a, b, c);
      ASSERT_TRUE(IsNear(result, exact, operation.ulps))
          << std::hex << a << ' ' << b << ' ' << c << ": " << F(result) << " for " << exact;
      continue;
    }
    const uint64_t expected = operation.expect(a, b, c);
    if (operation.ulps != 0 && UlpsApart(result, expected) <= operation.ulps) continue;
    ASSERT_EQ(result, expected) << std::hex << a << ' ' << b << ' ' << c;
  }
}

}  // namespace tandem::ptx
