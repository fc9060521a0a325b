// What is refused, and how: arrays, copies to them and from them, texture objects.
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

class ErrorsArrayTest : public ErrorsTest {
 protected:
  void SetUp() override {
    ErrorsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const CUDA_ARRAY_DESCRIPTOR row = {64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    ASSERT_CU(Cu().cuArrayCreate_v2(&array_, &row));
    block_ = Allocate(4096);
  }
  void TearDown() override {
    if (array_ != nullptr) TAKES(cuArrayDestroy, array_);
    ErrorsTest::TearDown();
  }
  CUarray array_ = nullptr;
  CUdeviceptr block_ = 0;
  char host_[256] = {};
};

TEST_F(ErrorsArrayTest, Arrays) {
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR plane = {16, 16, CU_AD_FORMAT_FLOAT, 1};
  CUDA_ARRAY3D_DESCRIPTOR box = {16, 16, 16, CU_AD_FORMAT_FLOAT, 1, 0};
  REFUSES(kValue, cuArrayCreate_v2, nullptr, &plane);
  REFUSES(kValue, cuArrayCreate_v2, &array, nullptr);
  REFUSES(kValue, cuArray3DCreate_v2, nullptr, &box);
  REFUSES(kValue, cuArray3DCreate_v2, &array, nullptr);
  std::vector<CUDA_ARRAY_DESCRIPTOR> wrong_planes(4, plane);
  wrong_planes[0].Width = 0;
  wrong_planes[1].Format = NoSuch<CUarray_format>();
  wrong_planes[2].NumChannels = 3;
  wrong_planes[3].Width = size_t{1} << 40;
  for (const CUDA_ARRAY_DESCRIPTOR& wrong : wrong_planes) {
    SCOPED_TRACE("plane " + std::to_string(&wrong - wrong_planes.data()));
    REFUSES(kValue, cuArrayCreate_v2, &array, &wrong);
  }
  std::vector<CUDA_ARRAY3D_DESCRIPTOR> wrong_boxes(5, box);
  wrong_boxes[0].Width = 0;
  wrong_boxes[1].Format = NoSuch<CUarray_format>();
  wrong_boxes[2].NumChannels = 0;
  wrong_boxes[3].Depth = size_t{1} << 40;
  wrong_boxes[4].Flags = 1u << 31;
  for (const CUDA_ARRAY3D_DESCRIPTOR& wrong : wrong_boxes) {
    SCOPED_TRACE("box " + std::to_string(&wrong - wrong_boxes.data()));
    REFUSES(kValue, cuArray3DCreate_v2, &array, &wrong);
  }
  REFUSES(kValue, cuArrayGetDescriptor_v2, nullptr, array_);
  REFUSES(kValue, cuArray3DGetDescriptor_v2, nullptr, array_);
  REFUSES(kNullHandle, cuArrayGetDescriptor_v2, &plane, nullptr);
  REFUSES(kNullHandle, cuArray3DGetDescriptor_v2, &box, nullptr);
  REFUSES(kNullHandle, cuArrayDestroy, nullptr);
  EXPECT_EQ(array, nullptr);
}

TEST_F(ErrorsArrayTest, Copies) {
  REFUSES(kNullHandle, cuMemcpyHtoA_v2, nullptr, 0, host_, 16);
  REFUSES(kNullHandle, cuMemcpyHtoAAsync_v2, nullptr, 0, host_, 16, nullptr);
  REFUSES(kNullHandle, cuMemcpyAtoH_v2, host_, nullptr, 0, 16);
  REFUSES(kNullHandle, cuMemcpyAtoHAsync_v2, host_, nullptr, 0, 16, nullptr);
  REFUSES(kNullHandle, cuMemcpyDtoA_v2, nullptr, 0, block_, 16);
  REFUSES(kNullHandle, cuMemcpyAtoD_v2, block_, nullptr, 0, 16);
  REFUSES(kNullHandle, cuMemcpyAtoA_v2, array_, 0, nullptr, 0, 16);
  // More than a row has, from its beginning or from behind.
  REFUSES(kValue, cuMemcpyHtoA_v2, array_, 0, host_, 65);
  REFUSES(kValue, cuMemcpyHtoAAsync_v2, array_, 60, host_, 16, nullptr);
  REFUSES(kValue, cuMemcpyAtoH_v2, host_, array_, 60, 16);
  REFUSES(kValue, cuMemcpyAtoHAsync_v2, host_, array_, 0, 65, nullptr);
  REFUSES(kValue, cuMemcpyDtoA_v2, array_, 60, block_, 16);
  REFUSES(kValue, cuMemcpyAtoD_v2, block_, array_, 60, 16);
  REFUSES(kValue, cuMemcpyAtoA_v2, array_, 0, array_, 60, 16);
  REFUSES(kValue, cuMemcpyDtoA_v2, array_, 0, 0, 16);
  REFUSES(kValue, cuMemcpyHtoA_v2, array_, 0, nullptr, 16);
}

TEST_F(ErrorsArrayTest, Textures) {
  CUDA_RESOURCE_DESC good = {};
  good.resType = CU_RESOURCE_TYPE_LINEAR;
  good.res.linear = {block_, CU_AD_FORMAT_FLOAT, 1, 64};
  CUDA_RESOURCE_DESC pitched = {};
  pitched.resType = CU_RESOURCE_TYPE_PITCH2D;
  pitched.res.pitch2D = {block_, CU_AD_FORMAT_FLOAT, 1, 8, 4, 3};
  const CUDA_TEXTURE_DESC sampling = {};
  CUtexObject texture = 0;
  std::vector<CUDA_RESOURCE_DESC> wrong(7, good);
  wrong[0].resType = NoSuch<CUresourcetype>();
  wrong[1].res.linear.devPtr = 0;
  wrong[2].res.linear.format = NoSuch<CUarray_format>();
  wrong[3].res.linear.numChannels = 3;
  wrong[4].flags = 1;
  wrong[5] = pitched;  // a pitch that is no multiple of anything
  wrong[6].resType = CU_RESOURCE_TYPE_ARRAY;
  wrong[6].res.array.hArray = nullptr;
  for (const CUDA_RESOURCE_DESC& resource : wrong) {
    SCOPED_TRACE("case " + std::to_string(&resource - wrong.data()));
    REFUSES(kValueOrHandle, cuTexObjectCreate, &texture, &resource, &sampling, nullptr);
  }
  REFUSES(kValue, cuTexObjectCreate, nullptr, &good, &sampling, nullptr);
  REFUSES(kValue, cuTexObjectCreate, &texture, nullptr, &sampling, nullptr);
  REFUSES(kValue, cuTexObjectCreate, &texture, &good, nullptr, nullptr);
  EXPECT_EQ(texture, 0u);
  TAKES(cuTexObjectCreate, &texture, &good, &sampling, nullptr);
  REFUSES(kValue, cuTexObjectGetResourceDesc, nullptr, texture);
  REFUSES(kValue, cuTexObjectGetTextureDesc, nullptr, texture);
  REFUSES(kValue, cuTexObjectGetResourceViewDesc, nullptr, texture);
  CUDA_RESOURCE_VIEW_DESC view = {};
  REFUSES(kValue, cuTexObjectGetResourceViewDesc, &view, texture);  // made without one
  TAKES(cuTexObjectDestroy, texture);
  TAKES(cuTexObjectDestroy, 0);
}

TEST_F(ErrorsArrayTest, NoCurrentContext) {
  WithoutContext([&] {
    CUarray array = nullptr;
    const CUDA_ARRAY_DESCRIPTOR plane = {16, 16, CU_AD_FORMAT_FLOAT, 1};
    const CUDA_ARRAY3D_DESCRIPTOR box = {16, 16, 16, CU_AD_FORMAT_FLOAT, 1, 0};
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear = {block_, CU_AD_FORMAT_FLOAT, 1, 64};
    const CUDA_TEXTURE_DESC sampling = {};
    CUtexObject texture = 0;
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = copy.dstDevice = block_;
    copy.WidthInBytes = copy.Height = copy.Depth = 1;
    REFUSES(kContext, cuArrayCreate_v2, &array, &plane);
    REFUSES(kContext, cuArray3DCreate_v2, &array, &box);
    REFUSES(kContext, cuTexObjectCreate, &texture, &resource, &sampling, nullptr);
    REFUSES(kContext, cuMemcpyHtoA_v2, array_, 0, host_, 16);
    REFUSES(kContext, cuMemcpyHtoAAsync_v2, array_, 0, host_, 16, nullptr);
    REFUSES(kContext, cuMemcpyAtoH_v2, host_, array_, 0, 16);
    REFUSES(kContext, cuMemcpyAtoHAsync_v2, host_, array_, 0, 16, nullptr);
    REFUSES(kContext, cuMemcpyDtoA_v2, array_, 0, block_, 16);
    REFUSES(kContext, cuMemcpyAtoD_v2, block_, array_, 0, 16);
    REFUSES(kContext, cuMemcpyAtoA_v2, array_, 0, array_, 16, 16);
    REFUSES(kContext, cuMemcpy3D_v2, &copy);
    REFUSES(kContext, cuMemcpy3DAsync_v2, &copy, nullptr);
  });
}

}  // namespace
}  // namespace tandem::driver_test
