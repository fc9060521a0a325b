// PTX of old versions and for old targets, and what .version and .target may say.
#include <gtest/gtest.h>

#include <bit>

#include "softgpu/ptx/float_format.h"

namespace tandem::ptx {
namespace {

// As nvcc 2.x wrote it.
constexpr char kOld[] = R"(
	.version 1.4
	.target sm_10, map_f64_to_f32
	// compiled with /usr/lib/be
	.file	1	"<command-line>"
	.const .align 4 .b8 table[8] = {1, 0, 0, 0, 2, 0, 0, 0};

	.entry _Z5scalePff (
		.param .u64 __cudaparm__Z5scalePff_x,
		.param .f32 __cudaparm__Z5scalePff_s)
	{
	.reg .u16 %rh<6>;
	.reg .u32 %r<8>;
	.reg .u64 %rd<6>;
	.reg .f32 %f<8>;
	.reg .pred %p<3>;
	.loc	28	2	0
$LBB1__Z5scalePff:
	mov.u16 	%rh1, %ctaid.x;
	mov.u16 	%rh2, %ntid.x;
	mul.wide.u16 	%r1, %rh1, %rh2;
	cvt.u32.u16 	%r2, %tid.x;
	add.u32 	%r3, %r2, %r1;
	cvt.u64.u32 	%rd1, %r3;
	mul.lo.u64 	%rd2, %rd1, 4;
	ld.param.u64 	%rd3, [__cudaparm__Z5scalePff_x];
	add.u64 	%rd4, %rd3, %rd2;
	ld.global.f32 	%f1, [%rd4+0];
	ld.param.f32 	%f2, [__cudaparm__Z5scalePff_s];
	cvt.f32.u32 	%f3, %r3;
	mad.f32 	%f4, %f1, %f2, %f3;
	ld.const.u32 	%r4, [table+4];
	set.gt.u32.f32 	%r5, %f4, %f2;
	neg.s32 	%r5, %r5;
	and.b32 	%r5, %r5, %r4;
	mov.u32 	%r6, 0;
	setp.eq.s32 	%p1, %r5, %r6;
	@%p1 bra 	$Lt_0_1026;
	mul24.lo.u32 %r6, %r4, %r4;
	cvt.rn.f32.u32 %f5, %r6;
	div.full.f32 	%f4, %f4, %f5;
	bra.uni 	$LDWendi__Z5scalePff_1;
$Lt_0_1026:
	mul.f32 	%f4, %f4, %f4;
$LDWendi__Z5scalePff_1:
	st.global.f32 	[%rd4+0], %f4;
	.loc	28	10	0
	exit;
$LDWend__Z5scalePff:
	} // _Z5scalePff
)";

TEST(OldPtx, RunsAsItDid) {
  const auto program = MustCompile(kOld);
  ASSERT_NE(program, nullptr);
  TestDevice device;
  float* x = device.Array<float>(4096);
  for (int i = 0; i < 64; ++i) x[i] = static_cast<float>(i - 40);
  program->WriteImage(device.Array<uint8_t>(0), device.At(0));
  MustRun(*program, device, {.grid = {2, 1, 1}, .block = {32, 1, 1}, .image = device.At(0)},
          Params().Add(device.At(4096)).Add(1.5f), Path::kAuto, "_Z5scalePff");
  for (int i = 0; i < 64; ++i) {
    const float y = static_cast<float>(i - 40) * 1.5f + static_cast<float>(i);
    const bool even = y > 1.5f && (1 & 2) != 0;
    EXPECT_EQ(x[i], even ? y / 4 : y * y) << i;
  }
}

std::string Text(const std::string& version, const std::string& target, const std::string& body) {
  return ".version " + version + "\n.target " + target +
         "\n.visible .entry k(.param .u64 result) {\n" + body + "\nret; }";
}

// Arithmetic for sm_1x flushes subnormal numbers.
TEST(OldPtx, FirstGenerationFlushes) {
  const std::string body = R"(.reg .u64 %o; .reg .f32 %f<3>; ld.param.u64 %o, [result];
    mov.f32 %f1, 0f00400000; add.f32 %f2, %f1, %f1; add.f32 %f2, %f2, %f1;
    st.global.f32 [%o], %f2;)";
  for (const auto& [target, expected] : {std::pair{"sm_13", 0u}, {"sm_20", 0x00c00000u}}) {
    TestDevice device;
    const auto program = MustCompile(Text("2.0", target, body));
    ASSERT_NE(program, nullptr);
    MustRun(*program, device, {}, Params().Add(device.At(0)));
    EXPECT_EQ(*device.Array<uint32_t>(0), expected) << target;
  }
}

