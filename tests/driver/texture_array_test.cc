// Textures over arrays of one and three dimensions and with layers, against the formulas of the
// programming guide's appendix on texture fetching.
#include <algorithm>
#include <cmath>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

// out[thread] = what the texture holds at[thread], which is x, y, z and a layer.
std::string Entry(const std::string& name, const std::string& fetch) {
  return ".visible .entry " + name + R"((.param .u64 at, .param .u64 out, .param .u64 texture)
{
  .reg .f32 %x, %y, %z, %f<4>; .reg .b32 %t, %l; .reg .b64 %at, %out, %tex, %off;
  ld.param.u64 %at, [at]; ld.param.u64 %out, [out]; ld.param.u64 %tex, [texture];
  cvta.to.global.u64 %at, %at; cvta.to.global.u64 %out, %out;
  mov.u32 %t, %tid.x;
  mul.wide.u32 %off, %t, 16; add.s64 %at, %at, %off;
  mul.wide.u32 %off, %t, 4; add.s64 %out, %out, %off;
  ld.global.v2.f32 {%x, %y}, [%at]; ld.global.f32 %z, [%at+8]; ld.global.u32 %l, [%at+12];
  tex.)" +
         fetch + R"(;
  st.global.f32 [%out], %f0;
  ret;
}
)";
}

std::string Fetches() {
  const std::string four = ".v4.f32.f32 {%f0, %f1, %f2, %f3}, [%tex, ";
  return PTX_HEAD + Entry("line", "1d" + four + "{%x}]") +
         Entry("box", "3d" + four + "{%x, %y, %z, %z}]") +
         Entry("sheets", "a2d" + four + "{%l, %x, %y, %y}]");
}

struct TexelPlace {
  float at[3];
  uint32_t layer;
};

// What lies in an array: T[i, j, k], or layers of T[i, j].
struct Texels {
  int extent[3];
  int dimensions;
  int layers;
  std::vector<float> values;

  int slices() const { return layers > 0 ? layers : extent[2]; }
  float At(const int (&index)[3], uint32_t layer) const {
    for (int d = 0; d < dimensions; ++d) {
      if (index[d] < 0 || index[d] >= extent[d]) return 0;  // the border's colour
    }
    const int slice = layers > 0 ? static_cast<int>(layer) : index[2];
    const int at = (slice * extent[1] + index[1]) * extent[0] + index[0];
    return values[static_cast<size_t>(at)];
  }
};

int BroughtInside(int index, int extent, CUaddress_mode mode) {
  if (mode == CU_TR_ADDRESS_MODE_BORDER) return index;
  if (mode == CU_TR_ADDRESS_MODE_WRAP) return (index % extent + extent) % extent;
  return std::clamp(index, 0, extent - 1);
}

// The coordinate in texels, where the formulas of filtering begin.
float InTexels(float x, int extent, const CUDA_TEXTURE_DESC& how) {
  if ((how.flags & CU_TRSF_NORMALIZED_COORDINATES) == 0) return x;
  const float whole = std::floor(x);
  if (how.addressMode[0] == CU_TR_ADDRESS_MODE_WRAP) x -= whole;
  if (how.addressMode[0] == CU_TR_ADDRESS_MODE_MIRROR) {
    x = std::fmod(whole, 2.0f) == 0 ? x - whole : 1 - (x - whole);
  }
  return x * static_cast<float>(extent);
}

float Expected(const Texels& texels, const TexelPlace& place, const CUDA_TEXTURE_DESC& how) {
  const bool linear = how.filterMode == CU_TR_FILTER_MODE_LINEAR;
  int first[3] = {0, 0, 0};
  float weight[3] = {0, 0, 0};
  for (int d = 0; d < texels.dimensions; ++d) {
    const float x = InTexels(place.at[d], texels.extent[d], how) - (linear ? 0.5f : 0.0f);
    first[d] = static_cast<int>(std::floor(x));
    weight[d] = linear ? x - std::floor(x) : 0;
  }
  float sum = 0;
  for (int corner = 0; corner < 1 << texels.dimensions; ++corner) {
    int index[3] = {0, 0, 0};
    float share = 1;
    for (int d = 0; d < texels.dimensions; ++d) {
      const int second = corner >> d & 1;
      index[d] = BroughtInside(first[d] + second, texels.extent[d], how.addressMode[d]);
      share *= second != 0 ? weight[d] : 1 - weight[d];
    }
    sum += share * texels.At(index, place.layer);
  }
  return sum;
}

