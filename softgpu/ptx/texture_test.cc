// Texture fetches against a scalar reference written from the formulas of the CUDA programming
// guide's appendix on texture fetching, in extended precision.
#include "softgpu/ptx/texture.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "softgpu/ptx/code.h"
#include "softgpu/ptx/operations.h"
#include "softgpu/ptx/testing.h"
#include "src/base/testing/rounds.h"

namespace tandem::ptx {
namespace {

constexpr uint64_t kTexels = 1 << 16, kWhere = 0, kTexelsOut = 4096;  // offsets into the device

bool IsFloating(TexelFormat format) {
  return format == TexelFormat::kF16 || format == TexelFormat::kF32;
}
uint32_t ChannelBytes(TexelFormat format) {
  switch (format) {
    case TexelFormat::kU8:
    case TexelFormat::kS8:
      return 1;
    case TexelFormat::kU16:
    case TexelFormat::kS16:
    case TexelFormat::kF16:
      return 2;
    default:
      return 4;
  }
}
bool GivesIntegers(const Texture& t) {
  return !IsFloating(t.format) && (t.as_integer || ChannelBytes(t.format) == 4);
}

struct Reference {
  const Texture& t;
  const uint8_t* memory;  // what lies at t.address

  // T[i, j, k], or the border colour.
  long double Texel(int channel, const int64_t (&index)[3], uint32_t layer) const {
    for (int d = 0; d < 3; ++d) {
      if (index[d] < 0 || index[d] >= t.extent[d]) return t.border[channel];
    }
    const uint32_t bytes = ChannelBytes(t.format);
    const uint8_t* at = memory + static_cast<uint64_t>(index[0]) * bytes * t.channels +
                        static_cast<uint64_t>(index[1]) * t.pitch +
                        (static_cast<uint64_t>(index[2]) + layer) * t.slice +
                        uint64_t{bytes} * static_cast<uint32_t>(channel);
    uint32_t bits = 0;
    std::memcpy(&bits, at, bytes);
    const bool whole = GivesIntegers(t);
    switch (t.format) {
      case TexelFormat::kU8:
        return whole ? bits : bits / 255.0L;
      case TexelFormat::kU16:
        return whole ? bits : bits / 65535.0L;
      case TexelFormat::kS8:
        return whole ? static_cast<int8_t>(bits)
                     : std::max(static_cast<int8_t>(bits) / 127.0L, -1.0L);
      case TexelFormat::kS16:
        return whole ? static_cast<int16_t>(bits)
                     : std::max(static_cast<int16_t>(bits) / 32767.0L, -1.0L);
      case TexelFormat::kU32:
        return bits;
      case TexelFormat::kS32:
        return static_cast<int32_t>(bits);
      case TexelFormat::kF16:
        return HalfValue(bits);
      case TexelFormat::kF32:
        return F(bits);
    }
    return NAN;
  }

  // The coordinate in texels, brought into the range where the address mode does that.
  long double Coordinate(int d, long double x, bool texels) const {
    if (!t.normalized || texels) return x;
    const long double whole = std::floor(x);
    if (t.mode[d] == AddressMode::kWrap) x -= whole;
    if (t.mode[d] == AddressMode::kMirror) {
      x = std::fmod(whole, 2.0L) == 0 ? x - whole : 1 - (x - whole);
    }
    return x * t.extent[d];
  }

  // An index beyond an edge; the border keeps it.
  int64_t Index(int d, int64_t i, bool texels) const {
    const int64_t n = t.extent[d];
    if (t.mode[d] == AddressMode::kBorder) return i;
    if (t.mode[d] == AddressMode::kWrap && t.normalized && !texels) return (i % n + n) % n;
    return std::clamp<int64_t>(i, 0, n - 1);
  }

