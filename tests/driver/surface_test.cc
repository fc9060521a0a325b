// Surface objects: kernels load and store the texels of arrays.
#include "softgpu/ptx/module_head.h"
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

// Each thread of a block of 8 by 4 adds 1 to a texel; those beyond the edges change nothing.
constexpr char kAddOne[] = PTX_HEAD R"(
.visible .entry plane(.param .u64 surface)
{
  .reg .b64 %s; .reg .b32 %x, %y, %v, %w, %h;
  ld.param.u64 %s, [surface];
  mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; shl.b32 %x, %x, 2;
  suld.b.2d.b32.zero {%v}, [%s, {%x, %y}];
  add.u32 %v, %v, 1;
  sust.b.2d.b32.zero [%s, {%x, %y}], {%v};
  ret;
}
.visible .entry size(.param .u64 surface, .param .u64 out)
{
  .reg .b64 %s, %out; .reg .b32 %w, %h;
  ld.param.u64 %s, [surface]; ld.param.u64 %out, [out];
  suq.width.b32 %w, [%s]; suq.height.b32 %h, [%s];
  st.global.v2.u32 [%out], {%w, %h};
  ret;
}
.visible .entry trap(.param .u64 surface)
{
  .reg .b64 %s; .reg .b32 %x, %v;
  ld.param.u64 %s, [surface];
  mov.u32 %x, 4096;
  suld.b.2d.b32.trap {%v}, [%s, {%x, %x}];
  sust.b.2d.b32.trap [%s, {%x, %x}], {%v};
  ret;
}
)";

class SurfaceTest : public ErrorsTest {
 protected:
  static constexpr size_t kWidth = 5, kHeight = 3;

  CUfunction Load(const char* name) {
    if (module_ == nullptr) EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleLoadData(&module_, kAddOne));
    CUfunction function = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleGetFunction(&function, module_, name));
    return function;
  }
  CUDA_RESOURCE_DESC Make(unsigned int flags, CUarray* array) {
    const CUDA_ARRAY3D_DESCRIPTOR shape = {kWidth, kHeight, 0, CU_AD_FORMAT_UNSIGNED_INT32,
                                           1,      flags};
    CUDA_RESOURCE_DESC resource = {};
    EXPECT_CU(CUDA_SUCCESS, Cu().cuArray3DCreate_v2(array, &shape));
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = *array;
    return resource;
  }
  // Between the array and the host, which has its rows one after the other.
  static void Copy(CUarray array, uint32_t* texels, bool in) {
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = in ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
    copy.dstMemoryType = in ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
    copy.srcHost = copy.dstHost = texels;
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = kWidth * sizeof(uint32_t);
    copy.srcArray = copy.dstArray = array;
    copy.Height = kHeight;
    ASSERT_CU(Cu().cuMemcpy2D_v2(&copy));
  }
};

TEST_F(SurfaceTest, KernelsChangeAnArray) {
  CUarray array = nullptr;
  CUsurfObject surface = 0;
  const CUDA_RESOURCE_DESC resource = Make(CUDA_ARRAY3D_SURFACE_LDST, &array);
  std::vector<uint32_t> texels(kWidth * kHeight);
  for (size_t i = 0; i < texels.size(); ++i) texels[i] = static_cast<uint32_t>(i * i);
  Copy(array, texels.data(), true);
  ASSERT_CU(Cu().cuSurfObjectCreate(&surface, &resource));
  void* parameters[] = {&surface, nullptr};
  ASSERT_CU(Cu().cuLaunchKernel(Load("plane"), 1, 1, 1, 8, 4, 1, 0, nullptr, parameters, nullptr));
  ASSERT_CU(Cu().cuCtxSynchronize());
  std::vector<uint32_t> found(texels.size());
  Copy(array, found.data(), false);
  for (uint32_t& texel : texels) ++texel;
  EXPECT_EQ(found, texels);
  CUdeviceptr out = Allocate(8);
  parameters[1] = &out;
  ASSERT_CU(Cu().cuLaunchKernel(Load("size"), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(Read(out, 8), (std::vector<uint8_t>{kWidth, 0, 0, 0, kHeight, 0, 0, 0}));
  ASSERT_CU(Cu().cuSurfObjectDestroy(surface));
  ASSERT_CU(Cu().cuArrayDestroy(array));
}

TEST_F(SurfaceTest, ATrapEndsTheKernel) {
  CUarray array = nullptr;
  CUsurfObject surface = 0;
  const CUDA_RESOURCE_DESC resource = Make(CUDA_ARRAY3D_SURFACE_LDST, &array);
  ASSERT_CU(Cu().cuSurfObjectCreate(&surface, &resource));
  void* parameters[] = {&surface};
  ASSERT_CU(Cu().cuLaunchKernel(Load("trap"), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  EXPECT_NE(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(SurfaceTest, SaysWhatItIsOver) {
  CUarray array = nullptr, plain = nullptr;
  CUsurfObject surface = 0, none = 0;
  CUDA_RESOURCE_DESC resource = Make(CUDA_ARRAY3D_SURFACE_LDST, &array), told = {};
  TAKES(cuSurfObjectCreate, &surface, &resource);
  TAKES(cuSurfObjectGetResourceDesc, &told, surface);
  EXPECT_EQ(told.res.array.hArray, array);
  REFUSES(kValue, cuSurfObjectCreate, nullptr, &resource);
  REFUSES(kValue, cuSurfObjectCreate, &none, nullptr);
  REFUSES(kValue, cuSurfObjectGetResourceDesc, nullptr, surface);
  WithoutContext([&] {
    REFUSES(kContext, cuSurfObjectCreate, &none, &resource);
    REFUSES(kContext, cuSurfObjectGetResourceDesc, &told, surface);
    REFUSES(kContext, cuSurfObjectDestroy, surface);
  });
  TAKES(cuSurfObjectDestroy, surface);
  CUDA_RESOURCE_DESC linear = {};
  linear.resType = CU_RESOURCE_TYPE_LINEAR;
  linear.res.linear = {Allocate(4096), CU_AD_FORMAT_FLOAT, 1, 4096};
  REFUSES(kValue, cuSurfObjectCreate, &none, &linear);
  if (OnSoftwareGpu()) {
    resource = Make(0, &plain);
    REFUSES(kValue, cuSurfObjectCreate, &none, &resource);
    REFUSES(kValue, cuSurfObjectDestroy, surface);
    TAKES(cuArrayDestroy, plain);
  }
  TAKES(cuArrayDestroy, array);
}

}  // namespace
}  // namespace tandem::driver_test
