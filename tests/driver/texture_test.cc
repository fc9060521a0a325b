// Texture objects over memory and arrays, and what kernels read through them. How values are
// filtered is a matter of the interpreter's own tests; here are the cases that the programming
// guide's formulas make exact.
#include <cstring>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

// float4 out[thread] = tex2D(texture, at[thread]), and the same by index in one dimension.
constexpr char kFetches[] = PTX_HEAD R"(
.visible .entry plane(.param .u64 at, .param .u64 out, .param .u64 texture)
{
  .reg .b32 %t; .reg .f32 %f<6>; .reg .b64 %at, %out, %tex, %off;
  mov.u32 %t, %tid.x;
  ld.param.u64 %at, [at]; ld.param.u64 %out, [out]; ld.param.u64 %tex, [texture];
  cvta.to.global.u64 %at, %at; cvta.to.global.u64 %out, %out;
  mul.wide.u32 %off, %t, 8; add.s64 %at, %at, %off;
  mul.wide.u32 %off, %t, 16; add.s64 %out, %out, %off;
  ld.global.v2.f32 {%f4, %f5}, [%at];
  tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%tex, {%f4, %f5}];
  st.global.v4.f32 [%out], {%f0, %f1, %f2, %f3};
  ret;
}
.visible .entry row(.param .u64 at, .param .u64 out, .param .u64 texture)
{
  .reg .b32 %t, %i, %r<4>; .reg .b64 %at, %out, %tex, %off;
  mov.u32 %t, %tid.x;
  ld.param.u64 %at, [at]; ld.param.u64 %out, [out]; ld.param.u64 %tex, [texture];
  cvta.to.global.u64 %at, %at; cvta.to.global.u64 %out, %out;
  mul.wide.u32 %off, %t, 8; add.s64 %at, %at, %off;
  mul.wide.u32 %off, %t, 16; add.s64 %out, %out, %off;
  ld.global.u32 %i, [%at];
  tex.1d.v4.s32.s32 {%r0, %r1, %r2, %r3}, [%tex, {%i}];
  st.global.v4.u32 [%out], {%r0, %r1, %r2, %r3};
  ret;
}
)";

CUDA_RESOURCE_DESC Pitched(CUdeviceptr pointer, CUarray_format format, unsigned int channels,
                           size_t width, size_t height, size_t pitch) {
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_PITCH2D;
  resource.res.pitch2D = {pointer, format, channels, width, height, pitch};
  return resource;
}

CUDA_RESOURCE_DESC OfArray(CUarray array) {
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  return resource;
}

CUDA_RESOURCE_DESC Linear(CUdeviceptr pointer, CUarray_format format, size_t bytes) {
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear = {pointer, format, 1, bytes};
  return resource;
}

CUDA_TEXTURE_DESC Sampling(CUaddress_mode mode, CUfilter_mode filter, unsigned int flags) {
  CUDA_TEXTURE_DESC description = {};
  for (CUaddress_mode& each : description.addressMode) each = mode;
  description.filterMode = filter;
  description.flags = flags;
  return description;
}

class TextureTest : public DriverTest {
 protected:
  struct Point {
    float x, y;
  };

  CUtexObject Make(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& description) {
    CUtexObject texture = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuTexObjectCreate(&texture, &resource, &description, nullptr));
    return texture;
  }

  // The first channel that each point reads; the texture is destroyed before the kernel may have
  // run.
  template <typename Result>
  std::vector<Result> Fetch(const char* kernel, const void* points, size_t count,
                            CUtexObject texture) {
    CUfunction function = nullptr;
    if (fetches_ == nullptr) EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleLoadData(&fetches_, kFetches));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleGetFunction(&function, fetches_, kernel));
    CUdeviceptr at = Allocate(8 * count), out = Allocate(16 * count);
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyHtoD_v2(at, points, 8 * count));
    EXPECT_CU(CUDA_SUCCESS, Launch(function, 1, static_cast<unsigned int>(count), nullptr,
                                   {&at, &out, &texture}));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuTexObjectDestroy(texture));
    const auto bytes = Read(out, 16 * count);
    std::vector<Result> first(count);
    for (size_t i = 0; i < count; ++i) std::memcpy(&first[i], &bytes[16 * i], sizeof(Result));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(at));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(out));
    return first;
  }
  std::vector<float> Sample(const std::vector<Point>& points, CUtexObject texture) {
    return Fetch<float>("plane", points.data(), points.size(), texture);
  }

  // 4 x 2 floats, T[i, j] = 10 j + i, in rows of 512 bytes.
  CUdeviceptr Ramp() {
    const CUdeviceptr pointer = Allocate(1024);
    for (int j = 0; j < 2; ++j) {
      float row[4];
      for (int i = 0; i < 4; ++i) row[i] = static_cast<float>(10 * j + i);
      EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyHtoD_v2(pointer + size_t{512} * j, row, sizeof(row)));
    }
    return pointer;
  }

  CUmodule fetches_ = nullptr;
};