TEST(OldPtx, ModifiersMayBeMissingOnlyThere) {
  const std::string registers = ".reg .f32 %f<4>; .reg .f64 %d<2>; .reg .b32 %r<2>;";
  for (const char* instruction :
       {"mad.f32 %f1, %f2, %f3, %f1;", "div.f32 %f1, %f2, %f3;", "rcp.f32 %f1, %f2;",
        "sqrt.f32 %f1, %f2;", "sin.f32 %f1, %f2;", "cvt.f32.s32 %f1, %r1;"}) {
    SCOPED_TRACE(instruction);
    EXPECT_NE(MustCompile(Text("1.4", "sm_13", registers + instruction)), nullptr);
    EXPECT_NE(CompileLog(Text("6.3", "sm_50", registers + instruction)), "");
  }
}

constexpr char kFirst[] = ".version 1.4\n.target sm_13\n",
               kSecond[] = ".version 1.5\n.target sm_20\n";

// Without modifiers: approximations in f32, which flush for sm_1x, and the nearest in f64.
TEST(OldPtx, WhatHasNoModifiersIsComputedSo) {
  const auto flushed = [](double x) { return std::abs(x) < 0x1p-126 ? std::copysign(0.0, x) : x; };
  const struct {
    const char* name;
    double (*exact)(double);
  } kFunctions[] = {
      {"rcp", [](double x) { return 1 / x; }},
      {"sqrt", [](double x) { return std::sqrt(x); }},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
      {"ex2", [](double x) { return std::exp2(x); }},
      {"lg2", [](double x) { return std::log2(x); }},
      {"sin", [](double x) { return std::sin(x); }},
      {"cos", [](double x) { return std::cos(x); }},
  };
  for (const char* head : {kFirst, kSecond}) {
    for (const bool ftz : {false, true}) {
      const bool flushes = ftz || head == kFirst;
      const auto in = [=](uint64_t bits) { return flushes ? flushed(F(bits)) : double{F(bits)}; };
      const auto out = [=](double x) { return flushes ? flushed(x) : x; };
      for (const auto& f : kFunctions) {
        Check({std::string(f.name) + (ftz ? ".ftz" : "") + ".f32 %wd, %wa;", 'w', nullptr, 2,
               [=](auto a, auto, auto) { return out(f.exact(in(a))); }, head});
      }
      // div.approx: nothing is left of what is divided by more than 2^126.
      Check({std::string("div") + (ftz ? ".ftz" : "") + ".f32 %wd, %wa, %wb;", 'w', nullptr, 2,
             [=](auto a, auto b, auto) {
               const double x = in(a), y = in(b);
               const bool large = std::abs(y) > 0x1p126 && std::isfinite(y);
               return large ? x * std::copysign(0.0, y) : out(x / y);
             },
             head});
    }
    Check({"rsqrt.f64 %d, %a; cvt.rn.f32.f64 %wd, %d;", 'w', nullptr, 2,
           [=](auto a, auto, auto) {
             const double root = 1 / std::sqrt(D(a));
             return head == kFirst ? flushed(root) : root;
           },
           head});
    Check({"mad.f64 %d, %a, %b, %c;", 'd',
           [](auto a, auto b, auto c) { return B(std::fma(D(a), D(b), D(c))); }, 0, nullptr, head});
    Check({"div.f64 %d, %a, %b;", 'd', [](auto a, auto b, auto) { return B(D(a) / D(b)); }, 0,
           nullptr, head});
    Check(
        {"rcp.f64 %d, %a;", 'd', [](auto a, auto, auto) { return B(1 / D(a)); }, 0, nullptr, head});
    Check({"sqrt.f64 %d, %a;", 'd', [](auto a, auto, auto) { return B(std::sqrt(D(a))); }, 0,
           nullptr, head});
  }
}

TEST(OldPtx, MultiplicationAndAdditionAreFused) {
  for (const char* head : {kFirst, kSecond}) {
    for (const int modifiers : {0, 1, 2, 3}) {
      const bool ftz = (modifiers & 1) != 0, sat = (modifiers & 2) != 0;
      const auto flush = [=](float x) {
        const bool flushes = ftz || head == kFirst;
        return flushes && std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
      };
      const std::string text = std::string("mad") + (ftz ? ".ftz" : "") + (sat ? ".sat" : "");
      Check({text + ".f32 %wd, %wa, %wb, %wc;", 'w',
             [=](auto a, auto b, auto c) {
               const float x = flush(std::fma(flush(F(a)), flush(F(b)), flush(F(c))));
               return B(!sat ? x : x > 0 ? std::min(x, 1.0f) : 0.0f);
             },
             0, nullptr, head});
    }
  }
}