  // Also the sum of all magnitudes, which bounds what rounding may do.
  long double Fetch(int channel, int dimensions, const long double (&where)[3], bool texels,
                    uint32_t layer, long double* magnitude) const {
    const bool wide = !IsFloating(t.format) && ChannelBytes(t.format) == 4;
    const bool linear = t.linear_filter && !texels && !wide;
    int64_t first[3] = {0, 0, 0};
    long double alpha[3] = {0, 0, 0};
    for (int d = 0; d < dimensions; ++d) {
      const long double x = Coordinate(d, where[d], texels) - (linear ? 0.5L : 0.0L);
      first[d] = static_cast<int64_t>(std::floor(x));
      // 9 bits, 8 of them fractional.
      if (linear) alpha[d] = std::floor((x - std::floor(x)) * 256 + 0.5L) / 256;
    }
    long double sum = 0;
    *magnitude = 0;
    for (int corner = 0; corner < (linear ? 1 << dimensions : 1); ++corner) {
      int64_t index[3] = {0, 0, 0};
      long double weight = 1;
      for (int d = 0; d < dimensions; ++d) {
        const bool second = (corner >> d & 1) != 0;
        index[d] = Index(d, first[d] + (second ? 1 : 0), texels);
        weight *= second ? alpha[d] : 1 - alpha[d];
      }
      const long double value = Texel(channel, index, layer);
      sum += weight * value;
      *magnitude += weight * std::abs(value);
    }
    return GivesIntegers(t) ? std::floor(sum + 0.5L) : sum;
  }
};

struct Geometry {
  const char* name;
  int dimensions;
  bool layered;
};
constexpr Geometry kGeometries[] = {
    {"1d", 1, false}, {"2d", 2, false}, {"3d", 3, false}, {"a1d", 1, true}, {"a2d", 2, true}};

// Reads three words a thread from `in`, fetches, and writes four to `out`.
std::string FetchKernel(const Geometry& g, const std::string& type, const std::string& suffix = "",
                        const std::string& level = "") {
  const std::string tuple = g.dimensions + (g.layered ? 1 : 0) == 1   ? "{%w0}"
                            : g.dimensions + (g.layered ? 1 : 0) == 2 ? "{%w0, %w1}"
                                                                      : "{%w0, %w1, %w2, %w2}";
  return Module(".param .u64 in, .param .u64 result, .param .u64 texture", R"(
  .reg .b64 %in, %out, %off, %tex;
  .reg .b32 %t, %w<3>, %r<4>;
  ld.param.u64 %in, [in]; ld.param.u64 %out, [result]; ld.param.u64 %tex, [texture];
  mov.u32 %t, %tid.x;
  mul.wide.u32 %off, %t, 12; add.u64 %in, %in, %off;
  mul.wide.u32 %off, %t, 16; add.u64 %out, %out, %off;
  ld.global.u32 %w0, [%in]; ld.global.u32 %w1, [%in+4]; ld.global.u32 %w2, [%in+8];
  tex.)" + level + g.name + ".v4.u32." + type + " {%r0, %r1, %r2, %r3}, [%tex, " +
                                                                               tuple + "]" +
                                                                               suffix + R"(;
  st.global.v4.u32 [%out], {%r0, %r1, %r2, %r3};
  ret;)");
}

class TextureTest : public testing::Test {
 protected:
  TextureTest() : random_(Seed()), device_(kTexels + (1 << 20)) {}

  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  Texture RandomTexture(const Geometry& g) {
    Texture t;
    t.handle = 77 << 20 | 1;
    t.address = device_.At(kTexels);
    t.format = static_cast<TexelFormat>(Below(8));
    t.channels = static_cast<uint8_t>(1 << Below(3));
    for (int d = 0; d < g.dimensions; ++d) t.extent[d] = 1 + Below(Below(2) == 0 ? 4 : 17);
    if (g.layered) t.layers = 1 + Below(5);
    const uint32_t texel = ChannelBytes(t.format) * t.channels;
    t.pitch = (t.extent[0] + Below(3)) * uint64_t{texel};
    t.slice = t.pitch * t.extent[1];
    for (AddressMode& mode : t.mode) mode = static_cast<AddressMode>(Below(4));
    t.linear_filter = Below(2) == 0;
    t.normalized = Below(2) == 0;
    t.as_integer = Below(2) == 0;
    for (float& border : t.border) border = static_cast<float>(Below(100));
    uint32_t* words = device_.Array<uint32_t>(kTexels);
    for (int i = 0; i < (1 << 16); ++i) words[i] = RandomTexel(t.format);
    return t;
  }

