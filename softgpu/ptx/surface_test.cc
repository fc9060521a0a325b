// Surface loads and stores against a plain copy of the texels' bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "softgpu/ptx/code.h"
#include "softgpu/ptx/testing.h"
#include "softgpu/ptx/texture.h"

namespace tandem::ptx {
namespace {

constexpr uint64_t kSurfaceTexels = 1 << 16, kPlaces = 0, kValues = 8192, kSurfaceBytes = 1 << 14;

struct SurfaceGeometry {
  const char* name;
  int dimensions;
  bool layered;
};
constexpr SurfaceGeometry kSurfaceGeometries[] = {
    {"1d", 1, false}, {"2d", 2, false}, {"3d", 3, false}, {"a1d", 1, true}, {"a2d", 2, true}};

// What one lane accesses: a layer, where there are some, and x in bytes, y and z.
struct SurfacePlace {
  int32_t at[4];
};

class SurfaceTest : public testing::Test {
 protected:
  SurfaceTest() : random_(Seed()), device_(kSurfaceTexels + (1 << 16)) {}

  int32_t Below(uint32_t n) { return static_cast<int32_t>(random_() % n); }

  Texture MakeSurface(const SurfaceGeometry& g, TexelFormat format, uint8_t channels,
                      uint32_t texel_bytes) {
    Texture t;
    t.surface = true;
    t.handle = 5 << 20 | 1;
    t.address = device_.At(kSurfaceTexels);
    t.format = format;
    t.channels = channels;
    for (int d = 0; d < g.dimensions; ++d) t.extent[d] = 3 + static_cast<uint32_t>(Below(5));
    if (g.layered) t.layers = 3;
    t.pitch = (t.extent[0] + 1) * uint64_t{texel_bytes};
    t.slice = t.pitch * t.extent[1];
    for (uint64_t i = 0; i < kSurfaceBytes; ++i) {
      device_.Array<uint8_t>(kSurfaceTexels)[i] = static_cast<uint8_t>(random_());
    }
    return t;
  }

  // A kernel that loads what each lane names, or stores it there.
  static std::string Kernel(const SurfaceGeometry& g, int bits, int count, const std::string& edge,
                            bool store) {
    const std::string reg = bits == 8 || bits == 16 ? "%h" : bits == 32 ? "%r1" : "%d";
    std::string values = "{";
    for (int i = 0; i < count; ++i) values += (i == 0 ? "" : ", ") + reg + std::to_string(i);
    values += "}";
    const std::string layer = g.layered ? "%r0, " : "";
    const std::string tuple = g.dimensions == 1 ? "{" + layer + "%r1}"
                              : g.dimensions == 2
                                  ? "{" + layer + "%r1, %r2" + (g.layered ? ", %r2}" : "}")
                                  : "{%r1, %r2, %r3, %r3}";
    const std::string vector = count == 1 ? "" : ".v" + std::to_string(count);
    const std::string type = ".b" + std::to_string(bits), memory = vector + type;
    const std::string how = std::string(".b.") + g.name + vector + type + "." + edge + " ";
    return Module(".param .u64 in, .param .u64 result, .param .u64 surface",
                  ".reg .b64 %in, %out, %s, %o, %d<4>; .reg .b32 %t, %r<20>; .reg .b16 %h<4>;\n"
                  "ld.param.u64 %in, [in]; ld.param.u64 %out, [result];\n"
                  "ld.param.u64 %s, [surface]; mov.u32 %t, %tid.x;\n"
                  "mul.wide.u32 %o, %t, 16; add.u64 %in, %in, %o; add.u64 %out, %out, %o;\n"
                  "ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%in];\n" +
                      (store ? "ld.global" + memory + " " + values + ", [%out];\nsust" + how +
                                   "[%s, " + tuple + "], " + values + "; ret;"
                             : "suld" + how + values + ", [%s, " + tuple + "];\nst.global" +
                                   memory + " [%out], " + values + "; ret;"));
  }

  Stop Run(const Program& program, const Texture& t, Path path) {
    Launch launch;
    launch.program = &program;
    launch.kernel = &program.kernels().front();
    launch.block[0] = kLanes;
    launch.params =
        Params().Add(device_.At(kPlaces)).Add(device_.At(kValues)).Add(t.handle).bytes();
    launch.textures = std::make_shared<const std::vector<Texture>>(1, t);
    return Execution(launch, device_.map(), path).Run(Never);
  }

  // Some of the lanes are beyond an edge, if that is allowed.
  void SetPlaces(const Texture& t, const SurfaceGeometry& g, int32_t bytes, bool beyond) {
    auto* places = device_.Array<SurfacePlace>(kPlaces);
    for (int lane = 0; lane < kLanes; ++lane) {
      SurfacePlace& place = places[lane];
      const auto pick = [&](uint32_t extent) {
        return beyond ? Below(extent + 4) - 2 : Below(extent);
      };
      place.at[0] = g.layered ? Below(beyond ? 5 : 3) : 0;
      place.at[1] = pick(t.extent[0]) * bytes;
      place.at[2] = pick(t.extent[1]);
      place.at[3] = pick(t.extent[2]);
    }
  }

