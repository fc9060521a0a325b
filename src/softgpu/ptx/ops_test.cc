// Every operation against a scalar reference, on edge values and random ones, on both paths.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "src/softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

constexpr uint32_t kCases = 1024;

// An operation on 64-bit inputs a, b and c; `setup` and `op` are PTX over %a, %b, %c (.b64), the
// 32- and 16-bit views %wa.. and %ha.., giving %d (.b64), %wd or %hd.
struct Operation {
  std::string text;
  char result = 'w';  // which of %d, %wd, %hd: 'd', 'w', 'h'
  std::function<uint64_t(uint64_t, uint64_t, uint64_t)> expect;
};

float F(uint64_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits));
}
double D(uint64_t bits) {
  return std::bit_cast<double>(bits);
}
uint64_t B(float x) {
  return std::isnan(x) ? 0x7fffffffu : std::bit_cast<uint32_t>(x);
}
uint64_t B(double x) {
  return std::isnan(x) ? 0x7ff8000000000000u : std::bit_cast<uint64_t>(x);
}
uint32_t W(uint64_t x) {
  return static_cast<uint32_t>(x);
}
int32_t S(uint64_t x) {
  return static_cast<int32_t>(x);
}
int64_t L(uint64_t x) {
  return static_cast<int64_t>(x);
}
int16_t H(uint64_t x) {
  return static_cast<int16_t>(x);
}
uint64_t U(int32_t x) {
  return static_cast<uint32_t>(x);
}