  uint32_t RandomTexel(TexelFormat format) {
    const uint32_t bits = static_cast<uint32_t>(random_());
    if (format == TexelFormat::kF32) return B(std::ldexp(float(int(bits)), -20)) & 0xffffffff;
    return format == TexelFormat::kF16 ? bits & 0xbbffbbff : bits;  // no infinities
  }

  float RandomCoordinate(const Texture& t, int d) {
    const float extent = t.normalized ? 1.0f : static_cast<float>(t.extent[d]);
    const float range = static_cast<float>(Below(1 << 24)) * 0x1p-24f * 5 - 2;
    switch (Below(8)) {
      case 0:  // edges of texels and their middles
        return static_cast<float>(int(Below(16)) - 8) / 2 * (t.normalized ? 0.25f : 1.0f);
      case 1:
        return static_cast<float>(int(Below(1 << 20)) - (1 << 19));
      default:
        return range * extent;
    }
  }

  std::vector<uint32_t> Run(const Program& program, const Texture& t, Path path) {
    Execution execution = MakeTextured(program, t, path);
    EXPECT_EQ(execution.Run(Never), Stop::kDone) << execution.fault().what;
    const uint32_t* out = device_.Array<uint32_t>(kTexelsOut);
    return std::vector<uint32_t>(out, out + size_t{4} * kLanes);
  }

  Execution MakeTextured(const Program& program, const Texture& t, Path path,
                         uint64_t handle = 77 << 20 | 1) {
    Launch launch;
    launch.program = &program;
    launch.kernel = &program.kernels().front();
    launch.block[0] = kLanes;
    launch.params =
        Params().Add(device_.At(kWhere)).Add(device_.At(kTexelsOut)).Add(handle).bytes();
    launch.textures = std::make_shared<const std::vector<Texture>>(1, t);
    return Execution(launch, device_.map(), path);
  }

  void CheckLanes(const Geometry& g, const Texture& t, bool texels,
                  const std::vector<uint32_t>& result);