// cvt to a float goes to the nearest, unless it is told otherwise.
TEST(OldPtx, ConversionsGoToTheNearest) {
  const std::pair<const char*, Quad (*)(uint64_t)> kSources[] = {
      {".u8", [](uint64_t x) -> Quad { return x & 0xff; }},
      {".s8", [](uint64_t x) -> Quad { return static_cast<int8_t>(x); }},
      {".u16", [](uint64_t x) -> Quad { return x & 0xffff; }},
      {".s16", [](uint64_t x) -> Quad { return H(x); }},
      {".u32", [](uint64_t x) -> Quad { return W(x); }},
      {".s32", [](uint64_t x) -> Quad { return S(x); }},
      {".u64", [](uint64_t x) -> Quad { return x; }},
      {".s64", [](uint64_t x) -> Quad { return L(x); }}};
  for (const char* head : {kFirst, kSecond}) {
    for (const auto& [type, value] : kSources) {
      const std::string from = type;
      const std::string a = from.ends_with("64")                   ? "%a;"
                            : from.find("32") != std::string::npos ? "%wa;"
                                                                   : "%ha;";
      for (const bool sat : {false, true}) {
        const std::string name = std::string("cvt") + (sat ? ".sat" : "");
        const auto whole = [=, value = value](uint64_t raw) {
          return sat ? std::clamp<Quad>(value(raw), 0, 1) : value(raw);
        };
        Check({name + ".f16" + from + " %hd, " + a, 'h',
               [=](auto x, auto, auto) { return kF16.Nearest(whole(x)); }, 0, nullptr, head});
        Check({name + ".f32" + from + " %wd, " + a, 'w',
               [=](auto x, auto, auto) { return kF32.Nearest(whole(x)); }, 0, nullptr, head});
        Check({name + ".f64" + from + " %d, " + a, 'd',
               [=](auto x, auto, auto) { return kF64.Nearest(whole(x)); }, 0, nullptr, head});
      }
    }
  }
}

TEST(OldPtx, NarrowerFloatsAreTheNearest) {
  for (const char* head : {kFirst, kSecond}) {
    for (const int modifiers : {0, 1, 2, 3}) {
      const bool ftz = (modifiers & 1) != 0, sat = (modifiers & 2) != 0;
      const std::string name = std::string("cvt") + (ftz ? ".ftz" : "") + (sat ? ".sat" : "");
      Check({name + ".f32.f64 %wd, %a;", 'w',
             [=](auto a, auto, auto) {
               const uint64_t nearest = kF32.Nearest(D(a));
               const uint64_t flushed = ftz || head == kFirst ? kF32.Flush(nearest) : nearest;
               return sat ? kF32.Saturated(flushed) : flushed;
             },
             0, nullptr, head});
    }
    for (const bool sat : {false, true}) {
      for (const bool wide : {false, true}) {
        const std::string name = std::string("cvt") + (sat ? ".sat" : "");
        Check({name + (wide ? ".f16.f64 %hd, %a;" : ".f16.f32 %hd, %wa;"), 'h',
               [=](auto a, auto, auto) {
                 const uint64_t nearest = kF16.Nearest(wide ? Quad{D(a)} : Quad{F(a)});
                 return sat ? kF16.Saturated(nearest) : nearest;
               },
               0, nullptr, head});
      }
    }
  }
}

TEST(OldPtx, DoublesThatWouldBeFloatsAreRefused) {
  const std::string registers = ".reg .f64 %d<3>;";
  EXPECT_NE(MustCompile(Text("1.4", "sm_13", registers + "add.f64 %d1, %d2, %d2;")), nullptr);
  const std::string log =
      CompileLog(Text("1.4", "sm_13, map_f64_to_f32", registers + "\nadd.f64 %d1, %d2, %d2;"));
  EXPECT_NE(log.find("line 5"), std::string::npos) << log;
  EXPECT_NE(log.find("map_f64_to_f32"), std::string::npos) << log;
}

TEST(OldPtx, VersionsAndTargets) {
  for (const char* version : {"1.4", "2.3", "3.0", "4.3", "5.0", "6.5", "7.8", "8.0", "8.7"}) {
    EXPECT_NE(MustCompile(Text(version, "sm_20", "")), nullptr) << version;
  }
  EXPECT_NE(MustCompile(Text("7.0", "sm_80, texmode_independent, debug", "")), nullptr);
  EXPECT_NE(MustCompile(Text("7.0", "compute_50", "")), nullptr);
  EXPECT_NE(CompileLog(Text("7.0", "sm_xy", "")), "");
  EXPECT_NE(CompileLog(Text("7.0", "quick", "")), "");
  EXPECT_EQ(Compile(Text("10.0", "sm_50", "")).error().code, ErrorCode::kVersion);
}

}  // namespace
}  // namespace tandem::ptx