TEST_F(TextureTest, AddressModes) {
  const CUdeviceptr ramp = Ramp();
  const auto resource = Pitched(ramp, CU_AD_FORMAT_FLOAT, 1, 4, 2, 512);
  using Values = std::vector<float>;
  const auto plain = Sampling(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  EXPECT_EQ(Sample({{0, 0}, {2.9f, 1.5f}, {-3, 0.5f}, {9, 7}}, Make(resource, plain)),
            (Values{0, 12, 0, 13}));
  auto border = Sampling(CU_TR_ADDRESS_MODE_BORDER, CU_TR_FILTER_MODE_POINT, 0);
  EXPECT_EQ(
      Sample({{1.5f, 1.5f}, {-0.5f, 0.5f}, {4.5f, 0.5f}, {2.5f, 2.5f}}, Make(resource, border)),
      (Values{11, 0, 0, 0}));
  const std::vector<Point> places = {{0.375f, 0.25f}, {1.375f, 0.25f}, {-0.125f, 0.75f}};
  const auto wrap =
      Sampling(CU_TR_ADDRESS_MODE_WRAP, CU_TR_FILTER_MODE_POINT, CU_TRSF_NORMALIZED_COORDINATES);
  EXPECT_EQ(Sample(places, Make(resource, wrap)), (Values{1, 1, 13}));
  const auto mirror =
      Sampling(CU_TR_ADDRESS_MODE_MIRROR, CU_TR_FILTER_MODE_POINT, CU_TRSF_NORMALIZED_COORDINATES);
  EXPECT_EQ(Sample(places, Make(resource, mirror)), (Values{1, 2, 10}));
}

TEST_F(TextureTest, LinearFiltering) {
  const auto resource = Pitched(Ramp(), CU_AD_FORMAT_FLOAT, 1, 4, 2, 512);
  const auto linear = Sampling(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0);
  // Middles of texels; half-way in x, in y, in both; a quarter; left of the first.
  EXPECT_EQ(Sample({{0.5f, 0.5f}, {2, 0.5f}, {1.5f, 1}, {2, 1}, {0.75f, 0.5f}, {0.1f, 0.5f}},
                   Make(resource, linear)),
            (std::vector<float>{0, 1.5f, 6, 6.5f, 0.25f, 0}));
}

TEST_F(TextureTest, IntegersAsFloats) {
  const CUdeviceptr pointer = Allocate(512);
  Write(pointer, {0, 51, 255, 128, 129, 127, 0x34, 0x12});
  const auto as_float = Sampling(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  const auto unsigned8 = Pitched(pointer, CU_AD_FORMAT_UNSIGNED_INT8, 1, 8, 1, 512);
  const auto result = Sample({{0, 0}, {1, 0}, {2, 0}}, Make(unsigned8, as_float));
  EXPECT_FLOAT_EQ(result[0], 0);
  EXPECT_FLOAT_EQ(result[1], 0.2f);
  EXPECT_FLOAT_EQ(result[2], 1);
  const auto signed8 = Pitched(pointer, CU_AD_FORMAT_SIGNED_INT8, 1, 8, 1, 512);
  const auto negative = Sample({{3, 0}, {4, 0}, {5, 0}}, Make(signed8, as_float));
  EXPECT_FLOAT_EQ(negative[0], -1);
  EXPECT_FLOAT_EQ(negative[1], -1);
  EXPECT_FLOAT_EQ(negative[2], 1);
}

// By index over linear memory; outside it is zero.
TEST_F(TextureTest, LinearMemory) {
  const CUdeviceptr pointer = Allocate(512);
  Write(pointer, {1, 0, 0xff, 0xff, 3, 0, 4, 0});
  const int32_t indices[][2] = {{0, 0}, {1, 0}, {3, 0}, {4, 0}, {-1, 0}};
  const auto integers =
      Sampling(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, CU_TRSF_READ_AS_INTEGER);
  const CUtexObject texture = Make(Linear(pointer, CU_AD_FORMAT_SIGNED_INT16, 8), integers);
  EXPECT_EQ(Fetch<int32_t>("row", indices, 5, texture), (std::vector<int32_t>{1, -1, 4, 0, 0}));
}

TEST_F(TextureTest, Arrays) {
  const CUDA_ARRAY_DESCRIPTOR shape = {4, 2, CU_AD_FORMAT_HALF, 1};
  CUarray array = nullptr;
  ASSERT_CU(Cu().cuArrayCreate_v2(&array, &shape));
  const uint16_t halves[] = {0x3c00, 0x4000, 0x4200, 0x4400, 0xbc00, 0, 0, 0x7bff};  // 1 2 3 4 -1
  CUDA_MEMCPY2D in = {};
  in.srcMemoryType = CU_MEMORYTYPE_HOST;
  in.srcHost = halves;
  in.srcPitch = 8;
  in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  in.dstArray = array;
  in.WidthInBytes = 8;
  in.Height = 2;
  ASSERT_CU(Cu().cuMemcpy2D_v2(&in));
  const auto point = Sampling(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  EXPECT_EQ(Sample({{0, 0}, {1, 0}, {2, 0}, {0, 1}, {3, 1}}, Make(OfArray(array), point)),
            (std::vector<float>{1, 2, 3, -1, 65504}));
  ASSERT_CU(Cu().cuArrayDestroy(array));
}

TEST_F(TextureTest, TellsWhatItIs) {
  const auto resource = Pitched(Ramp(), CU_AD_FORMAT_FLOAT, 1, 4, 2, 512);
  const auto sampling =
      Sampling(CU_TR_ADDRESS_MODE_BORDER, CU_TR_FILTER_MODE_LINEAR, CU_TRSF_NORMALIZED_COORDINATES);
  const CUtexObject texture = Make(resource, sampling);
  CUDA_RESOURCE_DESC told_resource = {};
  ASSERT_CU(Cu().cuTexObjectGetResourceDesc(&told_resource, texture));
  EXPECT_EQ(told_resource.resType, CU_RESOURCE_TYPE_PITCH2D);
  EXPECT_EQ(told_resource.res.pitch2D.devPtr, resource.res.pitch2D.devPtr);
  EXPECT_EQ(told_resource.res.pitch2D.width, 4u);
  CUDA_TEXTURE_DESC told = {};
  ASSERT_CU(Cu().cuTexObjectGetTextureDesc(&told, texture));
  EXPECT_EQ(told.addressMode[1], CU_TR_ADDRESS_MODE_BORDER);
  EXPECT_EQ(told.filterMode, CU_TR_FILTER_MODE_LINEAR);
  EXPECT_EQ(told.flags, CU_TRSF_NORMALIZED_COORDINATES);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuTexObjectGetResourceDesc(nullptr, texture));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuTexObjectGetTextureDesc(nullptr, texture));
  ASSERT_CU(Cu().cuTexObjectDestroy(texture));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuTexObjectDestroy(0));  // which is none
}