  std::mt19937_64 random_;
  TestDevice device_;
};

void TextureTest::CheckLanes(const Geometry& g, const Texture& t, bool texels,
                             const std::vector<uint32_t>& result) {
  const Reference reference{t, device_.Array<uint8_t>(kTexels)};
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t* words = device_.Array<uint32_t>(kWhere) + size_t{3} * lane;
    long double where[3] = {0, 0, 0};
    uint32_t layer = 0;
    if (g.layered) layer = std::min(*words++, t.layers - 1);
    for (int d = 0; d < g.dimensions; ++d) where[d] = texels ? S(words[d]) : F(words[d]);
    for (int c = 0; c < t.channels; ++c) {
      long double magnitude = 0;
      const long double expected =
          reference.Fetch(c, g.dimensions, where, texels, layer, &magnitude);
      const uint32_t bits = result[4 * lane + c];
      if (!GivesIntegers(t)) {
        ASSERT_LE(std::abs(F(bits) - expected), magnitude * 0x1p-23L)
            << lane << ' ' << c << " at " << where[0] << ' ' << where[1] << ' ' << where[2];
      } else {
        ASSERT_EQ(bits, static_cast<uint32_t>(static_cast<int64_t>(expected)))
            << lane << ' ' << c << " at " << where[0] << ' ' << where[1] << ' ' << where[2];
      }
    }
    for (int c = t.channels; c < 4; ++c) {
      const uint32_t one = GivesIntegers(t) ? 1 : 0x3f800000;
      ASSERT_EQ(result[4 * lane + c], c == 3 ? one : 0);
    }
  }
}

TEST_F(TextureTest, MatchesTheReference) {
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  for (const Geometry& g : kGeometries) {
    for (const bool texels : {false, true}) {
      const auto program = MustCompile(FetchKernel(g, texels ? "s32" : "f32"));
      ASSERT_NE(program, nullptr);
      for (uint64_t round = 0; round < Rounds(400); ++round) {
        const Texture t = RandomTexture(g);
        SCOPED_TRACE(std::string(g.name) + " format " + std::to_string(int(t.format)) + " x" +
                     std::to_string(t.channels) + " linear " + std::to_string(t.linear_filter) +
                     " normalized " + std::to_string(t.normalized) + " mode " +
                     std::to_string(int(t.mode[0])) + " width " + std::to_string(t.extent[0]));
        uint32_t* words = device_.Array<uint32_t>(kWhere);
        for (int i = 0; i < 3 * kLanes; ++i) {
          const int d = i % 3 - (g.layered ? 1 : 0);
          words[i] = d < 0    ? Below(8)
                     : texels ? Below(40) - 10
                              : static_cast<uint32_t>(B(RandomCoordinate(t, d)));
        }
        const auto result = Run(*program, t, Path::kBaseline);
        CheckLanes(g, t, texels, result);
        if (HasFatalFailure()) return;
        EXPECT_EQ(Run(*program, t, Path::kAuto), result) << "the paths differ";
      }
    }
  }
}

// A float that is not filtered keeps its bits; coordinates that are no numbers stay inside.
TEST_F(TextureTest, OddValues) {
  const auto program = MustCompile(FetchKernel(kGeometries[1], "f32"));
  ASSERT_NE(program, nullptr);
  Texture t;
  t.handle = 77 << 20 | 1;
  t.address = device_.At(kTexels);
  t.format = TexelFormat::kF32;
  t.extent[0] = t.extent[1] = 2;
  t.pitch = 8;
  const uint32_t texels[] = {0x7f812345, 0xff800000, 0x00000001, 0x80000000};
  std::memcpy(device_.Array<uint32_t>(kTexels), texels, sizeof texels);
  uint32_t* words = device_.Array<uint32_t>(kWhere);
  for (int i = 0; i < 3 * kLanes; i += 3) {
    words[i] = 0x7fc00000;
    words[i + 1] = i % 2 == 0 ? 0x7f800000 : 0xff800000;
  }
  for (const Path path : Paths()) {
    const auto result = Run(*program, t, path);
    EXPECT_EQ(result[0], 1u);
    EXPECT_EQ(result[4], 0x7f812345u);
  }
}

TEST_F(TextureTest, ThereIsOneLevel) {
  for (const Geometry& g : kGeometries) {
    SCOPED_TRACE(g.name);
    const Texture t = RandomTexture(g);
    uint32_t* words = device_.Array<uint32_t>(kWhere);
    for (int i = 0; i < 3 * kLanes; ++i) {
      const int d = i % 3 - (g.layered ? 1 : 0);
      words[i] = d < 0 ? Below(8) : static_cast<uint32_t>(B(RandomCoordinate(t, d)));
    }
    const auto plain = MustCompile(FetchKernel(g, "f32"));
    const auto level = MustCompile(FetchKernel(g, "f32", ", 0f40000000", "level."));
    ASSERT_TRUE(plain != nullptr && level != nullptr);
    EXPECT_EQ(Run(*plain, t, Path::kAuto), Run(*level, t, Path::kAuto));
  }
}

// A texture says what it gives; the instruction's type is that of the registers.
TEST_F(TextureTest, ResultsOfEveryTypeAreTheSame) {
  for (const Geometry& g : kGeometries) {
    for (const bool texels : {false, true}) {
      for (const std::string level : {"", "level."}) {
        if (texels && !level.empty()) continue;
        SCOPED_TRACE(level + g.name + (texels ? ", texels" : ""));
        const std::string text =
            FetchKernel(g, texels ? "s32" : "f32", level.empty() ? "" : ", 0f00000000", level);
        const Texture t = RandomTexture(g);
        uint32_t* words = device_.Array<uint32_t>(kWhere);
        for (int i = 0; i < 3 * kLanes; ++i) words[i] = Below(8);
        std::vector<std::vector<uint32_t>> results;
        for (const char* type : {".v4.u32.", ".v4.s32.", ".v4.f32."}) {
          std::string typed = text;
          typed.replace(typed.find(".v4.u32.", typed.find("tex.")), 8, type);
          const auto program = MustCompile(typed);
          ASSERT_NE(program, nullptr);
          results.push_back(Run(*program, t, Path::kAuto));
        }
        EXPECT_EQ(results[0], results[1]);
        EXPECT_EQ(results[0], results[2]);
      }
    }
  }
}

TEST_F(TextureTest, Queries) {
  const auto query = MustCompile(
      Module(".param .u64 in, .param .u64 result, .param .u64 texture",
             ".reg .b64 %out, %tex; .reg .b32 %r<6>;\n"
             "ld.param.u64 %out, [result]; ld.param.u64 %tex, [texture];\n"
             "txq.width.b32 %r0, [%tex]; txq.height.b32 %r1, [%tex];\n"
             "txq.num_mipmap_levels.b32 %r2, [%tex]; txq.normalized_coords.b32 %r3, [%tex];\n"
             "txq.depth.b32 %r4, [%tex]; txq.array_size.b32 %r5, [%tex];\n"
             "st.global.v4.u32 [%out], {%r0, %r1, %r2, %r3};\n"
             "st.global.v2.u32 [%out+16], {%r4, %r5}; ret;"));
  ASSERT_NE(query, nullptr);
  for (const Geometry& g : kGeometries) {
    SCOPED_TRACE(g.name);
    const Texture t = RandomTexture(g);
    const auto answers = Run(*query, t, Path::kAuto);
    EXPECT_EQ(answers[0], t.extent[0]);
    EXPECT_EQ(answers[2], 1u);
    EXPECT_EQ(answers[3], t.normalized ? 1u : 0u);
    EXPECT_EQ(g.dimensions > 1 ? answers[1] : 0, g.dimensions > 1 ? t.extent[1] : 0);
    EXPECT_EQ(g.dimensions > 2 ? answers[4] : 0, g.dimensions > 2 ? t.extent[2] : 0);
    EXPECT_EQ(g.layered ? answers[5] : 0, g.layered ? t.layers : 0);
  }
}

TEST_F(TextureTest, FaultsOnWhatIsNotThere) {
  const auto program = MustCompile(FetchKernel(kGeometries[1], "s32"));
  ASSERT_NE(program, nullptr);
  Texture t = RandomTexture(kGeometries[1]);
  for (const uint64_t handle : {uint64_t{0}, uint64_t{1}, uint64_t{76} << 20 | 1, uint64_t{2}}) {
    Execution execution = MakeTextured(*program, t, Path::kAuto, handle);
    EXPECT_EQ(execution.Run(Never), Stop::kIllegalAddress);
    EXPECT_EQ(execution.fault().address, handle);
  }
  device_.Forbid(kTexels / TestDevice::kGranule, true, false);
  Execution execution = MakeTextured(*program, t, Path::kAuto);
  for (AddressMode& mode : t.mode) mode = AddressMode::kClamp;
  EXPECT_EQ(execution.Run(Never), Stop::kIllegalAddress);
}

TEST_F(TextureTest, RefusesWhatItDoesNotKnow) {
  const auto body = [](const std::string& text) {
    return Module("", ".reg .b64 %tex, %s; .reg .b32 %r<4>; .reg .f32 %f<4>;\n" + text + "\nret;");
  };
  const std::string results = "{%r0, %r1, %r2, %r3}";
  for (const std::string& text : std::vector<std::string>{
           "tex.cube.v4.f32.f32 " + results + ", [%tex, {%f0, %f1, %f2, %f3}];",
           "tex.2d.v4.f32.f32 " + results + ", [%tex, %s, {%f0, %f1}];",
           "tex.2d.v4.f32.f32 " + results + ", [%tex, {%f0}];",
           "tex.2d.v4.f32.f32 " + results + ", [%tex];",
           "tex.2d.v4.f32.f32 {%r0, %r1}, [%tex, {%f0, %f1}];",
           "tex.2d.v4.f32.f32 " + results + ", [%r0, {%f0, %f1}];",
           "ld.global.u32 %r0, [%tex, {%f0}];"}) {
    EXPECT_NE(CompileLog(body(text)).find("line 7"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tandem::ptx