  // Where a lane's texel begins; `inside` tells whether it is one of the surface's.
  static uint64_t OffsetOf(const Texture& t, const SurfaceGeometry& g, SurfacePlace place,
                           int32_t bytes, bool* inside) {
    const auto last = [](uint32_t extent) { return static_cast<int32_t>(extent) - 1; };
    int32_t x = place.at[1] / bytes, y = place.at[2], z = place.at[3], layer = place.at[0];
    if (g.dimensions < 2) y = 0;
    if (g.dimensions < 3) z = 0;
    const int32_t at[] = {std::clamp(x, 0, last(t.extent[0])), std::clamp(y, 0, last(t.extent[1])),
                          std::clamp(z, 0, last(t.extent[2])),
                          g.layered ? std::clamp(layer, 0, last(t.layers)) : 0};
    *inside = at[0] == x && at[1] == y && at[2] == z && (!g.layered || at[3] == layer);
    return static_cast<uint64_t>(at[0]) * static_cast<uint64_t>(bytes) +
           static_cast<uint64_t>(at[1]) * t.pitch + static_cast<uint64_t>(at[2] + at[3]) * t.slice;
  }

  std::mt19937_64 random_;
  TestDevice device_;
};

struct TexelShape {
  TexelFormat format;
  uint8_t channels;
  int bits, count;
};
constexpr TexelShape kTexelShapes[] = {
    {TexelFormat::kU8, 1, 8, 1},   {TexelFormat::kS8, 4, 8, 4},   {TexelFormat::kU8, 4, 32, 1},
    {TexelFormat::kF16, 1, 16, 1}, {TexelFormat::kU16, 2, 16, 2}, {TexelFormat::kF32, 1, 32, 1},
    {TexelFormat::kS32, 2, 64, 1}, {TexelFormat::kU32, 4, 32, 4}, {TexelFormat::kF32, 4, 64, 2}};

TEST_F(SurfaceTest, LoadsAndStoresBytes) {
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  for (const SurfaceGeometry& g : kSurfaceGeometries) {
    for (const TexelShape& shape : kTexelShapes) {
      for (const std::string edge : {"trap", "clamp", "zero"}) {
        SCOPED_TRACE(std::string(g.name) + " " + std::to_string(shape.bits) + " x" +
                     std::to_string(shape.count) + " " + edge);
        const int32_t bytes = shape.bits / 8 * shape.count;
        const Texture t =
            MakeSurface(g, shape.format, shape.channels, static_cast<uint32_t>(bytes));
        SetPlaces(t, g, bytes, edge != "trap");
        const uint8_t* texels = device_.Array<uint8_t>(kSurfaceTexels);
        std::vector<uint8_t> expected(texels, texels + kSurfaceBytes);
        const auto load = MustCompile(Kernel(g, shape.bits, shape.count, edge, false));
        const auto store = MustCompile(Kernel(g, shape.bits, shape.count, edge, true));
        ASSERT_TRUE(load != nullptr && store != nullptr);
        for (const Path path : Paths()) {
          const std::vector<uint8_t> before = expected;
          ASSERT_EQ(Run(*load, t, path), Stop::kDone);
          for (int lane = 0; lane < kLanes; ++lane) {
            bool inside = false;
            const uint64_t at =
                OffsetOf(t, g, device_.Array<SurfacePlace>(kPlaces)[lane], bytes, &inside);
            std::vector<uint8_t> texel(&before[at], &before[at] + bytes);
            if (edge == "zero" && !inside) std::ranges::fill(texel, 0);
            uint8_t* out = device_.Array<uint8_t>(kValues) + size_t{16} * lane;
            ASSERT_EQ(std::vector<uint8_t>(out, out + bytes), texel) << lane;
            // What this lane is to store; a later lane may store to the same texel.
            for (int i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>(random_());
            if (edge != "zero" || inside) std::copy_n(out, bytes, &expected[at]);
          }
          ASSERT_EQ(Run(*store, t, path), Stop::kDone);
          ASSERT_EQ(std::vector<uint8_t>(texels, texels + kSurfaceBytes), expected);
        }
      }
    }
  }
}

TEST_F(SurfaceTest, FaultsStopTheKernel) {
  const SurfaceGeometry& g = kSurfaceGeometries[1];
  const auto load = MustCompile(Kernel(g, 32, 1, "trap", false));
  ASSERT_NE(load, nullptr);
  for (const Path path : Paths()) {
    Texture t = MakeSurface(g, TexelFormat::kU32, 1, 4);
    SetPlaces(t, g, 4, false);
    EXPECT_EQ(Run(*load, t, path), Stop::kDone);
    device_.Array<SurfacePlace>(kPlaces)[7].at[2] = static_cast<int32_t>(t.extent[1]);
    EXPECT_EQ(Run(*load, t, path), Stop::kIllegalAddress);
    device_.Array<SurfacePlace>(kPlaces)[7].at[2] = 0;
    device_.Array<SurfacePlace>(kPlaces)[7].at[1] = 2;
    EXPECT_EQ(Run(*load, t, path), Stop::kMisalignedAddress);
    SetPlaces(t, g, 4, false);
    t.surface = false;  // it is a texture
    EXPECT_EQ(Run(*load, t, path), Stop::kIllegalAddress);
  }
}

TEST_F(SurfaceTest, RefusesWhatIsNoSurfaceAccess) {
  for (const char* wrong :
       {"suld.b.2d.b32.trap {%r1}, [%rd1, {%r2}];", "suld.b.1d.v2.b32.trap {%r1}, [%rd1, {%r2}];",
        "suld.b.1d.b32 {%r1}, [%rd1, {%r2}];", "suld.b.1d.f32.trap {%f1}, [%rd1, {%r2}];",
        "sust.b.1d.b64.trap [%rd1, {%r2}], {%r1};", "suld.b.1d.b32.trap {%r1}, [%r1, {%r2}];",
        "sust.b.1d.v4.b64.zero [%rd1, {%r2}], {%rd1, %rd1, %rd1, %rd1};"}) {
    EXPECT_NE(CompileLog(WithRegisters(wrong)), "") << wrong;
  }
}

}  // namespace
}  // namespace tandem::ptx