TEST_F(TextureTest, RefusesWhatIsNoTexture) {
  const CUdeviceptr pointer = Allocate(4096);
  const auto sampling = Sampling(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  const auto good = Pitched(pointer, CU_AD_FORMAT_FLOAT, 1, 4, 2, 512);
  CUtexObject texture = 0;
  const auto refuses = [&](const CUDA_RESOURCE_DESC& resource) {
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
              Cu().cuTexObjectCreate(&texture, &resource, &sampling, nullptr));
  };
  refuses(Pitched(0, CU_AD_FORMAT_FLOAT, 1, 4, 2, 512));
  refuses(Pitched(pointer, CU_AD_FORMAT_FLOAT, 3, 4, 2, 512));
  refuses(Pitched(pointer, CU_AD_FORMAT_FLOAT, 1, 4, 2, 500));
  refuses(Pitched(pointer + 4, CU_AD_FORMAT_FLOAT, 1, 4, 2, 512));
  refuses(OfArray(nullptr));
  auto bad = good;
  bad.resType = static_cast<CUresourcetype>(9);
  refuses(bad);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuTexObjectCreate(nullptr, &good, &sampling, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuTexObjectCreate(&texture, nullptr, &sampling, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuTexObjectCreate(&texture, &good, nullptr, nullptr));
  if (!OnSoftwareGpu()) return;             // a card looks at the view of an array only
  const CUDA_RESOURCE_VIEW_DESC view = {};  // only arrays can be viewed
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuTexObjectCreate(&texture, &good, &sampling, &view));
}

}  // namespace
}  // namespace tandem::driver_test