std::string KernelFor(const Operation& operation) {
  const std::string store = operation.result == 'd' ? "st.global.u64 [%out], %d;"
                            : operation.result == 'w'
                                ? "cvt.u64.u32 %d, %wd;\nst.global.u64 [%out], %d;"
                                : "cvt.u64.u16 %d, %hd;\nst.global.u64 [%out], %d;";
  return Module(".param .u64 in, .param .u64 result", R"(
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
}

std::vector<uint64_t> Inputs(uint32_t seed) {
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
  std::mt19937_64 random(seed);
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

void Check(const Operation& operation) {
  SCOPED_TRACE(operation.text);
  const auto program = MustCompile(KernelFor(operation));
  if (program == nullptr) return;
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::vector<uint64_t> inputs = Inputs(seed);
  std::vector<uint64_t> results[2];
  for (const int path : {0, 1}) {
    TestDevice device;
    std::copy(inputs.begin(), inputs.end(), device.Array<uint64_t>(0));
    MustRun(*program, device, {.grid = {kCases / 64, 1, 1}, .block = {64, 1, 1}},
            Params().Add(device.At(0)).Add(device.At(1 << 19)),
            path == 0 ? Path::kBaseline : Path::kAvx2);
    const uint64_t* out = device.Array<uint64_t>(1 << 19);
    results[path].assign(out, out + kCases);
  }
  EXPECT_EQ(results[0], results[1]) << "the two paths differ";
  for (size_t i = 0; i < kCases && operation.expect; ++i) {
    const uint64_t a = inputs[3 * i], b = inputs[3 * i + 1], c = inputs[3 * i + 2];
    ASSERT_EQ(results[0][i], operation.expect(a, b, c)) << std::hex << a << ' ' << b << ' ' << c;
  }
}

TEST(Operations, Integers) {
  const Operation kOperations[] = {
      {"add.s32 %wd, %wa, %wb;", 'w', [](auto a, auto b, auto) { return W(a + b); }},
      {"add.u16 %hd, %ha, %hb;", 'h', [](auto a, auto b, auto) { return (a + b) & 0xffff; }},
      {"sub.u64 %d, %a, %b;", 'd', [](auto a, auto b, auto) { return a - b; }},
      {"add.sat.s32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) {
         return U(
             static_cast<int32_t>(std::clamp<int64_t>(int64_t{S(a)} + S(b), INT32_MIN, INT32_MAX)));
       }},
      {"mul.lo.s32 %wd, %wa, %wb;", 'w', [](auto a, auto b, auto) { return W(a * b); }},
      {"mul.hi.s32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return W(static_cast<uint64_t>(int64_t{S(a)} * S(b)) >> 32); }},
      {"mul.hi.u64 %d, %a, %b;", 'd',
       [](auto a, auto b, auto) {
         return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
       }},
      {"mul.hi.u16 %hd, %ha, %hb;", 'h',
       [](auto a, auto b, auto) { return (a & 0xffff) * (b & 0xffff) >> 16; }},
      {"mul.wide.s32 %d, %wa, %wb;", 'd',
       [](auto a, auto b, auto) { return static_cast<uint64_t>(int64_t{S(a)} * S(b)); }},
      {"mul.wide.u16 %wd, %ha, %hb;", 'w',
       [](auto a, auto b, auto) { return (a & 0xffff) * (b & 0xffff); }},
      {"mad.wide.u32 %d, %wa, %wb, %c;", 'd',
       [](auto a, auto b, auto c) { return uint64_t{W(a)} * W(b) + c; }},
      {"mad.lo.s32 %wd, %wa, %wb, %wc;", 'w', [](auto a, auto b, auto c) { return W(a * b + c); }},
      {"mul24.lo.u32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return W((a & 0xffffff) * (b & 0xffffff)); }},
      {"sad.s32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         return W(static_cast<uint64_t>(std::abs(int64_t{S(a)} - S(b))) + c);
       }},
      {"div.u32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return W(b) == 0 ? ~0u : W(a) / W(b); }},
      {"div.s32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) {
         return S(b) == 0 ? ~0u : W(static_cast<uint64_t>(int64_t{S(a)} / S(b)));
       }},
      {"rem.s32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) {
         return S(b) == 0 ? ~0u : W(static_cast<uint64_t>(int64_t{S(a)} % S(b)));
       }},
      {"div.s64 %d, %a, %b;", 'd',
       [](auto a, auto b, auto) {
         if (b == 0) return ~uint64_t{0};
         return b == ~uint64_t{0} ? -a : static_cast<uint64_t>(L(a) / L(b));
       }},
      {"rem.u64 %d, %a, %b;", 'd', [](auto a, auto b, auto) { return b == 0 ? ~b : a % b; }},
      {"min.s32 %wd, %wa, %wb;", 'w', [](auto a, auto b, auto) { return U(std::min(S(a), S(b))); }},
      {"max.u64 %d, %a, %b;", 'd', [](auto a, auto b, auto) { return std::max(a, b); }},
      {"abs.s32 %wd, %wa;", 'w', [](auto a, auto, auto) { return W(S(a) < 0 ? 0 - a : a); }},
      {"neg.s16 %hd, %ha;", 'h', [](auto a, auto, auto) { return (0 - a) & 0xffff; }},
      {"add.cc.u32 %wd, %wa, %wb;\n addc.u32 %wd, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) { return W(b + c + ((uint64_t{W(a)} + W(b)) >> 32)); }},
      {"sub.cc.u32 %wd, %wa, %wb;\n subc.u32 %wd, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) { return W(b - c - (W(a) < W(b) ? 1 : 0)); }},
  };
  for (const Operation& operation : kOperations) Check(operation);
}

TEST(Operations, Bits) {
  const auto shl = [](auto a, auto b, auto) { return W(b) > 31 ? 0 : W(W(a) << W(b)); };
  const Operation kOperations[] = {
      {"and.b32 %wd, %wa, %wb;", 'w', [](auto a, auto b, auto) { return W(a & b); }},
      {"xor.b64 %d, %a, %b;", 'd', [](auto a, auto b, auto) { return a ^ b; }},
      {"not.b16 %hd, %ha;", 'h', [](auto a, auto, auto) { return ~a & 0xffff; }},
      {"cnot.b32 %wd, %wa;", 'w', [](auto a, auto, auto) { return W(a) == 0 ? 1 : 0; }},
      {"shl.b32 %wd, %wa, %wb;", 'w', shl},
      {"shr.u32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return W(b) > 31 ? 0 : W(a) >> W(b); }},
      {"shr.s64 %d, %a, %wb;", 'd',
       [](auto a, auto b, auto) { return static_cast<uint64_t>(L(a) >> std::min(W(b), 63u)); }},
      {"shr.s16 %hd, %ha, %wb;", 'h',
       [](auto a, auto b, auto) {
         return static_cast<uint64_t>(H(a) >> std::min(W(b), 15u)) & 0xffff;
       }},
      {"shf.l.wrap.b32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         const uint64_t both = b << 32 | W(a);
         return W((both << (c & 31)) >> 32);
       }},
      {"shf.r.clamp.b32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         const uint64_t both = b << 32 | W(a);
         return W(both >> std::min(W(c), 32u));
       }},
      {"popc.b64 %wd, %a;", 'w', [](auto a, auto, auto) { return std::popcount(a); }},
      {"clz.b32 %wd, %wa;", 'w', [](auto a, auto, auto) { return std::countl_zero(W(a)); }},
      {"bfind.u32 %wd, %wa;", 'w',
       [](auto a, auto, auto) { return W(a) == 0 ? ~0u : W(std::bit_width(W(a)) - 1); }},
      {"prmt.b32 %wd, %wa, %wb, 0x3715;", 'w',
       [](auto a, auto b, auto) {
         const uint64_t both = b << 32 | W(a);
         const auto byte = [&](int i) { return (both >> (8 * i)) & 0xff; };
         return byte(5) | byte(1) << 8 | byte(7) << 16 | byte(3) << 24;
       }},
      {"lop3.b32 %wd, %wa, %wb, %wc, 0x96;", 'w',
       [](auto a, auto b, auto c) { return W(a ^ b ^ c); }},
      {"lop3.b32 %wd, %wa, %wb, %wc, 0xca;", 'w',
       [](auto a, auto b, auto c) { return W((a & b) | (~a & c)); }},
      {"bfe.u32 %wd, %wa, 5, 7;", 'w', [](auto a, auto, auto) { return (W(a) >> 5) & 0x7f; }},
      {"bfe.s64 %d, %a, 60, 10;", 'd',
       [](auto a, auto, auto) { return static_cast<uint64_t>(L(a) >> 60); }},
      {"bfe.u32 %wd, %wa, %wb, %wc;", 'w', nullptr},
      {"bfe.s32 %wd, %wa, %wb, %wc;", 'w', nullptr},
      {"bfi.b32 %wd, %wa, %wb, 8, 4;", 'w',
       [](auto a, auto b, auto) { return (W(b) & ~0xf00u) | (W(a) & 0xf) << 8; }},
      {"bfi.b64 %d, %a, %b, %wc, %wb;", 'd', nullptr},
      {"brev.b32 %wd, %wa;", 'w',
       [](auto a, auto, auto) {
         uint32_t r = 0;
         for (int i = 0; i < 32; ++i) r |= (W(a) >> i & 1) << (31 - i);
         return r;
       }},
  };
  for (const Operation& operation : kOperations) Check(operation);
}

TEST(Operations, Floats) {
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
      {"max.NaN.f32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) {
         if (std::isnan(F(a)) || std::isnan(F(b))) return uint64_t{0x7fffffff};
         if (F(a) == F(b)) return B(std::signbit(F(a)) ? F(b) : F(a));
         return B(std::fmax(F(a), F(b)));
       }},
      {"copysign.f32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return W((a & 0x80000000) | (b & 0x7fffffff)); }},
      {"add.rz.f32 %wd, %wa, %wb;", 'w', nullptr},
      {"mul.rp.f64 %d, %a, %b;", 'd', nullptr},
      {"ex2.approx.f32 %wd, %wa;", 'w', [](auto a, auto, auto) { return B(std::exp2(F(a))); }},
      {"lg2.approx.ftz.f32 %wd, %wa;", 'w', nullptr},
      {"sin.approx.f32 %wd, %wa;", 'w', [](auto a, auto, auto) { return B(std::sin(F(a))); }},
      {"rsqrt.approx.f32 %wd, %wa;", 'w', nullptr},
      {"tanh.approx.f32 %wd, %wa;", 'w', nullptr},
      {"add.f16 %hd, %ha, %hb;", 'h', nullptr},
      {"fma.rn.f16 %hd, %ha, %hb, %hc;", 'h', nullptr},
  };
  for (const Operation& operation : kOperations) Check(operation);
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

TEST(Operations, Conversions) {
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
      {"cvt.rz.f32.u32 %wd, %wa;", 'w', nullptr},
      {"cvt.rzi.s32.f32 %wd, %wa;", 'w', [](auto a, auto, auto) { return ToInt<int32_t>(F(a)); }},
      {"cvt.rzi.u32.f32 %wd, %wa;", 'w', [](auto a, auto, auto) { return ToInt<uint32_t>(F(a)); }},
      {"cvt.rni.s32.f32 %wd, %wa;", 'w',
       [](auto a, auto, auto) { return ToInt<int32_t>(std::nearbyint(F(a))); }},
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
      {"cvt.rn.f16.f32 %hd, %wa;\n cvt.f32.f16 %wd, %hd;\n cvt.rn.f16.f32 %hd, %wd;", 'h', nullptr},
      {"cvt.rn.f16.s32 %hd, %wa;", 'h', nullptr},
  };
  for (const Operation& operation : kOperations) Check(operation);
}

TEST(Operations, HalvesRoundTrip) {
  // Every half that is no NaN survives the way to float and back.
  Operation operation{"cvt.f32.f16 %wd, %ha;\n cvt.rn.f16.f32 %hd, %wd;", 'h',
                      [](uint64_t a, uint64_t, uint64_t) -> uint64_t {
                        const bool nan = (a & 0x7c00) == 0x7c00 && (a & 0x3ff) != 0;
                        return nan ? 0x7fff : a & 0xffff;
                      }};
  for (int i = 0; i < 8; ++i) Check(operation);
}

TEST(Operations, ComparisonAndSelection) {
  const Operation kOperations[] = {
      {"setp.lt.s32 %p, %wa, %wb;\n selp.b32 %wd, %wa, %wc, %p;", 'w',
       [](auto a, auto b, auto c) { return W(S(a) < S(b) ? a : c); }},
      {"setp.hs.u32 %p, %wa, %wb;\n selp.b32 %wd, 1, 0, !%p;", 'w',
       [](auto a, auto b, auto) { return W(a) >= W(b) ? 0 : 1; }},
      {"setp.neu.f32 %p, %wa, %wb;\n selp.u32 %wd, 1, 0, %p;", 'w',
       [](auto a, auto b, auto) { return F(a) == F(b) ? 0 : 1; }},
      {"setp.ne.f64 %p, %a, %b;\n selp.u32 %wd, 1, 0, %p;", 'w',
       [](auto a, auto b, auto) { return D(a) < D(b) || D(a) > D(b) ? 1 : 0; }},
      {"setp.nan.f32 %p, %wa, %wb;\n selp.u32 %wd, 1, 0, %p;", 'w',
       [](auto a, auto b, auto) { return std::isnan(F(a)) || std::isnan(F(b)) ? 1 : 0; }},
      {"setp.gt.u32 %q, %wa, 5;\n setp.lt.and.s32 %p|%q, %wa, %wb, %q;\n"
       "selp.u32 %wd, 1, 0, %p;\n selp.u32 %wc, 2, 0, %q;\n or.b32 %wd, %wd, %wc;",
       'w',
       [](auto a, auto b, auto) {
         if (W(a) <= 5) return 0;
         return S(a) < S(b) ? 1 : 2;
       }},
      {"set.ge.u32.s32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return S(a) >= S(b) ? ~0u : 0u; }},
      {"set.eq.f32.u32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return W(a) == W(b) ? 0x3f800000 : 0; }},
      {"slct.b32.s32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) { return W(S(c) >= 0 ? a : b); }},
      {"testp.finite.f32 %p, %wa;\n selp.u32 %wd, 1, 0, %p;", 'w',
       [](auto a, auto, auto) { return std::isfinite(F(a)) ? 1 : 0; }},
      {"setp.lt.s16 %p, %ha, %hb;\n @%p mov.u32 %wd, 1;\n @!%p mov.u32 %wd, 0;", 'w',
       [](auto a, auto b, auto) { return H(a) < H(b) ? 1 : 0; }},
  };
  for (const Operation& operation : kOperations) Check(operation);
}

}  // namespace
}  // namespace tandem::ptx