class TextureArrayTest : public DriverTest {
 protected:
  static constexpr size_t kPlaces = 256, kStrides[] = {421, 577, 811};

  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_CU(Cu().cuModuleLoadData(&module_, Fetches().c_str()));
  }

  static Texels MakeTexels(int dimensions, int x, int y, int z, int layers) {
    Texels texels = {{x, y, z}, dimensions, layers, {}};
    const int count = x * y * texels.slices();
    for (int i = 0; i < count; ++i) texels.values.push_back(static_cast<float>(i * 37 % 61));
    return texels;
  }

  CUarray MakeArray(const Texels& texels) {
    const auto size = [&](int d) {
      return d < texels.dimensions ? static_cast<size_t>(texels.extent[d]) : 0;
    };
    const bool layered = texels.layers > 0;
    const size_t depth = layered ? static_cast<size_t>(texels.layers) : size(2);
    const CUDA_ARRAY3D_DESCRIPTOR shape = {
        size(0), size(1), depth, CU_AD_FORMAT_FLOAT, 1, layered ? CUDA_ARRAY3D_LAYERED : 0u};
    CUarray array = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuArray3DCreate_v2(&array, &shape));
    CUDA_MEMCPY3D in = {};
    in.srcMemoryType = CU_MEMORYTYPE_HOST;
    in.srcHost = texels.values.data();
    in.srcPitch = in.WidthInBytes = static_cast<size_t>(texels.extent[0]) * sizeof(float);
    in.srcHeight = in.Height = static_cast<size_t>(texels.extent[1]);
    in.Depth = static_cast<size_t>(texels.slices());
    in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    in.dstArray = array;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpy3D_v2(&in));
    return array;
  }

  // Inside and beyond every edge, a quarter off the texels' middles and edges: there the weights
  // and the sums that they make have so few bits that a float holds them.
  static std::vector<TexelPlace> Places(const Texels& texels, bool normalized) {
    std::vector<TexelPlace> places(kPlaces);
    for (size_t i = 0; i < kPlaces; ++i) {
      for (int d = 0; d < texels.dimensions; ++d) {
        const int extent = texels.extent[d];
        const int step = static_cast<int>(i * kStrides[d] % 1009) % (6 * extent) - 2 * extent;
        const float x = static_cast<float>(step) / 2 + 0.25f;
        places[i].at[d] = normalized ? x / static_cast<float>(extent) : x;
      }
      if (texels.layers > 0)
        places[i].layer = static_cast<uint32_t>(i % static_cast<size_t>(texels.layers));
    }
    return places;
  }

  void Compare(const char* kernel, const Texels& texels, CUarray array,
               const CUDA_TEXTURE_DESC& how) {
    const bool normalized = (how.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
    const std::vector<TexelPlace> places = Places(texels, normalized);
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    CUtexObject texture = 0;
    ASSERT_CU(Cu().cuTexObjectCreate(&texture, &resource, &how, nullptr));
    CUdeviceptr at = Allocate(kPlaces * sizeof(TexelPlace)),
                out = Allocate(kPlaces * sizeof(float));
    ASSERT_CU(Cu().cuMemcpyHtoD_v2(at, places.data(), kPlaces * sizeof(TexelPlace)));
    ASSERT_CU(Launch(Kernel(kernel), 1, kPlaces, nullptr, {&at, &out, &texture}));
    std::vector<float> seen(kPlaces);
    ASSERT_CU(Cu().cuMemcpyDtoH_v2(seen.data(), out, kPlaces * sizeof(float)));
    for (size_t i = 0; i < kPlaces; ++i) {
      const TexelPlace& p = places[i];
      ASSERT_FLOAT_EQ(seen[i], Expected(texels, p, how))
          << "at " << p.at[0] << ' ' << p.at[1] << ' ' << p.at[2] << " of layer " << p.layer;
    }
    ASSERT_CU(Cu().cuTexObjectDestroy(texture));
    ASSERT_CU(Cu().cuMemFree_v2(at));
    ASSERT_CU(Cu().cuMemFree_v2(out));
  }

  // With every filter and every address mode that the coordinates allow.
  void CompareAll(const char* kernel, const Texels& texels) {
    const CUarray array = MakeArray(texels);
    for (const CUfilter_mode filter : {CU_TR_FILTER_MODE_POINT, CU_TR_FILTER_MODE_LINEAR}) {
      for (const unsigned int flags : {0u, CU_TRSF_NORMALIZED_COORDINATES}) {
        for (const CUaddress_mode mode : {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_WRAP,
                                          CU_TR_ADDRESS_MODE_MIRROR, CU_TR_ADDRESS_MODE_BORDER}) {
          if (flags == 0 && mode != CU_TR_ADDRESS_MODE_CLAMP) continue;
          SCOPED_TRACE("filter " + std::to_string(filter) + ", mode " + std::to_string(mode) +
                       (flags != 0 ? ", normalized" : ""));
          CUDA_TEXTURE_DESC how = {};
          for (CUaddress_mode& each : how.addressMode) each = mode;
          how.filterMode = filter;
          how.flags = flags;
          Compare(kernel, texels, array, how);
        }
      }
    }
    EXPECT_CU(CUDA_SUCCESS, Cu().cuArrayDestroy(array));
  }
};

TEST_F(TextureArrayTest, OfOneDimension) {
  CompareAll("line", MakeTexels(1, 16, 1, 1, 0));
}

TEST_F(TextureArrayTest, OfThreeDimensions) {
  CompareAll("box", MakeTexels(3, 8, 4, 2, 0));
}

TEST_F(TextureArrayTest, InLayers) {
  CompareAll("sheets", MakeTexels(2, 4, 8, 1, 3));
}

}  // namespace
}  // namespace tandem::driver_test
